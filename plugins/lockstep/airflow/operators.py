"""The stages of an interval as Airflow operators: the context in, a stage of `tasks` out.

Heavy imports (Kafka, Iceberg, Spark) happen when a pipeline is opened inside `execute`; this module
is imported whenever the DAG file is parsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import (  # type: ignore[attr-defined]  # the stubs lack one
    NEVER_EXPIRE,
    Asset,
    AssetAlias,
    BaseOperator,
    BaseOperatorLink,
)
from airflow.sdk.exceptions import AirflowFailException

from lockstep.adapters.settings import Settings
from lockstep.airflow import tasks
from lockstep.control.reports import Published
from lockstep.errors import LockstepError, Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from lockstep.control.ports import Engine
    from lockstep.runtime import Pipeline

__all__ = [
    "BrokenOperator",
    "MaintainOperator",
    "PlanOperator",
    "PublishOperator",
    "RunOperator",
    "SparkUiLink",
    "asset_alias",
    "view_asset",
]

PLAN_TASK = "plan"
BACKFILL = "backfill"
"""Airflow's type of the runs of a backfill."""


def view_asset(pipeline: str, view: str) -> Asset:
    """The asset of a published view, for the schedule of a DAG that follows it."""
    return Asset(name=f"{pipeline}.{view}", uri=f"lockstep://{pipeline}/{view}")


def asset_alias(pipeline: str) -> AssetAlias:
    """What publish declares as its outlet: a declared asset would get an event from every run, an
    alias passes on only what is added to it."""
    return AssetAlias(name=f"lockstep:{pipeline}", group="lockstep")


class SparkUiLink(BaseOperatorLink):
    """A button on the task's page, where the installation names Spark's UI."""

    name = "Spark UI"

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:  # noqa: ARG002
        return Settings.load().spark_ui


class Stage:
    """What all the operators share: opening, failing in plain words, showing the outcome.

    `outcome` is a template field only so that the task's page shows it; it is set by `execute`.
    """

    pipeline: str
    outcome: str
    log: Any

    @contextmanager
    def opened(self) -> Iterator[Pipeline]:
        """The pipeline; what can never succeed fails the task at once, without a retry."""
        from lockstep.runtime import open_pipeline

        try:
            with open_pipeline(self.pipeline, Settings.load(), self.engine()) as pipeline:
                yield pipeline
        except LockstepError as error:
            # Airflow logs an exception with its whole stack; people look for this line.
            self.log.error(str(error))
            if isinstance(error, Refused):
                raise AirflowFailException(str(error)) from error
            raise

    def engine(self) -> Engine | None:
        """What stands in for the engine of the configuration; None: nothing."""
        return None

    def progress(self, line: str) -> None:
        """One line in the task log."""
        self.log.info(line)

    def run_stage(self, context: Context) -> dict[str, Any]:
        """Run and commit, up to the time of the DAG run; compare, where that is published and the run is
        a backfill's or was cleared."""
        more = (context["ti"].xcom_pull(task_ids=PLAN_TASK) or {}).get("more", True)
        with self.opened() as pipeline:
            self._say_where_spark_is()
            again = _interval_again(context)
            # Asked before anything is advanced: what this run publishes is not run again by its retry.
            replayed = tasks.replay(pipeline, *again, self.progress) if again else None
            advanced = tasks.run(pipeline, _until(context), more, self.progress)
        self.outcome = "; ".join([*([replayed.text] if replayed else []), advanced.summary])
        return {
            "replayed": None if replayed is None else replayed.last_step + 1 - replayed.first_step,
            "intervals": advanced.intervals,
            "first_step": advanced.first_step,
            "last_step": advanced.last_step,
            "version": advanced.version,
            "records": advanced.records,
            "changes": advanced.changes,
            "errors": advanced.errors,
        }

    def publish_stage(self, context: Context) -> dict[str, Any]:
        """Publish, and tell the assets whose rows changed."""
        memory = context.get("task_state_store")
        with self.opened() as pipeline:
            before = pipeline.state()
            views = {s.view: s.published_step for s in before.sinks if s.provider == "iceberg"}
            died_at = _remember_start(memory, views)
            published = tasks.publish(pipeline, self.progress)
            version = pipeline.state().version.number
        events = context["outlet_events"][asset_alias(self.pipeline)]
        for view, rows in _changed(published, views, died_at).items():
            extra: dict[str, Any] = {"step": published.markers[view], "version": version}
            events.add(view_asset(self.pipeline, view), extra={**extra, "rows": rows})
        if memory is not None:
            memory.delete(_START)
        self.outcome = ", ".join(
            f"{sink} at step {marker}" for sink, marker in sorted(published.markers.items())
        )
        return {
            "version": version,
            "markers": dict(published.markers),
            "rows": dict(published.rows),
        }

    def maintain_stage(self, context: Context) -> dict[str, Any]:  # noqa: ARG002
        """Trim, merge and sweep; counts by kind."""
        with self.opened() as pipeline:
            maintained = tasks.maintain(pipeline, self.progress)
        self.outcome = ", ".join(f"{kind} {n}" for kind, n in sorted(maintained.done.items()))
        return dict(maintained.done)

    def _say_where_spark_is(self) -> None:
        if address := Settings.load().spark_ui:
            self.progress(f"Spark UI: {address}")


