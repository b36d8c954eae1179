"""Autoscaling at work: what the policy says of a pipeline as it is, and having it take effect."""

from __future__ import annotations

from lockstep.control.changes import ChangeLayout, Landed
from lockstep.control.interval import Parts
from lockstep.control.layout.autoscaling import Autoscaling, Mode, Proposal
from lockstep.control.layout.scaling import scaled
from lockstep.control.model import PipelineState
from lockstep.control.ports import Progress, State
from lockstep.ids import is_trace
from lockstep.threads import in_parallel

__all__ = ["autoscale", "proposed", "text_of"]


def proposed(state: PipelineState, tables: State, policy: Autoscaling) -> Proposal | None:
    """What to change, None for nothing: also while another layout waits, or a rollback is replayed.
    Raises Unreachable."""
    if state.has_waiting_layout or state.dropped:
        return None
    traces = [held for held in state.version.tables.items() if is_trace(held[0])]
    sizes = in_parallel(lambda held: tables.total_bytes(*held), traces)
    return policy.proposal(state.layout, state.loads, sum(sizes))


def autoscale(parts: Parts, progress: Progress) -> int:
    """Say what the policy proposes, and do it where the project says so; how many layouts are new.

    What does not land, as somebody else has changed the layout, is proposed again if it is still so.
    """
    policy = parts.autoscaling
    if policy.mode is Mode.OFF:
        return 0
    state = parts.store.read(parts.pipeline)
    proposal = proposed(state, parts.state, policy)
    if proposal is None:
        return 0
    progress(f"autoscaling: {text_of(parts.pipeline, proposal)}")
    if policy.mode is Mode.PROPOSE:
        return 0
    newest = state.layouts[-1].layout
    changes = scaled(newest, proposal.workers, sharding=proposal.sharding)
    outcome = parts.store.apply(parts.pipeline, ChangeLayout(newest.epoch, changes))
    if isinstance(outcome, Landed):
        progress(f"layout {newest.epoch + 1} holds from the next interval on")
        return 1
    progress(f"not done: {outcome.reason}")
    return 0


def text_of(pipeline: str, proposal: Proposal) -> str:
    """For people: what, why, and the command that does it."""
    command = f"lockstep scale {pipeline} --workers {proposal.workers}"
    if proposal.sharding is not None:
        command += f" --shards {proposal.sharding.count(proposal.workers)}"
    return f"{proposal.reason}: {command}"
