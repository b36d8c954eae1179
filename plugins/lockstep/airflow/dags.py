"""From what is recorded of a deployed pipeline to its two DAGs, in milliseconds and without Spark.

A pipeline whose record makes no DAG (a schedule that nobody can read, a spec that is no YAML) does
not hide the others: under its own name there is a DAG without a schedule, tagged `broken`, whose
page says what is wrong and whose only task fails with the same words. Where the name is the fault,
as no DAG can have it, that DAG is called nearly so.

A control store that does not answer is no fault of a pipeline: the file then fails as a whole, and
Airflow goes on with the DAGs that it knows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import yaml
from airflow.sdk import DAG, BaseOperator, Param

from lockstep.adapters.settings import Settings
from lockstep.airflow import operators, tasks
from lockstep.airflow.schedule import timetable
from lockstep.control.maintenance import MAINTENANCE_SECONDS
from lockstep.control.model import PipelineState
from lockstep.errors import Retry, WrongUse
from lockstep.ids import MAINTENANCE_SUFFIX
from lockstep.sql.reading.spec import check_name, is_dag_id, written_configuration

__all__ = ["Deployed", "describe", "maintenance_dag", "pipeline_dags"]

# Far in the past: a run by hand for a time before it would end without any task.
START = datetime(2000, 1, 1, tzinfo=UTC)

RETRIES: Mapping[str, Any] = {
    "retries": 4,
    "retry_delay": timedelta(seconds=5),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=1),
    # Backfill runs count apart from max_active_runs; this keeps them from queueing at the lease.
    "max_active_tis_per_dag": 1,
}


@dataclass(frozen=True)
class Deployed:
    """What a DAG is made from; `configuration` as in the spec, `views` those that are published."""

    name: str
    folder: str
    configuration: Mapping[str, str]
    views: tuple[str, ...]

    @property
    def engine(self) -> str:
        return self.configuration.get("lockstep.engine", "connect")


def describe(recorded: PipelineState) -> Deployed:
    """Read a recorded pipeline's spec; its SQL is not parsed here. Raises WrongUse."""
    try:
        configuration = {
            str(k): str(v) for k, v in written_configuration(recorded.files.spec).items()
        }
    except (yaml.YAMLError, AttributeError) as error:
        raise WrongUse(
            f"the recorded spec of pipeline {recorded.name} cannot be read",
            expected="a YAML mapping with `configuration`, as in spark-pipeline.yml",
            found=" ".join(str(error).split())[:300],
            next_step="correct the project and run `lockstep deploy` again",
        ) from error
    views = tuple(sink.view for sink in recorded.sinks if sink.provider == "iceberg")
    return Deployed(recorded.name, recorded.files.folder, configuration, views)


def pipeline_dags(name: str, settings: Settings, wanted: str | None) -> tuple[DAG, ...]:
    """The DAGs of one deployed pipeline, or the DAG that says why it has none.

    `wanted` is the only dag_id that is needed (a task is about to run), or None for all. Raises Retry
    where the control store does not answer.
    """
    if wanted is not None and wanted not in (_plain_id(name), name + MAINTENANCE_SUFFIX):
        return ()
    try:
        from lockstep.runtime import recorded

        check_name(name)
        deployed = describe(recorded(name, settings))
        return (pipeline_dag(deployed), maintenance_dag(deployed))
    except Retry:
        # A DAG without the tasks of the one before would end the interval that is under way.
        raise
    # Any other fault at all: one pipeline's must not become that of the whole file.
    except Exception as error:
        return (_broken_dag(name, error),)


def pipeline_dag(deployed: Deployed) -> DAG:
    """plan → run → publish on the pipeline's data intervals. Raises WrongUse."""
    stages = _operators(deployed)
    schedule = timetable(deployed.configuration)
    with DAG(
        dag_id=deployed.name,
        description=f"Keeps {', '.join(deployed.views) or 'its views'} up to date",
        doc_md=_doc(deployed),
        schedule=schedule,
        start_date=START,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,
        default_args=dict(RETRIES),
        params=_params(),
        tags=["lockstep"],
    ) as dag:
        plan = operators.PlanOperator(task_id=operators.PLAN_TASK, pipeline=deployed.name)
        run = stages.run(task_id="run", pipeline=deployed.name, **stages.more)
        publish = stages.publish(
            task_id="publish",
            pipeline=deployed.name,
            outlets=[operators.asset_alias(deployed.name)],
            **stages.more,
        )
        plan >> run >> publish
    return dag


