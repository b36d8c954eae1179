"""Going back to a version that is kept: what can be opened, what a rollback would do, and doing it."""

from __future__ import annotations

from collections.abc import Iterable

from lockstep.adapters.clock import SystemClock
from lockstep.adapters.settings import Settings
from lockstep.adapters.sql_store import SqlStore
from lockstep.control import rollback_plan as plans
from lockstep.control.changes import Landed
from lockstep.control.model import PipelineState, Version
from lockstep.control.opening import Opening, examine
from lockstep.control.ports import Progress
from lockstep.control.rollback_plan import RollbackPlan
from lockstep.errors import Retry
from lockstep.runtime import recorded, tables_of
from lockstep.sql.project import parse_project

__all__ = ["opening", "plan_rollback", "roll_back"]


def opening(state: PipelineState, versions: Iterable[Version], settings: Settings) -> Opening:
    """Which of a pipeline's versions can be opened: asks every table. Raises Unreachable."""
    _, tables = tables_of(parse_project(state.files, settings.variables()), settings)
    return examine(tables, versions)


def plan_rollback(name: str, number: int | None, settings: Settings) -> RollbackPlan:
    """What going back to a version would do, or, for None, taking a rollback back. Changes nothing.

    Raises NotDeployed, Unreachable; WrongUse for a version that one cannot go back to; StateDiverged
    where it cannot be opened.
    """
    state = recorded(name, settings)
    if number is None:
        return plans.plan_undo(state, opening(state, state.dropped, settings))
    return plans.plan_rollback(state, number, opening(state, state.versions, settings))


def roll_back(plan: RollbackPlan, settings: Settings, progress: Progress) -> PipelineState:
    """Do it, when the pipeline's lease is free. Raises Retry where others have moved on meanwhile."""
    from lockstep.adapters.lease import held, new_holder

    store = SqlStore(settings.store_url)
    with held(store, plan.pipeline, new_holder(), SystemClock(), progress):
        outcome = store.apply(plan.pipeline, plan.change)
    if isinstance(outcome, Landed):
        return outcome.state
    raise Retry(
        f"pipeline {plan.pipeline}: the rollback did not land: {outcome.reason}",
        next_step=f"lockstep versions {plan.pipeline}, then run the command again",
    )
