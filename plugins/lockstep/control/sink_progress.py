"""What publishing changes in a pipeline's recorded state: an intent before, the sink's marker after."""

from __future__ import annotations

from dataclasses import replace

from lockstep.control.changes import IntendPublish, RecordPublished
from lockstep.control.model import Intent, PipelineState, SinkState
from lockstep.control.preconditions import Precondition, require

__all__ = ["intend_publish", "record_published"]


def intend_publish(state: PipelineState, change: IntendPublish) -> PipelineState:
    """The state with the intent on record; as it is where it was."""
    sink = _sink(state, change.sink)
    intent = Intent(change.first_step, change.last_step)
    require(
        not state.dropped,
        lambda: (
            f"steps up to {state.output_step} are replayed after a rollback; sink {sink.name} stays at "
            f"step {sink.published_step} until that is done"
        ),
    )
    require(
        intent.first_step == sink.published_step + 1 and intent.last_step >= intent.first_step,
        lambda: (
            f"sink {sink.name} is at step {sink.published_step}, so steps {intent.first_step} to "
            f"{intent.last_step} are not the next to publish"
        ),
    )
    last_step = state.version.last_step
    require(
        intent.last_step <= last_step,
        lambda: (
            f"version {state.version.number} ends at step {last_step}, so sink {sink.name} cannot "
            f"publish up to {intent.last_step}"
        ),
    )
    require(
        change.is_resumed in (None, sink.intent is not None),
        lambda: (
            f"sink {sink.name} has {'an' if sink.intent else 'no'} open intent by now, which the "
            "publish has not seen"
        ),
    )
    if sink.intent == intent:
        return state
    require(
        sink.intent is None or sink.intent.last_step <= intent.last_step,
        lambda: (
            f"sink {sink.name} has an open intent up to step "
            f"{sink.intent.last_step if sink.intent else ''}, rows of which may be out; it cannot "
            f"shrink to {intent.last_step}"
        ),
    )
    return _with_sink(state, replace(sink, intent=intent))


def record_published(state: PipelineState, change: RecordPublished) -> PipelineState:
    """The state with what the sink says of itself; as it is where that is older."""
    sink = _sink(state, change.sink)
    require(
        change.last_step <= state.output_step,
        lambda: (
            f"version {state.version.number} ends at step {state.version.last_step}, but sink "
            f"{sink.name} says that it holds step {change.last_step}: it is ahead of the record"
        ),
    )
    # A publisher that was overtaken reports an older marker: the record never moves back.
    if change.last_step <= sink.published_step:
        return state
    intent = sink.intent
    if intent is not None:
        done = change.last_step >= intent.last_step
        intent = None if done else replace(intent, first_step=change.last_step + 1)
    return _with_sink(state, replace(sink, published_step=change.last_step, intent=intent))


def _sink(state: PipelineState, name: str) -> SinkState:
    for sink in state.sinks:
        if sink.name == name:
            return sink
    names = ", ".join(sorted(sink.name for sink in state.sinks)) or "none"
    raise Precondition(f"pipeline {state.name} has no sink {name}; its sinks are: {names}")


def _with_sink(state: PipelineState, changed: SinkState) -> PipelineState:
    sinks = tuple(changed if sink.name == changed.name else sink for sink in state.sinks)
    return replace(state, sinks=sinks)
