"""Which row an error of Spark is about: Spark names an expression and a value, and no row.

Each expression that was evaluated is evaluated once more by itself, over the rows that it was given, and
where Spark fails again the rows are halved until one is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lockstep_engine.context import Context, LookedAt
from lockstep_engine.deltas import STEP, row_text
from lockstep_engine.failures import SPARK_ERRORS, is_of_a_row
from lockstep_engine.operators import State, evaluate

__all__ = ["FailingRow", "find_failing_row"]

_NUMBER = "_number"


@dataclass(frozen=True)
class FailingRow:
    """A row, as JSON, for which Spark fails; `step` counts from the interval's first."""

    views: tuple[str, ...]
    row: str
    step: int
    error: Exception


def find_failing_row(looked_at: Sequence[LookedAt], context: Context) -> FailingRow | None:
    """The first row of the first operator for which Spark fails; None where no operator fails by
    itself, as an error is of a group of rows, or of a pair of them. The context is one without
    guarding."""
    for one in looked_at:
        found = _find(one, context)
        if found is not None:
            return found
    return None


def _find(one: LookedAt, context: Context) -> FailingRow | None:
    def error_of(rows: DataFrame) -> Exception | None:
        made = evaluate(one.operator, (rows,), State(), context).delta
        try:
            made.write.format("noop").mode("overwrite").save()
        except SPARK_ERRORS as error:
            if is_of_a_row(error):
                return error
            raise
        return None

    error = error_of(one.delta)
    if error is None:
        return None
    # in one partition, numbers have no gaps
    numbered = one.delta.repartition(1).withColumn(_NUMBER, F.monotonically_increasing_id())
    numbered = numbered.persist()
    try:
        first, end = 0, numbered.count()
        while end - first > 1:
            middle = (first + end) // 2
            half = numbered.where(f"{_NUMBER} >= {first} AND {_NUMBER} < {middle}")
            found = error_of(half.drop(_NUMBER))
            first, end, error = (middle, end, error) if found is None else (first, middle, found)
        row = numbered.where(f"{_NUMBER} = {first}").select(row_text(one.columns), STEP).first()
        assert row is not None, "one is left"
        return FailingRow(one.views, row[0], row[1], error)
    finally:
        numbered.unpersist()
