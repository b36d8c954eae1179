"""Changing a pipeline's layout: what a change would do, and having it take effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lockstep.adapters.settings import Settings
from lockstep.adapters.sql_store import SqlStore
from lockstep.control.autoscaler import proposed
from lockstep.control.changes import ChangeLayout, Landed, Rejected
from lockstep.control.layout.autoscaling import Autoscaling, Proposal
from lockstep.control.layout.layouts import Change, Layout, Moved, after, difference
from lockstep.control.layout.records import LayoutRecord
from lockstep.control.model import PipelineState
from lockstep.control.preconditions import Precondition
from lockstep.errors import Retry, WrongUse
from lockstep.runtime import recorded, tables_of
from lockstep.sql.project import parse_project

__all__ = ["LayoutPlan", "change", "plan_change", "propose"]


@dataclass(frozen=True)
class LayoutPlan:
    """What a change of layout would do. `waits_for` are the steps of the interval that has to be
    committed before it takes effect, None where nothing is under way. `change` is None where all is so
    already.
    """

    pipeline: str
    before: Layout
    after: Layout
    moved: Moved
    waits_for: str | None
    change: ChangeLayout | None


def plan_change(
    name: str, changes: Callable[[Layout], tuple[Change, ...]], settings: Settings, *, at_once: bool
) -> LayoutPlan:
    """Plan what `changes` makes of the newest layout; changes nothing. Raises NotDeployed; WrongUse
    where it does not fit."""
    state = recorded(name, settings)
    newest = state.layouts[-1].layout
    try:
        wanted = changes(newest)
        made = after(newest, *wanted) if wanted else newest
    except Precondition as refused:
        raise WrongUse(
            f"pipeline {name}: {refused.reason}",
            expected=f"a change that fits layout {newest.epoch}",
            found=", ".join(f"worker {w} on {host}" for w, host in sorted(newest.hosts.items()))
            or "no workers",
            next_step=f"lockstep layout show {name}",
        ) from refused
    waits_for = state.pending.text if state.pending is not None and not at_once else None
    is_hurried = at_once and state.layout != newest
    command = ChangeLayout(newest.epoch, wanted, at_once) if wanted or is_hurried else None
    return LayoutPlan(name, newest, made, difference(newest, made), waits_for, command)


def propose(state: PipelineState, settings: Settings) -> Proposal | None:
    """What the project's policy of autoscaling would change now, None for nothing; also where it is off.
    Changes nothing. Raises Unreachable; WrongUse where the policy cannot be read."""
    project = parse_project(state.files, settings.variables())
    _, tables = tables_of(project, settings)
    return proposed(state, tables, Autoscaling.from_configuration(project.configuration))


def change(plan: LayoutPlan, settings: Settings) -> LayoutRecord:
    """Do it. Raises Retry where somebody else has changed the layout meanwhile."""
    if plan.change is None:
        return recorded(plan.pipeline, settings).layouts[-1]
    outcome = SqlStore(settings.store_url).apply(plan.pipeline, plan.change)
    if isinstance(outcome, Landed):
        return outcome.state.layouts[plan.after.epoch]
    what = "was refused" if isinstance(outcome, Rejected) else "may not have landed"
    raise Retry(
        f"pipeline {plan.pipeline}: the change of layout {what}: {outcome.reason}",
        next_step=f"lockstep layout history {plan.pipeline}, then run the command again",
    )
