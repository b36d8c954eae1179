"""Of rows that are compared with one value those that lie between what it was and what it is.

With S the rows from before and Δb a change of values whose weights add up to nothing, a row of S that is
below all of them, or above, is combined with as much as is taken back: nothing is left of it, if nobody
reads the value (`lockstep.sql.plans.thresholds`).
"""

from __future__ import annotations

import decimal
from collections.abc import Collection, Mapping
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    IntegralType,
    TimestampNTZType,
    TimestampType,
)

from lockstep.sql.plans.nodes import MultiwayJoin
from lockstep.sql.plans.thresholds import threshold
from lockstep_engine.deltas import STEP, WEIGHT
from lockstep_engine.local.numbers import decimal_of_both
from lockstep_engine.local.rows import Rows

__all__ = ["between_thresholds"]

_TIMES = (DateType, TimestampNTZType, TimestampType)
_MOST_DIGITS = 80
"""More than two decimals have together."""


def between_thresholds(
    node: MultiwayJoin,
    changes: Mapping[int, Rows],
    before: Mapping[int, Rows],
    read: Collection[str],
) -> Mapping[int, Rows]:
    """What was there before of the join's inputs, without what its change would not show; `read` are the
    columns that somebody reads of it."""
    found = dict(before)
    for place, change in changes.items():
        one = threshold(node, place, read)
        if one is None or one.other not in before or not _is_balanced(change, one.bound):
            continue
        rows = before[one.other]
        kinds = rows.schema[one.compared].dataType, change.schema[one.bound].dataType
        ends = _ends(change.table[one.bound], *kinds)
        if ends is not None:
            column, (low, high) = rows.table[one.compared], ends
            inside = pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))
            found[one.other] = rows.where(inside)
    return found


def _is_balanced(change: Rows, bound: str) -> bool:
    """Whether as many values come as go at each step, none of them null, which is not compared."""
    steps, weights = (change.table[name].to_numpy() for name in (STEP, WEIGHT))
    _, of = np.unique(steps, return_inverse=True)
    sums = np.zeros(len(steps), np.int64)
    np.add.at(sums, of, weights)
    return not change.table[bound].null_count and not sums.any()


def _ends(
    values: pa.ChunkedArray, kind: DataType, of_values: DataType
) -> tuple[pa.Scalar, pa.Scalar] | None:
    """Values of `kind` between which all lie that are compared with some of `values` in another way than
    with others, at least; None where that cannot be said."""
    ends = pc.min_max(values)
    if kind == of_values and isinstance(kind, _TIMES):
        return ends["min"], ends["max"]
    if not all(isinstance(one, IntegralType | DecimalType) for one in (kind, of_values)):
        return None
    digits = _digits(kind), _digits(of_values)
    common = decimal_of_both(*digits)
    # Where they had too many digits they are compared without the last ones, rounded.
    is_rounded = common.scale < max(scale for _, scale in digits)
    slack = Decimal(1).scaleb(-common.scale) if is_rounded else Decimal(0)
    unit = Decimal(1).scaleb(-digits[0][1])
    with decimal.localcontext(prec=_MOST_DIGITS):
        low = (Decimal(ends["min"].as_py()) - slack).quantize(unit, decimal.ROUND_FLOOR)
        high = (Decimal(ends["max"].as_py()) + slack).quantize(unit, decimal.ROUND_CEILING)
    try:
        return _scalar(low, kind), _scalar(high, kind)
    except (pa.ArrowInvalid, OverflowError):
        return None


def _digits(kind: DataType) -> tuple[int, int]:
    """Precision and scale, of whole numbers as those of bigint."""
    return (kind.precision, kind.scale) if isinstance(kind, DecimalType) else (20, 0)


def _scalar(value: Decimal, kind: DataType) -> pa.Scalar:
    return pa.scalar(value if isinstance(kind, DecimalType) else int(value), to_arrow_type(kind))