_START = "published_before"


def _remember_start(memory: Any, views: Mapping[str, int]) -> Mapping[str, int]:
    """Where the views stood when an earlier try of this task began, {} where there was none.

    A try that died after it had moved a view has told nobody, and the next one has nothing to send.
    """
    if memory is None:
        return {}
    if (kept := memory.get(_START)) is not None:
        return dict(kept)
    memory.set(_START, dict(views))
    return {}


def _changed(
    published: Published, views: Iterable[str], died_at: Mapping[str, int]
) -> dict[str, int | None]:
    """Views to tell about, with the rows sent; None where a try that died may have sent them: it is
    better to wake a consumer for nothing than never."""
    changed: dict[str, int | None] = {}
    for view in views:
        if rows := published.rows.get(view, 0):
            changed[view] = rows
        elif view in died_at and published.markers.get(view, -1) > died_at[view]:
            changed[view] = None
    return changed


_ASKED = "asked"


def _was_asked(memory: Any, asked: tasks.Ask, context: Context) -> bool:
    """Whether an earlier try of this task has asked that; it may have died before. Where nothing
    remembers, a run that was cleared is taken to have asked."""
    if memory is None:
        return bool(context["dag_run"].clear_number)
    return bool(memory.get(_ASKED) == asked.value)


def _interval_again(context: Context) -> tuple[datetime, datetime] | None:
    """The data interval of a run that somebody asked for again: a backfill's, or a cleared one's."""
    run = context["dag_run"]
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    is_again = run.run_type == BACKFILL or bool(run.clear_number)
    return (start, end) if is_again and start and end else None


def _until(context: Context) -> datetime | None:
    return tasks.until_of(
        context.get("params") or {},
        context.get("data_interval_end"),
        context["dag_run"].run_after,
        datetime.now(UTC),
    )


class _StageOperator(Stage, BaseOperator):
    """A stage in the task's own process. `pipeline` is the name of a deployed pipeline."""

    template_fields: Sequence[str] = ("pipeline", "outcome")
    overwrite_rtif_after_execution = True
    ui_color = "#e6f1f2"

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.outcome = ""


class PlanOperator(_StageOperator):
    """Records the division of the next interval; pushes steps, records, and if there is more."""

    def execute(self, context: Context) -> dict[str, Any]:
        asked = tasks.Ask((context.get("params") or {}).get("ask") or tasks.Ask.ADVANCE)
        with self.opened() as pipeline:
            self._ask(asked, context)
            planned = tasks.plan(pipeline, _until(context), self.progress)
        self.outcome = tasks.planned_text(planned)
        interval = planned.interval
        return {
            "first_step": interval.first_step if interval else None,
            "last_step": interval.last_step if interval else None,
            "records": interval.records if interval else 0,
            "more": planned.behind,
        }

    def _ask(self, asked: tasks.Ask, context: Context) -> None:
        """What a person wants of the pipeline besides advancing it; recorded before the run plans.

        Once a DAG run: whoever has asked otherwise since then is not overruled by another try, or by
        somebody who clears the run.
        """
        from lockstep import deploying, runtime

        if asked is tasks.Ask.ADVANCE:
            return
        memory = context.get("task_state_store")
        if _was_asked(memory, asked, context):
            self.progress(
                f"this run has asked pipeline {self.pipeline} to {asked.value} already, and does not do "
                "so again; that takes another run"
            )
            return
        settings = Settings.load()
        if asked is tasks.Ask.RECONCILE:
            deploying.reconcile(self.pipeline, settings)
        else:
            runtime.desire(self.pipeline, tasks.DESIRED[asked], settings)
        if memory is not None:
            memory.set(_ASKED, asked.value, retention=NEVER_EXPIRE)
        self.progress(f"pipeline {self.pipeline} was asked to {asked.value}")


class RunOperator(_StageOperator):
    """Runs and commits on the warm Spark Connect server: the task's process is its client."""

    operator_extra_links = (SparkUiLink(),)

    def execute(self, context: Context) -> dict[str, Any]:
        return self.run_stage(context)


class PublishOperator(_StageOperator):
    """Moves every sink to the newest version; an asset event for each view that changed."""

    def execute(self, context: Context) -> dict[str, Any]:
        return self.publish_stage(context)


class MaintainOperator(_StageOperator):
    """Trims versions and sweeps what dead attempts left; pushes counts by kind."""

    def execute(self, context: Context) -> dict[str, Any]:
        return self.maintain_stage(context)


class BrokenOperator(BaseOperator):
    """Stands for a pipeline whose record cannot be made a DAG: says why, and fails."""

    def __init__(self, *, fault: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fault = fault

    def execute(self, context: Context) -> None:  # noqa: ARG002
        raise AirflowFailException(self.fault)
