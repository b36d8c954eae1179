"""What every operator is told about the interval that it works on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType

from lockstep.control.job import Placement
from lockstep.control.layout.autoscaling import DEFAULT_WORKERS
from lockstep.memory import memory_bytes
from lockstep.sql.circuit import SMALL_RECORDS, Operator
from lockstep_engine.sessions import set_all

__all__ = [
    "DEFAULT_PLACEMENT",
    "LARGE_STATE",
    "Context",
    "Guarding",
    "LookedAt",
    "configure_session",
]

LARGE_STATE = 1_000_000
"""State with fewer rows is read whole: that is cheaper than to measure what a change can touch, and than
to compile a filter that is another one in each interval."""


MANY_STEPS = 4
"""With fewer steps the pairs of a key's changes, where both inputs of a join take rows back, are few."""

DEFAULT_PLACEMENT = Placement(DEFAULT_WORKERS, tuple(range(DEFAULT_WORKERS)))
"""Where no layout names workers: as many tasks as the smallest machine works on at a time."""

_FEW_HERE, _MOST_HERE = 500_000, 2_000_000
"""Between these lies how many records this process works on by itself, where Spark need do nothing: all
with two workers, which take half as long again, few with eight, which may well be as fast."""
_WHOLE_TABLES_HERE = memory_bytes() >> 11
"""Up to so many rows come on top, with one or two workers, of tables that come whole as a pipeline
begins, and meet nothing that was there: for each there is 2 KiB of memory. Two workers take three times
as long for them."""

_PARTS = 4
"""Partitions that a worker has of a large interval: less of it is in memory at a time."""


@dataclass(frozen=True)
class LookedAt:
    """The change, of these columns, that an operator was given; `views` are who it works for."""

    operator: Operator
    delta: DataFrame
    columns: tuple[str, ...]
    views: tuple[str, ...]


@dataclass(frozen=True)
class Guarding:
    """How rows for which an expression fails are taken out of an operator's change.

    `views`, published ones, are who the operator works for. What is to be known of such rows is added
    to `noted`, as frames, and what these are of to `kept`; None where they are rows from before the
    interval, which were noted when they came. `looked_at` is what was evaluated, in order, for when
    an error is of something that has no form that does not fail.
    """

    views: tuple[str, ...] = ()
    noted: list[DataFrame] | None = field(default_factory=list)
    kept: list[DataFrame] = field(default_factory=list)
    looked_at: list[LookedAt] = field(default_factory=list)

    def look_at(self, operator: Operator, delta: DataFrame, columns: tuple[str, ...]) -> None:
        """Remember what an operator was given."""
        if self.noted is not None:
            self.looked_at.append(LookedAt(operator, delta, columns, self.views))


@dataclass(frozen=True)
class Context:
    """One interval, worked on in one session.

    `spark` is a Connect session or a classic one: operators use only what both have. `records` is
    an upper bound of the source records in the interval, `placement` who works on which keys. So many as
    `of_whole_tables` are rows of tables that are read for the first time, by a pipeline that begins.
    `is_first` is true in the interval that begins with the pipeline's first step. `times` are
    those of the steps, in microseconds since the epoch, `time_before` that of the step before them,
    None where there is none. `types`
    remembers column types by the digest of an operator, as asking Spark for them costs a round trip:
    hand the same mapping to the next interval of the same circuit. `large_state` is the number of rows
    from which state is read only where the change can touch it, `many_steps` of steps from which a join
    takes changes for what they come to, in a large interval, and `many_records` of records beyond
    which an interval is large. `whole` are the columns of an operator's
    large state that are known to be whole numbers. `guarding` is there where rows are
    taken out for which an expression fails, which otherwise end the job. `is_whole`: all operators
    can be worked out by this process, as far as that is known before.
    """

    spark: SparkSession
    records: int
    placement: Placement = DEFAULT_PLACEMENT
    is_first: bool = False
    times: tuple[int, ...] = ()
    time_before: int | None = None
    types: dict[str, dict[str, DataType]] = field(default_factory=dict, compare=False, repr=False)
    large_state: int = LARGE_STATE
    many_steps: int = MANY_STEPS
    many_records: int = SMALL_RECORDS
    whole: frozenset[str] = frozenset()
    guarding: Guarding | None = field(default=None, compare=False, repr=False)
    is_whole: bool = False
    of_whole_tables: int = 0

    def silenced(self) -> Context:
        """The same for rows of which nothing is to be noted, as it has been or will be."""
        if self.guarding is None:
            return self
        return replace(self, guarding=replace(self.guarding, noted=None))

    @property
    def long_state(self) -> int:
        """From so many rows on the first are taken out before they are numbered: to sort a row takes
        many times as long as to read it."""
        return self.large_state // 50

    @property
    def partitions(self) -> int:
        """The shuffle partitions wanted: one a worker, some where a delta is large."""
        return self.placement.workers * (1 if self.is_small else _PARTS)

    @property
    def has_many_steps(self) -> bool:
        """True where all pairs of a key's changes are more work than to net them first. In a small
        interval a stage costs more than its rows."""
        return len(self.times) >= self.many_steps * (4 if self.is_small else 1)

    @property
    def is_here(self) -> bool:
        """Whether this process works on rows that it has: those of a small change, but not in a
        pipeline's first interval, in which there is a change of everything; or all of them. Not where
        rows are taken out for which an expression fails."""
        is_part = self.is_small and not self.is_first and self.guarding is None
        return self.is_all_here or is_part

    @property
    def looks_up_here(self) -> bool:
        """Whether this process may read rows of the state, be it for Spark."""
        return self.is_small or self.is_here

    @property
    def is_all_here(self) -> bool:
        """Whether it works on all of them."""
        most = max(_FEW_HERE, min(_MOST_HERE, 8 * _FEW_HERE // self.placement.workers))
        if most == _MOST_HERE and self.of_whole_tables <= _WHOLE_TABLES_HERE:
            most += self.of_whole_tables
        return self.is_whole and self.guarding is None and self.records <= most

    @property
    def is_small(self) -> bool:
        """True where deltas are small enough to be broadcast."""
        return self.records <= self.many_records


def configure_session(context: Context) -> None:
    """Settings that operators count on.

    Aggregates over rows in order see them in order: without the second, a hash aggregate with many
    groups takes them in another. What is kept is read a few times and dropped: to compress it takes
    as long as to decode the JSON that it came from.
    """
    set_all(
        context.spark,
        {
            "spark.sql.shuffle.partitions": str(context.partitions),
            "spark.sql.execution.replaceHashWithSortAgg": "true",
            "spark.sql.inMemoryColumnarStorage.compressed": "false",
        },
    )
