"""Joins with what an aggregate makes: its rows of before are read off its own trace, by the interval's
own process and by Spark, and the join keeps none of them."""

from __future__ import annotations

import random
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from intervals import Runner, as_frame, changes_of
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[1] / "sql"))
from sql_builders import project

from lockstep.sql.circuit import Circuit, TraceKind
from lockstep.sql.incremental import build_circuit
from lockstep.sql.plans.nodes import MultiwayJoin
from lockstep_engine import touched

SOURCE = """
CREATE TABLE t (a INT, b SMALLINT, p DECIMAL(10, 2), x DOUBLE) USING kafka OPTIONS
  ('kafka.bootstrap.servers' = 'b', subscribe = 't', format = 'debezium');
CREATE TABLE u (a INT, d BIGINT) USING kafka OPTIONS
  ('kafka.bootstrap.servers' = 'b', subscribe = 'u', format = 'debezium');
"""
SCHEMAS = {
    "t": pa.schema(
        [("a", pa.int32()), ("b", pa.int16()), ("p", pa.decimal128(10, 2)), ("x", pa.float64())]
    ),
    "u": pa.schema([("a", pa.int32()), ("d", pa.int64())]),
}
SHARED = {
    "sums": "SELECT u.d, g.* FROM u JOIN (SELECT a, count(*) AS n, sum(p) AS s, avg(p) AS m, sum(b) AS "
    "k, avg(b) AS l FROM t GROUP BY a) g ON u.a = g.a",
    "of what is computed": "SELECT u.d, g.s FROM u JOIN (SELECT a, sum(p * b) AS s, sum(b + 1) AS k "
    "FROM t GROUP BY a HAVING sum(p * b) > 0) g ON u.a = g.a AND u.d < g.k",
    "by one of two keys": "SELECT u.d, g.* FROM u LEFT JOIN (SELECT a, p, sum(b) AS s FROM t "
    "GROUP BY a, p) g ON u.a = g.a",
    "distinct": "SELECT a, d FROM u WHERE a IN (SELECT a FROM t WHERE b > 0)",
    "of all rows": "SELECT a, d FROM u WHERE d > (SELECT avg(b) FROM t)",
    "of no rows": "SELECT a, d, (SELECT sum(p) FROM t WHERE b > 99) AS s FROM u",
    "counts of all": "SELECT a, d FROM u WHERE d < (SELECT count(*) FROM t WHERE b > 1)",
    "both sides": "SELECT f.a, f.n, g.s FROM (SELECT a, count(d) AS n FROM u GROUP BY a) f "
    "FULL JOIN (SELECT a, sum(p) AS s FROM t GROUP BY a) g ON f.a = g.a",
}
KEPT = {
    "sums of doubles": "SELECT u.d, g.s FROM u JOIN (SELECT a, sum(x) AS s FROM t GROUP BY a) g "
    "ON u.a = g.a",
    "by a value": "SELECT u.a, g.a AS other FROM u JOIN (SELECT a, sum(b) AS s FROM t GROUP BY a) g "
    "ON u.d = g.s",
    "ends": "SELECT u.d, g.s FROM u JOIN (SELECT a, max(b) AS s FROM t GROUP BY a) g ON u.a = g.a",
    "by a narrow key": "SELECT u.d, g.n FROM u JOIN (SELECT b, count(*) AS n FROM t GROUP BY b) g "
    "ON u.a = g.b",
    "without a key": "SELECT u.d, g.s FROM u JOIN (SELECT a, sum(b) AS s FROM t GROUP BY a) g "
    "ON u.d > g.s",
}
"""Where the join keeps the rows itself: other types, another key, or none."""


def circuit(sql: str) -> Circuit:
    return build_circuit(project(f"CREATE MATERIALIZED VIEW w AS {sql}", sources=SOURCE))


