"""Rows that are compared with one value: of those from before it is enough to have what lies between the
values that went and those that came."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StructField,
    StructType,
    TimestampNTZType,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "sql"))
from sql_builders import project

from lockstep.sql.circuit import columns_read
from lockstep.sql.incremental import build_circuit
from lockstep.sql.plans.nodes import Expression, MultiwayJoin, Scan
from lockstep.sql.plans.thresholds import Threshold, threshold
from lockstep_engine.deltas import FIRST, STEP, WEIGHT
from lockstep_engine.local.join import joined
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.thresholds import between_thresholds

A, B = Scan("a", ("k", "x")), Scan("b", ("y",))


def product(*conditions: str, swaps: bool = False) -> MultiwayJoin:
    tree = [Expression(c, tuple(n for n in "kxy" if f"`{n}`" in c)) for c in conditions]
    return MultiwayJoin((B, A) if swaps else (A, B), (), tuple(tree))


@pytest.mark.parametrize(
    ("node", "read", "expected"),
    [
        (product("`x` > `y`"), "kx", Threshold("y", 0, "x")),
        (product("`y` <= `x`"), "k", Threshold("y", 0, "x")),
        (product("`x` > `y`", "`k` > 3"), "k", Threshold("y", 0, "x")),
        (product("`x` > `y`"), "ky", None),
        (product("`x` > `y`", "`k` <> `y`"), "k", None),
        (product("`x` > `y` + 1"), "k", None),
        (product("`x` IN (`y`, 3)"), "k", None),
        (product(), "k", None),
    ],
)
def test_what_is_a_threshold(node: MultiwayJoin, read: str, expected: Threshold | None) -> None:
    assert threshold(node, 1, read) == expected


def rows(of: list[Any], kinds: dict[str, DataType], *more: str) -> Rows:
    fields = [StructField(name, kind) for name, kind in kinds.items()]
    fields += [StructField(name, LongType()) for name in (WEIGHT, *more)]
    schema = StructType(fields)
    columns = list(zip(*of, strict=True)) if of else [()] * len(fields)
    arrays = [pa.array(list(c)) for c in columns]
    made = [a.cast(to_arrow_type(f.dataType)) for a, f in zip(arrays, fields, strict=True)]
    return Rows.of(pa.table(made, names=schema.names), schema)


def net(delta: Rows) -> Counter[tuple[Any, ...]]:
    """By key and step, as whoever leaves out the value sees it."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in delta.table.to_pylist():
        found[row["k"], row["x"], row[STEP]] += row[WEIGHT]
    return Counter({key: weight for key, weight in found.items() if weight})


WIDE, FINE = DecimalType(36, 2), DecimalType(38, 6)
KINDS = st.sampled_from(
    [
        (IntegerType(), LongType()),
        (LongType(), DecimalType(20, 3)),
        (WIDE, FINE),
        (DecimalType(38, 0), DecimalType(38, 30)),
        (DecimalType(9, 3), IntegerType()),
        (DateType(), DateType()),
        (TimestampNTZType(), TimestampNTZType()),
    ]
)
VALUES = st.integers(-2000, 2000)


