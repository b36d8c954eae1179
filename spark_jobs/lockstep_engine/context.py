"""What every operator is told about the interval that it works on."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType

from lockstep.sql.plans.nodes import Node

__all__ = ["LARGE_STATE", "SMALL_RECORDS", "Context", "configure_session"]

SMALL_RECORDS = 200_000
"""Up to so many source records a delta is broadcast to the state, beyond it both are shuffled."""

LARGE_STATE = 1_000_000
"""State with fewer rows is read whole: that is cheaper than to measure what a change can touch, and than
to compile a filter that is another one in each interval."""


@dataclass(frozen=True)
class Context:
    """One interval, worked on in one session.

    `spark` is a Connect session or a classic one: operators use only what both have. `records` is
    an upper bound of the source records in the interval, `partitions` the shuffle partitions
    wanted. `is_first` is true in the interval that begins with the pipeline's first step. `times` are
    those of the steps, in microseconds since the epoch, `time_before` that of the step before them,
    None where there is none. `types`
    remembers column types by node, as asking Spark for them costs a round trip:
    hand the same mapping to the next interval of the same circuit. `large_state` is the number of rows
    from which state is read only where the change can touch it.
    """

    spark: SparkSession
    records: int
    partitions: int
    is_first: bool = False
    times: tuple[int, ...] = ()
    time_before: int | None = None
    types: dict[Node, dict[str, DataType]] = field(default_factory=dict, compare=False, repr=False)
    large_state: int = LARGE_STATE

    @property
    def is_small(self) -> bool:
        """True where deltas are small enough to be broadcast."""
        return self.records < SMALL_RECORDS


def configure_session(spark: SparkSession, partitions: int) -> None:
    """Settings that operators count on.

    Aggregates over rows in order see them in order: without the second, a hash aggregate with many
    groups takes them in another.
    """
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    spark.conf.set("spark.sql.execution.replaceHashWithSortAgg", "true")
