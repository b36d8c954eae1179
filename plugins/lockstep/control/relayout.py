"""A change of layout, as a transition: it takes effect at a step boundary, with no input in flight."""

from __future__ import annotations

from dataclasses import replace

from lockstep.control.changes import ChangeLayout
from lockstep.control.layout.layouts import after
from lockstep.control.layout.records import LayoutRecord
from lockstep.control.model import PipelineState
from lockstep.control.preconditions import require
from lockstep.control.rollbacks import AT_WORK, given_up

__all__ = ["at_boundary", "change_layout"]


def change_layout(state: PipelineState, change: ChangeLayout) -> PipelineState:
    """The state with the next layout on record; itself where that is there already."""
    require(bool(change.changes) or change.at_once, lambda: "a change of layout changes something")
    if change.changes and not _is_made(state, change):
        _check_newest(state, change.epoch)
        made = after(state.layouts[-1].layout, *change.changes)
        state = replace(state, layouts=(*state.layouts, LayoutRecord(made, None)))
    elif not change.changes:
        _check_newest(state, change.epoch)
    return _at_once(state) if change.at_once else state


def _is_made(state: PipelineState, change: ChangeLayout) -> bool:
    """Whether the newest layout is what the change makes."""
    newest = state.layouts[-1].layout
    if newest.epoch != change.epoch + 1:
        return False
    return newest == after(state.layouts[change.epoch].layout, *change.changes)


def _check_newest(state: PipelineState, epoch: int) -> None:
    newest = state.layouts[-1].layout.epoch
    require(
        newest == epoch, lambda: f"the newest layout is {newest}, the change is of layout {epoch}"
    )


def _at_once(state: PipelineState) -> PipelineState:
    """Under the pending interval, too: what an attempt at it has done under another layout is void."""
    if state.pending is None or not state.has_waiting_layout:
        return state
    attempts = given_up(state.attempts, AT_WORK)
    return _in_effect(replace(state, attempts=attempts), state.pending.first_step)


def at_boundary(state: PipelineState) -> PipelineState:
    """The layouts that wait take effect once no interval is pending."""
    if state.pending is not None or not state.has_waiting_layout:
        return state
    return _in_effect(state, state.next_step)


def _in_effect(state: PipelineState, step: int) -> PipelineState:
    records = (
        replace(record, from_step=step) if record.from_step is None else record
        for record in state.layouts
    )
    return replace(state, layouts=tuple(records))