def test_who_keeps_what() -> None:
    """No trace of rows is of an aggregate's, where its own trace has them."""
    for sql, is_shared in [(q, True) for q in SHARED.values()] + [
        (q, False) for q in KEPT.values()
    ]:
        found = circuit(sql)
        joins = [one for one in found.operators if isinstance(one.node, MultiwayJoin)]
        of_groups = [t for one in joins for t in one.groups if t is not None]
        assert bool(of_groups) == is_shared, sql
        assert all(trace.kind is TraceKind.ACCUMULATORS for trace in of_groups)
        assert {trace.table for trace in of_groups} <= {trace.table for trace in found.traces}


def rows_of(rng: random.Random, name: str) -> tuple[Any, ...]:
    if name == "u":
        return rng.choice([None, 1, 2, 3]), rng.randint(-3, 4)
    return (
        rng.choice([None, 1, 2, 3]),
        rng.choice([None, -1, 1, 2, 3]),
        rng.choice([None, Decimal("0.01"), Decimal("99999999.99"), Decimal("-7.35")]),
        rng.choice([None, 0.5, -1e300, 0.1]),
    )


def table_of(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [[] for _ in schema]
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )


def expected(spark: SparkSession, sql: str, held: dict[str, Counter[Any]]) -> Counter[str]:
    for name, schema in SCHEMAS.items():
        rows = table_of(list(held[name].elements()), schema)
        spark.createDataFrame(rows, None if len(rows) else _ddl(schema)).createOrReplaceTempView(
            name
        )
    return Counter(repr(tuple(row)) for row in spark.sql(sql).collect())


def _ddl(schema: pa.Schema) -> str:
    kinds = {"int32": "int", "int16": "smallint", "int64": "bigint", "double": "double"}
    return ", ".join(f"{f.name} {kinds.get(str(f.type), 'decimal(10,2)')}" for f in schema)


@pytest.mark.spark
@pytest.mark.parametrize("is_here", [False, True], ids=["by Spark", "here"])
@pytest.mark.parametrize("name", [*SHARED, *KEPT])
def test_a_view_is_what_spark_says(
    spark: SparkSession, name: str, is_here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over intervals in which one side changes, or the other, or both at several steps, or all rows
    that are there go. Traces are merged in every other case, by Spark and here."""
    sql = {**SHARED, **KEPT}[name]
    merges = is_here != bool([*SHARED, *KEPT].index(name) % 2)
    reader = "groups_held" if is_here else "groups_before"
    read, times = getattr(touched, reader), list[int]()

    def noted(*about: Any) -> Any:
        times.append(1)
        return read(*about)

    monkeypatch.setattr(touched, reader, noted)
    runner = Runner(spark, circuit(sql), merges_traces=merges, is_here=is_here)
    rng, step = random.Random(name), 0
    held: dict[str, Counter[Any]] = {"t": Counter(), "u": Counter()}
    found = Counter[str]()
    plan = ["u", "t", "tu", "u", "t all", "u", "tu", "t"]
    for number, what in enumerate(plan):
        last = step + (2 if "tu" in what else 0)
        deltas = {}
        for source, schema in SCHEMAS.items():
            changed = list[tuple[Any, ...]]()
            if source in what:
                for row in [] if "all" not in what else list(held[source].elements()):
                    changed.append((*row, -1, last))
                    held[source][row] -= 1
                for _ in range(0 if "all" in what else 4):
                    there = list(held[source].elements())
                    gone = rng.random() < 0.4 and there
                    row = rng.choice(there) if gone else rows_of(rng, source)
                    changed.append((*row, -1 if gone else 1, rng.randint(step, last)))
                    held[source][row] += -1 if gone else 1
            changed.sort(key=lambda row: (row[-1], -row[-2]))
            full = schema.append(pa.field("_weight", pa.int64())).append(
                pa.field("_step", pa.int64())
            )
            deltas[source] = as_frame(spark, table_of(changed, full))
        is_last = number == len(plan) - 1
        outputs = runner.run(deltas, (step, last), 20, is_last)
        step = last + 1
        for row, weight, _ in changes_of(outputs["w"]):
            found[repr(row)] += weight
        found = Counter({row: count for row, count in found.items() if count})
        assert found == expected(spark, sql, held), f"after interval {number}, {what}"
    assert bool(times) == (name in SHARED), "who has read the groups"