def as_kind(value: int, kind: DataType) -> Any:
    if isinstance(kind, DecimalType):
        return Decimal(value).scaleb(-min(kind.scale, 2))
    if isinstance(kind, DateType):
        return date(2020, 1, 1) + timedelta(days=value // 50)
    if isinstance(kind, TimestampNTZType):
        return datetime(2020, 1, 1) + timedelta(seconds=value // 50)
    return value // 100


@given(
    kinds=KINDS,
    sign=st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]),
    held=st.lists(VALUES, max_size=30),
    first=VALUES,
    later=st.lists(st.tuples(VALUES, st.integers(0, 3)), min_size=1, max_size=4),
    changed=st.lists(st.tuples(VALUES, st.integers(0, 3)), max_size=3),
    swaps=st.booleans(),
)
def test_what_is_left_out_would_not_be_seen(
    kinds: tuple[DataType, DataType],
    sign: str,
    held: list[int],
    first: int,
    later: list[tuple[int, int]],
    changed: list[tuple[int, int]],
    swaps: bool,
) -> None:
    """A value that changes at some steps, beside rows that do."""
    of_a, of_b = {"k": LongType(), "x": kinds[0]}, {"y": kinds[1]}
    before_a = rows([(n, as_kind(x, kinds[0]), 1 + n % 2) for n, x in enumerate(held)], of_a)
    before_b = rows([(as_kind(first, kinds[1]), 1)], of_b)
    values = [first, *(value for value, _ in sorted(later, key=lambda one: one[1]))]
    steps = sorted(step for _, step in later)
    delta_b = [
        (as_kind(value, kinds[1]), weight, step)
        for old, new, step in zip(values, values[1:], steps, strict=False)
        for value, weight in ((old, -1), (new, 1))
    ]
    delta_a = [(100 + n, as_kind(x, kinds[0]), 1, step) for n, (x, step) in enumerate(changed)]
    node = product(f"`x` {sign} `y`", swaps=swaps)
    a, b = (1, 0) if swaps else (0, 1)
    changes = {b: rows(delta_b, of_b, STEP)}
    if changed:
        changes[a] = rows(delta_a, of_a, STEP)
    before = {a: before_a, b: before_b}
    near = between_thresholds(node, changes, before, ("k", "x"))
    assert len(near[a]) <= len(held)
    found = []
    for sides in (before, near):
        with_steps = {n: one.with_number(STEP, FIRST - 1) for n, one in sides.items()}
        delta = joined(node, changes, with_steps)
        assert delta is not None
        sifted = delta.without_those_left_out()
        assert not sifted.conditions, "evaluated here"
        found.append(net(sifted.rows))
    assert found[0] == found[1]


def test_floating_point_is_compared_by_spark() -> None:
    before = {0: rows([(1, 5.0, 1)], {"k": LongType(), "x": DoubleType()})}
    changes = {1: rows([(1.0, -1, 0), (2.0, 1, 0)], {"y": DoubleType()}, STEP)}
    near = between_thresholds(product("`x` > `y`"), changes, before, ("k", "x"))
    assert len(near[0]) == 1


def test_rows_beyond_are_not_combined() -> None:
    of_a, of_b = {"k": LongType(), "x": LongType()}, {"y": LongType()}
    before = {0: rows([(n, n, 1) for n in range(1000)], of_a), 1: rows([(500, 1)], of_b)}
    changes = {1: rows([(500, -1, 0), (503, 1, 0)], of_b, STEP)}
    near = between_thresholds(product("`x` > `y`"), changes, before, ("k", "x"))
    assert near[0].table["x"].to_pylist() == [500, 501, 502, 503]


@pytest.mark.parametrize(
    "changes",
    [[(503, 1, 0)], [(500, -1, 0), (503, 1, 1)], [(500, -1, 0), (None, 1, 0)]],
    ids=["one comes", "at another step", "null"],
)
def test_all_rows_count_where_values_only_come_or_go(changes: list[Any]) -> None:
    of_a, of_b = {"k": LongType(), "x": LongType()}, {"y": LongType()}
    before = {0: rows([(n, n, 1) for n in range(1000)], of_a), 1: rows([(500, 1)], of_b)}
    near = between_thresholds(
        product("`x` > `y`"), {1: rows(changes, of_b, STEP)}, before, ("k", "x")
    )
    assert len(near[0]) == 1000


def test_who_reads_what_of_a_join() -> None:
    """Of a view's own rows all columns count, and of what others than projections read."""
    sql = "CREATE MATERIALIZED VIEW found AS SELECT a FROM t WHERE b > (SELECT max(b) FROM t AS u);"
    circuit = build_circuit(project(sql))
    operators = {one.ref: one for one in circuit.operators}
    [join] = [one for one in circuit.operators if isinstance(one.node, MultiwayJoin)]
    assert columns_read(operators, join) == {"a"}
    published = circuit.outboxes[0].ref
    assert columns_read(operators, operators[published]) == set(operators[published].node.columns)
