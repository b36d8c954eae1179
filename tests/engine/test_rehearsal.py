"""Which circuits this process can work out by itself, by the types of their sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from circuits import circuit_of
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lockstep_engine.local import rehearsal
from lockstep_engine.local.rehearsal import can_be_worked_out

TYPES: Mapping[str, DataType] = {
    "i": IntegerType(),
    "n": LongType(),
    "d": DoubleType(),
    "m": DecimalType(10, 2),
    "s": StringType(),
    "at": TimestampType(),
    "many": ArrayType(StringType()),
}
DECLARED = StructType([StructField(name, kind) for name, kind in TYPES.items()])
SOURCES = "".join(
    f"CREATE TABLE {name} ({', '.join(f'{c} {t.simpleString()}' for c, t in TYPES.items())}) USING "
    f"kafka OPTIONS ('kafka.bootstrap.servers' = 'h:1', subscribe = '{name}');\n"
    for name in ("t", "u")
)
SCALARS = {name: kind for name, kind in TYPES.items() if name != "many"}
KEYED = f"""\
CREATE TABLE k ({", ".join(f"{c} {t.simpleString()}" for c, t in SCALARS.items())}) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = 'h:1', subscribe = 'k', format = 'upsert', key = '{{key}}');
"""
DECLARED_KEYED = (
    StructType([DECLARED[name] for name in SCALARS])
    .add("_partition", IntegerType())
    .add("_offset", LongType())
    .add("_deleted", BooleanType())
)


def is_worked_out(query: str, key: str = "s") -> bool:
    text = f"{SOURCES}{KEYED.format(key=key)}CREATE MATERIALIZED VIEW v AS {query};"
    circuit = circuit_of(text)
    return can_be_worked_out(circuit, {"t": DECLARED, "u": DECLARED, "k": DECLARED_KEYED})


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM (SELECT i, s, at FROM t)",
        "SELECT n % 7 AS n, date_format(at, 'yyyy') AS y, d FROM t WHERE i > 3 AND s LIKE 'a%'",
        "SELECT m * 0.5 AS half FROM t",
        "SELECT s, count(*) AS c, sum(n) AS n, max(m) AS m, avg(i) AS a, min(d) AS d FROM t GROUP BY s",
        "SELECT s, sum(d) AS d, avg(m) AS a FROM t GROUP BY s",
        "SELECT count(DISTINCT n) AS c, i FROM t GROUP BY i",
        "SELECT DISTINCT i, s FROM t",
        "SELECT t.n, u.d FROM t JOIN u ON t.s = u.s AND t.i = u.i WHERE t.at > u.at - INTERVAL 1 HOUR",
        "SELECT i FROM t UNION ALL SELECT i FROM u",
        "SELECT s, i, r FROM (SELECT *, row_number() OVER (PARTITION BY s ORDER BY d DESC) AS r "
        "FROM (SELECT s, i, d FROM t)) WHERE r < 4",
        "SELECT i, rank() OVER (PARTITION BY s ORDER BY n) AS r FROM (SELECT i, s, n FROM t)",
        "SELECT i, avg(m) OVER (PARTITION BY s ORDER BY at ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) "
        "AS a, lag(d) OVER (PARTITION BY s ORDER BY at) AS b FROM (SELECT i, s, at, m, d FROM t)",
        "SELECT window(at, '10 seconds').end AS e, n FROM t",
        "SELECT i FROM t UNION ALL SELECT * FROM VALUES (1)",
        "SELECT i, name FROM t JOIN (VALUES (1, 'one'), (2, 'two')) AS v (n, name) ON i % 7 = v.n",
        "SELECT window(at, '10 seconds') AS w, n FROM t",
        "SELECT upper(s) AS s, d * 2 AS d, i / 2 AS h FROM t WHERE d > 0.5",
        "SELECT t.i, u.d FROM t LEFT JOIN u ON t.i = u.n",
        "SELECT t.i, t.s, u.d FROM t FULL JOIN u ON t.i = u.i",
        "SELECT i FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.n = t.n)",
        "SELECT i FROM t WHERE n IN (SELECT n FROM u)",
        "SELECT s, session_window(at, '5 seconds').end AS e, count(*) AS n, max(d) AS d FROM t "
        "GROUP BY s, session_window(at, '5 seconds')",
        "SELECT window(at, '10 seconds').start AS b, count(*) AS c FROM t "
        "GROUP BY window(at, '10 seconds')",
        "SELECT window(at, '10 seconds', '2 seconds') AS w, i, count(DISTINCT s) AS c, max(n) AS n "
        "FROM t GROUP BY window(at, '10 seconds', '2 seconds'), i",
        "SELECT count(*) AS c, sum(n) AS n, avg(d) AS d, max(m) AS m FROM t",
        "SELECT i FROM t WHERE n > (SELECT avg(n) FROM u)",
    ],
)
def test_what_is(query: str) -> None:
    assert is_worked_out(query)


@pytest.mark.parametrize(
    ("query", "key", "is_known"),
    [
        ("SELECT s, i, at FROM k", "s, i", True),
        ("SELECT t.n, k.m FROM t JOIN k ON t.s = k.s", "s", True),
        ("SELECT i, count(*) AS c, max(d) AS d FROM k GROUP BY i", "n", True),
        ("SELECT d, i FROM k", "d", False),
    ],
)
def test_of_keyed_tables(query: str, key: str, is_known: bool) -> None:
    assert is_worked_out(query, key) == is_known


@pytest.mark.parametrize(
    "query",
    [
        "SELECT initcap(s) AS s FROM t",
        "SELECT sqrt(d) AS d FROM t",
        "SELECT i FROM t WHERE d > m",
        "SELECT i FROM t WHERE at > DATE '2026-01-01'",
        "SELECT d, count(*) AS c FROM t GROUP BY d",
        "SELECT s, median(n) AS m FROM t GROUP BY s",
        "SELECT t.i FROM t JOIN u ON t.d = u.d",
        "SELECT t.i FROM t JOIN u ON t.i = u.i WHERE t.d > u.m",
        "SELECT t.i FROM t LEFT JOIN u ON t.d = u.d",
        "SELECT s, session_window(at, '5 seconds').end AS e, median(n) AS m FROM t "
        "GROUP BY s, session_window(at, '5 seconds')",
        "SELECT i, many FROM t",
        "SELECT window(at, '10 seconds', '2 seconds').start AS b, n FROM t",
        "SELECT window(at, '10 seconds', '2 seconds') AS w, max(d) AS d "
        "FROM t GROUP BY window(at, '10 seconds', '2 seconds')",
        "SELECT i FROM t UNION ALL SELECT n FROM u",
        "SELECT i, s, r FROM (SELECT *, row_number() OVER (PARTITION BY s) AS r "
        "FROM (SELECT i, s FROM t)) WHERE r < 4",
        "SELECT i, ntile(2) OVER (PARTITION BY s ORDER BY n) AS r FROM t",
        "SELECT i, sum(d) OVER (PARTITION BY s ORDER BY n) AS r FROM t",
        "SELECT i, avg(x) OVER (ORDER BY n) AS r "
        "FROM (SELECT i, n, CAST(m AS DECIMAL(20, 2)) AS x FROM t)",
        "SELECT i FROM t UNION ALL SELECT * FROM VALUES (1L)",
        "SELECT i FROM t UNION ALL SELECT * FROM VALUES (1), (2L)",
    ],
)
def test_what_is_left_to_spark(query: str) -> None:
    assert not is_worked_out(query)


def test_a_circuit_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    once = rehearsal._tried

    def noted(operator: Any, *others: Any) -> Any:
        tried.append(operator.ref)
        return once(operator, *others)

    monkeypatch.setattr(rehearsal, "_tried", noted)
    assert is_worked_out("SELECT i AS tried_once, n + 1 AS more FROM t")
    assert not is_worked_out("SELECT i AS left_to_spark, many FROM t")
    of_both = len(tried)
    assert of_both
    assert is_worked_out("SELECT i AS tried_once, n + 1 AS more FROM t")
    assert not is_worked_out("SELECT i AS left_to_spark, many FROM t")
    assert len(tried) == of_both
    assert is_worked_out("SELECT i AS tried_as_well FROM t")
    assert len(tried) > of_both
