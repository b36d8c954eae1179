"""What people ask of a pipeline, as transitions: a deploy, and to run, pause or stop.

As all transitions, pure: the state after it, or `Precondition`. Either takes effect at a step boundary.
"""

from __future__ import annotations

from dataclasses import replace

from lockstep.control.changes import Deploy, Restore, SetDesired
from lockstep.control.model import (
    PipelineState,
    Replaced,
    RunState,
    SinkState,
)
from lockstep.control.preconditions import Precondition, check_unique, require
from lockstep.control.rollbacks import AT_WORK, given_up

__all__ = ["deploy_again", "first_deploy", "restore", "set_desired"]


def first_deploy(name: str, change: Deploy) -> PipelineState:
    """A pipeline that has done nothing yet."""
    require(bool(name), lambda: "a pipeline needs a name")
    require(bool(change.incarnation), lambda: f"the first deploy of {name} needs an incarnation")
    empty = PipelineState(name=name, incarnation=change.incarnation, revision=1, files=change.files)
    return replace(empty, sinks=_sinks_after(empty, change))


def deploy_again(state: PipelineState, change: Deploy) -> PipelineState:
    """Other files; the same state where nothing differs."""
    sinks = _sinks_after(state, change)
    positions = state.positions
    if change.sources is not None:
        kept_names = frozenset(change.sources)
        positions = tuple(slice_ for slice_ in positions if slice_.source in kept_names)
    before = (state.files, state.sinks, state.positions, state.replaced)
    replaced = _replaced_after(state, change)
    if before == (change.files, sinks, positions, replaced):
        return state
    require(
        change.compared_with in (None, (state.files, state.version_files)),
        lambda: "another project was deployed since it was told what this one changes",
    )
    require(
        not state.dropped,
        lambda: (
            f"steps up to {state.output_step} are replayed after a rollback, and what they give is "
            "compared with what the files deployed gave; deploy others once that is done"
        ),
    )
    attempts = given_up(state.attempts, AT_WORK) if change.rebuilds else state.attempts
    return replace(
        state,
        files=change.files,
        sinks=sinks,
        positions=positions,
        replaced=replaced,
        attempts=attempts,
    )


def _replaced_after(state: PipelineState, change: Deploy) -> Replaced | None:
    """What the next interval rebuilds from: the newest version, however many deploys follow it."""
    if not change.rebuilds or state.version.number == 0:
        return state.replaced
    before = state.replaced
    if before is None:
        sinks = tuple((sink.name, sink.view) for sink in state.sinks)
        before = Replaced(state.files, sinks=sinks)
    return replace(before, distrusted=tuple(sorted({*before.distrusted, *change.distrusted})))


def _sinks_after(state: PipelineState, change: Deploy) -> tuple[SinkState, ...]:
    """The sinks of the change in its order: known ones with their progress, new ones as given."""
    check_unique("sink", (sink.name for sink in change.sinks))
    known = {sink.name: sink for sink in state.sinks}
    last_step = state.version.last_step
    sinks = []
    for sink in change.sinks:
        before = known.get(sink.name)
        if before is None:
            if sink.intent is not None or not -1 <= sink.published_step <= last_step:
                raise Precondition(
                    f"new sink {sink.name} enters between step -1 and the last committed step "
                    f"{last_step}, without an intent, not at step {sink.published_step}"
                )
        elif (before.view, before.provider) != (sink.view, sink.provider):
            raise Precondition(
                f"sink {sink.name} publishes view {before.view} to {before.provider} by the "
                f"record, the deploy says view {sink.view} to {sink.provider}: give it another name"
            )
        sinks.append(sink if before is None else before)
    return tuple(sinks)


def restore(state: PipelineState, change: Restore) -> PipelineState:
    """What tables and sinks say, where the store knows less."""
    wanted, known = change.state, state.version
    if (state.incarnation, known) == (wanted.incarnation, wanted.version):
        return state
    require(
        known.number == 0 or state.incarnation == wanted.incarnation,
        lambda: (
            f"the store has version {known.number} of another life of {state.name}, incarnation "
            f"{state.incarnation}; the tables are of incarnation {wanted.incarnation}"
        ),
    )
    require(
        known.number < wanted.version.number,
        lambda: (
            f"the store has version {known.number}, up to step {known.last_step}; the tables say "
            f"{wanted.version.number}, up to step {wanted.version.last_step}"
        ),
    )
    return wanted


def set_desired(state: PipelineState, change: SetDesired) -> PipelineState:
    """What is wanted, and where to stop."""
    is_stop = change.desired is RunState.STOP
    require(
        is_stop or change.stop_at is None,
        lambda: f"to {change.desired.value} names no step, not {change.stop_at}",
    )
    stop_at = change.stop_at
    if is_stop and stop_at is None:
        # Asked for again without a step, the one that was fixed holds.
        stop_at = state.next_step if state.stop_at is None else state.stop_at
    if (state.desired, state.stop_at) == (change.desired, stop_at):
        return state
    require(
        stop_at is None or stop_at >= state.next_step,
        lambda: (
            f"steps up to {state.next_step - 1} are recorded, so the pipeline cannot stop before "
            f"step {stop_at}"
        ),
    )
    return replace(state, desired=change.desired, stop_at=stop_at)
