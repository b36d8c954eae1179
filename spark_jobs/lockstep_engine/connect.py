"""The engine on a warm Spark Connect server: one session an attempt, under an id that is recorded."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import grpc
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.connect.client.retries import DefaultPolicy

from lockstep.control.job import (
    CatalogSettings,
    IntervalJob,
    IntervalResult,
    MergeJob,
    PublishJob,
    PublishResult,
)
from lockstep.control.ports import Progress, State
from lockstep.errors import EngineFailed, SourceChanged, Unreachable
from lockstep_engine.compaction import merge_traces
from lockstep_engine.job import run_interval
from lockstep_engine.publishing import publish_sinks

__all__ = ["ConnectEngine"]

CONNECT_RETRIES = 2
LOST_OFFSETS = "not available in Kafka any more"
"""What Spark's Kafka source says of offsets that retention or a deleted topic has taken."""

CLOSED_SESSION = "INVALID_HANDLE"
"""What Spark says of a session that has ended: nothing runs in it any more."""


class ConnectEngine:
    """Implements `control.ports.Engine` on the Connect server at `remote` (sc://host:port).

    `state_of` gives the table adapter for a catalog: the engine writes rows, never refs.
    """

    def __init__(self, remote: str, state_of: Callable[[CatalogSettings], State]) -> None:
        self._remote = remote.rstrip("/")
        self._state_of = state_of

    def new_session(self) -> str:
        return str(uuid.uuid4())

    def run(self, job: IntervalJob, progress: Progress) -> IntervalResult:
        with self._session(job.session or self.new_session()) as spark, _plain_errors(job.pipeline):
            return run_interval(spark, job, self._state_of(job.catalog), progress)

    def publish(self, job: PublishJob, progress: Progress) -> PublishResult:
        def new_spark() -> SparkSession:
            return self._connect(self.new_session())

        with _plain_errors(job.pipeline):
            return publish_sinks(new_spark, job, self._state_of(job.catalog), progress)

    def merge(self, job: MergeJob, progress: Progress) -> Mapping[str, int]:
        with self._session(self.new_session()) as spark, _plain_errors(job.pipeline):
            return merge_traces(spark, job, self._state_of(job.catalog), progress)

    def interrupt(self, session: str) -> None:
        if not session:
            return
        try:
            with self._session(session) as spark, _plain_errors(session):
                spark.interruptAll()
        except Unreachable as error:
            if CLOSED_SESSION not in error.found:
                raise

    def _connect(self, session: str) -> SparkSession:
        """Join the session of that id, or make it. The builder is lazy and would retry for minutes
        on a dead port, so the first call is made here with few retries."""
        spark: SparkSession | None = None
        try:
            spark = SparkSession.builder.remote(f"{self._remote}/;session_id={session}").create()
            # The client declares this method as a property that is none.
            spark.client.set_retry_policies(  # type: ignore[operator]
                [DefaultPolicy(max_retries=CONNECT_RETRIES)]
            )
            spark.conf.set("spark.sql.session.timeZone", "UTC")
        except (grpc.RpcError, PySparkException) as error:
            if spark is not None:
                # It is this thread's active session by now, which functions would go on asking.
                _stop_quietly(spark)
            raise Unreachable(
                f"the Spark Connect server at {self._remote} does not answer",
                found=str(error).splitlines()[0][:300],
                next_step="start it with `lockstep up`, or look at its log in `lockstep status`",
            ) from error
        return spark

    @contextmanager
    def _session(self, session: str) -> Iterator[SparkSession]:
        spark = self._connect(session)
        try:
            yield spark
        finally:
            _stop_quietly(spark)


def _stop_quietly(spark: SparkSession) -> None:
    """A server that is gone has ended the session by itself; the work's own error counts."""
    try:
        spark.stop()
    except Exception:
        return


@contextmanager
def _plain_errors(subject: str) -> Iterator[None]:
    """Spark's failures in one sentence; Lockstep's own errors pass."""
    try:
        yield
    except PySparkException as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        if any(LOST_OFFSETS in line for line in lines):
            raise SourceChanged(
                f"{subject}: a topic no longer holds records that a recorded step needs",
                found=next(line.strip() for line in lines if LOST_OFFSETS in line)[:500],
                next_step="raise the topic's retention; the steps that lost input need a new pipeline",
            ) from error
        raise EngineFailed(
            f"{subject}: Spark ended the job with an error",
            found=" ".join(lines[:3])[:1500],
            next_step="run the interval again; if it stays, `lockstep plan` the project",
        ) from error
    except grpc.RpcError as error:
        raise Unreachable(
            f"{subject}: the connection to Spark broke",
            found=str(error).splitlines()[0][:300],
            next_step="see that Spark runs (`lockstep status`), then run the interval again",
        ) from error
