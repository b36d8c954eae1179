"""A plan over a table of every type, interval by interval, against batch Spark SQL on the same rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from intervals import Interval, Runner, changes_of, circuit_of, up_to
from pyspark.sql import SparkSession

from lockstep.sql.plans.nodes import AggregateCall, AggregateFunction, Node, Scan
from lockstep.zset import ZSet
from lockstep_engine.context import LARGE_STATE

__all__ = [
    "CHANGES",
    "NOON",
    "TABLE",
    "TYPES",
    "Change",
    "Row",
    "calls",
    "check_like_batch",
    "frame",
    "row",
    "run",
    "sql",
]

TYPES = {
    "k": "string",
    "g": "double",
    "tiny": "tinyint",
    "small": "smallint",
    "i": "int",
    "x": "bigint",
    "y": "decimal(10,2)",
    "z": "decimal(38,18)",
    "f": "double",
    "e": "float",
    "n": "string",
    "d": "date",
    "ts": "timestamp",
    "b": "boolean",
}
NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
Row = tuple[Any, ...]
Change = tuple[Row, int, int]


def row(k: str | None, g: float | None, number: int | None, second: float = 0) -> Row:
    """A row of the test table whose values all follow from one number; None makes them null."""
    if number is None:
        return (k, g, *[None] * 12)
    tenth = Decimal(number) / 10
    return (
        k,
        g,
        number,
        number,
        number,
        number,
        tenth,
        tenth / 7 // Decimal("1e-18") * Decimal("1e-18"),
        number / 8,
        number / 4,
        str(number),
        dt.date(2024, 1, 1) + dt.timedelta(days=number),
        NOON + dt.timedelta(seconds=second),
        number > 3,
    )


CHANGES: list[Change] = [
    (row("a", 1.0, 1), 1, 1),
    (row("a", 1.0, 9, 3.5), 3, 1),
    (row("a", 1.0, 5, 4), 1, 2),
    (row(None, float("nan"), 7, 7), 2, 2),
    (row("b", -0.0, None), 1, 2),
    (row("b", 0.0, 6, 11), 1, 3),
    (row("a", 1.0, 9, 3.5), -3, 4),
    (row(None, -float("nan"), 7, 7), -1, 4),
    (row("c", None, -4, 12), 1, 5),
    (row("c", None, -4, 12), -1, 6),
    (row("b", 0.0, -6, 13), 1, 6),
]
INTERVALS: list[Interval] = [(1, 3), (4, 6)]
TABLE = Scan("t", tuple(TYPES))


def frame(spark: SparkSession, rows: Sequence[Row], types: dict[str, str]) -> Any:
    schema = ", ".join(f"{name} {kind}" for name, kind in types.items())
    return spark.createDataFrame(list(rows), schema)


def run(
    spark: SparkSession,
    plan: Node,
    changes: Sequence[Change] = CHANGES,
    intervals: Sequence[Interval] = INTERVALS,
    types: dict[str, str] = TYPES,
    merges_traces: bool = False,
    records: int | None = None,
    large_state: int = LARGE_STATE,
) -> pa.Table:
    """All that the plan emits on source `t`, which may retract; `records` is how large it takes each
    interval to be, in place of what there is."""
    runner = Runner(spark, circuit_of(plan, frozenset()), merges_traces, large_state)
    everything = {**types, "_weight": "bigint", "_step": "bigint"}
    tables = []
    for first, last in intervals:
        rows = [(*row, weight, step) for row, weight, step in changes if first <= step <= last]
        delta = frame(spark, rows, everything)
        count = len(rows) if records is None else records
        is_last = (first, last) == intervals[-1]
        tables.append(runner.run({"t": delta}, (first, last), count, is_last)["root"])
    return pa.concat_tables(tables)


def check_like_batch(
    spark: SparkSession,
    plan: Node,
    query: str,
    changes: Sequence[Change] = CHANGES,
    records: int | None = None,
    large_state: int = LARGE_STATE,
) -> None:
    """After the last step the plan has the rows of the query over `t`, in columns of its types."""
    emitted = run(spark, plan, changes, records=records, large_state=large_state)
    rows = [row for row, weight in ZSet((r, w) for r, w, _ in changes) for _ in range(weight)]
    frame(spark, rows, TYPES).createOrReplaceTempView("t")
    batch = spark.sql(query).toArrow()
    assert emitted.column_names == [*plan.columns, "_weight", "_step"]
    found = {name: str(emitted.schema.field(name).type) for name in plan.columns}
    assert found == {name: str(batch.schema.field(name).type) for name in plan.columns}
    expected = ZSet.of_rows(zip(*(batch[name].to_pylist() for name in plan.columns), strict=True))
    assert up_to(changes_of(emitted), 1 << 60) - expected == ZSet()


def calls(*texts: str) -> tuple[AggregateCall, ...]:
    """Calls such as 'sum x' and 'count', named sum_x and count_rows."""
    made = []
    for text in texts:
        function, _, argument = text.partition(" ")
        name = f"{function}_{argument or 'rows'}"
        made.append(AggregateCall(name, AggregateFunction(function), argument or None))
    return tuple(made)


def sql(aggregates: Sequence[AggregateCall]) -> str:
    return ", ".join(
        f"{call.function.value}({call.argument or '*'}) AS {call.name}" for call in aggregates
    )