@dataclass(frozen=True)
class _Operators:
    """The operators that an engine needs, and what they want besides the pipeline's name."""

    run: type[BaseOperator]
    publish: type[BaseOperator]
    maintain: type[BaseOperator]
    more: Mapping[str, Any] = field(hash=False)


def _operators(deployed: Deployed) -> _Operators:
    if deployed.engine != "submit":
        return _Operators(
            operators.RunOperator, operators.PublishOperator, operators.MaintainOperator, {}
        )
    # The Spark provider is loaded only where it is asked for.
    from lockstep.airflow import submit

    connection = deployed.configuration.get("lockstep.spark_connection", submit.DEFAULT_CONNECTION)
    return _Operators(
        submit.SubmitRunOperator,
        submit.SubmitPublishOperator,
        submit.SubmitMaintainOperator,
        {"conn_id": connection},
    )


def maintenance_dag(deployed: Deployed) -> DAG:
    """Trims and sweeps, on its own clock: it never holds up an interval."""
    from lockstep.airflow.timetable import AlignedIntervalTimetable

    stages = _operators(deployed)
    with DAG(
        dag_id=deployed.name + MAINTENANCE_SUFFIX,
        description=f"Trims and sweeps the tables of {deployed.name}",
        schedule=AlignedIntervalTimetable(MAINTENANCE_SECONDS),
        start_date=START,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=False,
        default_args=dict(RETRIES),
        tags=["lockstep", "maintenance"],
    ) as dag:
        stages.maintain(task_id="maintain", pipeline=deployed.name, **stages.more)
    return dag


def _broken_dag(name: str, error: Exception) -> DAG:
    fault = f"pipeline {name} has no DAG: {error}"
    with DAG(
        dag_id=_plain_id(name),
        description=fault.splitlines()[0][:300],
        doc_md=f"### This pipeline cannot be scheduled\n\n```\n{fault}\n```\n",
        schedule=None,
        start_date=START,
        tags=["lockstep", "broken"],
    ) as dag:
        operators.BrokenOperator(task_id="explain", fault=fault)
    return dag


def _plain_id(name: str) -> str:
    """The name, where that can be a DAG's; else one that can, and that no other pipeline has: two names
    may differ in no sign that Airflow takes."""
    if is_dag_id(name):
        return name
    plain = re.sub(r"[^\w.-]", "_", name)[:200]
    return f"{plain}.{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def _params() -> dict[str, Param]:
    return {
        "until": Param(
            None,
            type=["null", "string"],
            format="date-time",
            title="Until",
            description="Advance until this time is recorded and published. Empty: the end of the "
            "run's data interval or, without one, now.",
        ),
        "once": Param(
            False,
            type="boolean",
            title="All that is there now",
            description="Take all records that are there now as one interval with one step.",
        ),
        "ask": Param(
            tasks.Ask.ADVANCE.value,
            enum=[ask.value for ask in tasks.Ask],
            title="Ask of the pipeline",
            description="`advance` as always; `pause` and `stop` let what is recorded end and begin "
            "nothing more; `resume` lets it go on; `reconcile` makes all state anew from the sources, "
            "and publishes by what the views then differ. A run that asks waits until the one at work "
            "has ended; `lockstep pause` on the command line acts at once, as do `stop` and `resume`.",
        ),
    }


def _doc(deployed: Deployed) -> str:
    views = "\n".join(
        f"- `{view}` (asset `lockstep://{deployed.name}/{view}`)" for view in deployed.views
    )
    return (
        f"### {deployed.name}\n\n"
        "Each run advances the pipeline until the end of its data interval is recorded and "
        "published. What is recorded once is never recorded again: a run that finds nothing to do "
        "succeeds. One of a backfill, or that was cleared, compares what it finds published, as far "
        "as versions are kept, and fails where rows differ.\n\n"
        f"Published views:\n{views or '- none'}\n\n"
        f"Project: `{deployed.folder}`, engine: `{deployed.engine}`\n"
    )
