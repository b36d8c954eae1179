"""run and publish as Spark applications of their own, through the Spark provider's connection.

The operators are the provider's `SparkSubmitOperator`, so that its connection (standalone, YARN,
Kubernetes in client mode), its logs and its kill apply. What they submit is built by
`lockstep.adapters.submit`, as for the command line, and the answer is the job's result file: the
provider does not tell exit codes apart, and a job that is refused must not be retried.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException

from lockstep.adapters.settings import Settings
from lockstep.adapters.submit import SubmitArguments, SubmitEngine
from lockstep.airflow.operators import SparkUiLink, Stage

if TYPE_CHECKING:
    from airflow.sdk import Context

    from lockstep.control.ports import Engine, Progress

__all__ = [
    "DEFAULT_CONNECTION",
    "SubmitMaintainOperator",
    "SubmitPublishOperator",
    "SubmitRunOperator",
]

DEFAULT_CONNECTION = "spark_default"


class _SubmitOperator(Stage, SparkSubmitOperator):
    """A stage whose engine is spark-submit. `conn_id` names a Spark connection of Airflow."""

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "pipeline", "outcome")
    overwrite_rtif_after_execution = True
    operator_extra_links = (SparkUiLink(),)

    def __init__(self, *, pipeline: str, conn_id: str = DEFAULT_CONNECTION, **kwargs: Any) -> None:
        # Durable runs join a driver in cluster mode; here the attempt decides, not the driver.
        super().__init__(
            conn_id=conn_id,
            name=f"lockstep-{pipeline}",
            deploy_mode="client",
            durable=False,
            **kwargs,
        )
        self.pipeline = pipeline
        self.outcome = ""

    def engine(self) -> Engine:
        return SubmitEngine(Settings.load(), launch=self._launch)

    def _launch(self, arguments: SubmitArguments, progress: Progress) -> str:
        """Submit through the provider's hook, which writes the driver's lines to the task log."""
        self.application = arguments.application
        self.application_args = list(arguments.arguments)
        self.conf = dict(arguments.conf)
        self.jars = ",".join(arguments.jars)
        self.env_vars = dict(arguments.environment)
        self._hook = self._get_hook()
        try:
            self._hook.submit(self.application)
        except AirflowException as error:
            # Not yet a failure: the result file says what kind it is.
            progress("spark-submit did not end well; its result file decides")
            return str(error)
        return ""


class SubmitRunOperator(_SubmitOperator):
    """Runs and commits, a Spark application an interval."""

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        return self.run_stage(context)


class SubmitPublishOperator(_SubmitOperator):
    """Moves every sink to the newest version by one Spark application."""

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        return self.publish_stage(context)


class SubmitMaintainOperator(_SubmitOperator):
    """Trims and sweeps; where traces are to be merged, by one Spark application."""

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        return self.maintain_stage(context)
