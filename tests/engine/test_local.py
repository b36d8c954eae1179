"""Operators over rows that this process has: what Spark would make of them, or nothing."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import DoubleType, LongType, NullType, StringType, StructType

from lockstep.sql.circuit import Cost, Operator
from lockstep.sql.plans.nodes import Equality, Expression, MultiwayJoin, Scan, TimeWindow, UnionAll
from lockstep_engine.local import linear, values
from lockstep_engine.local.accumulators import lifted, merged, running
from lockstep_engine.local.changes import consolidated, is_netted, netted, periods
from lockstep_engine.local.exact_sums import Bins, binned
from lockstep_engine.local.join import joined
from lockstep_engine.local.linear import Sifted, base, rows_through
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.union import united
from lockstep_engine.local.values import (
    Unlike,
    added,
    grouped,
    has_order,
    is_exact,
    is_key,
    numbered,
    ranked,
)
from lockstep_engine.operators.accumulators import Accumulator

NAMES = ("ab", "cd", "ef")
T, U, V = (Scan(name, tuple(columns)) for name, columns in zip("tuv", NAMES, strict=True))
JOIN = MultiwayJoin((T, U, V), (Equality("a", "c"), Equality("d", "e", null_safe=True)))
Found = Counter[tuple[tuple[Any, ...], int]]


FEW_STEPS, MANY_STEPS = 3, 12


def some_rows(
    random: np.random.Generator, place: int, is_change: bool, last: int = FEW_STEPS
) -> Rows:
    """A few rows of an input, some of whose values are null; `a`, `b`, `c`, `f` are whole numbers."""
    count = int(random.integers(0, max(2 * last, 6)))
    columns: dict[str, pa.Array] = {}
    for name in NAMES[place]:
        values, is_null = random.integers(0, 4, count), random.random(count) < 0.2
        if name in "de":
            columns[name] = pa.array([str(v) for v in values], pa.string(), mask=is_null)
        else:
            columns[name] = pa.array(
                values, pa.int64() if name == "a" else pa.int32(), mask=is_null
            )
    weights = random.choice([1, 1, 2, -1], count) if is_change else np.ones(count, np.int64)
    steps = random.integers(0, last, count) if is_change else np.full(count, -1)
    return Rows.of(pa.table({**columns, "_weight": weights, "_step": steps}))


def combinations(sides: list[list[dict[str, Any]]]) -> Found:
    """All that are equal, by the definition."""
    found: Found = Counter()
    for combination in product(*sides):
        row = {name: value for one in combination for name, value in one.items()}
        weight = int(np.prod([one["_weight"] for one in combination]))
        is_one = row["a"] is not None and row["a"] == row["c"] and row["d"] == row["e"]
        step = max(one["_step"] for one in combination)
        if is_one and step >= 0:
            found[tuple(row[name] for name in JOIN.columns), step] += weight
    return Counter({key: weight for key, weight in found.items() if weight})


@pytest.mark.parametrize("steps", [1, FEW_STEPS, MANY_STEPS])
@pytest.mark.parametrize("seed", range(60))
def test_a_join_is_all_that_is_equal(seed: int, steps: int) -> None:
    random = np.random.default_rng(seed)
    changed = [n for n in range(3) if random.random() < 0.7] or [int(random.integers(3))]
    changes = {n: some_rows(random, n, is_change=True, last=steps) for n in changed}
    before = {
        n: some_rows(random, n, is_change=False)
        for n in range(3)
        if n not in changes or random.random() < 0.8
    }
    made = joined(JOIN, changes, before)
    sides = [
        [row for of in (before, changes) if n in of for row in of[n].table.to_pylist()]
        for n in range(3)
    ]
    found: Found = Counter()
    for row in [] if made is None else made.rows.table.to_pylist():
        found[tuple(row[name] for name in JOIN.columns), row["_step"]] += row["_weight"]
    assert {key: weight for key, weight in found.items() if weight} == combinations(sides)


def rows_of(**columns: Any) -> Rows:
    count = len(next(iter(columns.values())))
    ones = {"_weight": [1] * count, "_step": [0] * count}
    return Rows.of(pa.table({**columns, **ones}))


def changing(key: int, steps: int, values: str) -> Rows:
    """The row of a key, another one at each step."""
    came = {"_step": np.arange(steps), values: np.arange(steps), "_weight": np.ones(steps, int)}
    gone = {**came, "_step": came["_step"] + 1, "_weight": -came["_weight"]}
    rows = pa.concat_tables([pa.table(came), pa.table(gone)])
    keys = pa.array(np.full(len(rows), key))
    return Rows.of(rows.append_column("a" if values == "b" else "c", keys))


def test_what_has_been_taken_back_long_before_is_not_met() -> None:
    node = MultiwayJoin((T, U), (Equality("a", "c"),))
    made = joined(node, {0: changing(7, 2000, "b"), 1: changing(7, 2000, "d")}, {})
    assert made is not None, "four million pairs of changes, of which hardly any is there"
    found = consolidated(made.rows, node.columns).table.to_pylist()
    came = {(row["b"], row["d"], row["_step"]) for row in found if row["_weight"] == 1}
    gone = {(row["b"], row["d"], row["_step"]) for row in found if row["_weight"] == -1}
    assert came == {(step, step, step) for step in range(2000)}
    assert gone == {(step, step, step + 1) for step in range(2000)}
    assert len(found) == 4000


def test_rows_are_there_from_a_change_to_the_next_as_their_bits_say() -> None:
    rows = pa.table(
        {
            "x": [0.0, -0.0, 0.0, 0.0, float("nan"), float("nan"), None, None, None],
            "_weight": [1, 1, 2, -3, 1, -1, 1, -1, 5],
            "_step": [2, 0, 4, 6, 3, 3, -1, 1, 7],
        }
    )
    found = periods(rows, ["x"]).to_pylist()
    assert sorted((str(r["x"]), r["_weight"], r["_step"], min(r["_until"], 99)) for r in found) == [
        ("-0.0", 1, 0, 99),
        ("0.0", 1, 2, 4),
        ("0.0", 3, 4, 6),
        ("None", 1, -1, 1),
        ("None", 5, 7, 99),
    ]
    assert not len(periods(rows.slice(4, 2), ["x"]))
    assert not len(periods(rows.slice(0, 0), ["x"]))


def test_conditions_are_left_to_spark() -> None:
    condition = Expression("`b` < `d`", ("b", "d"))
    node = MultiwayJoin((T, U), (Equality("a", "c"),), (condition,))
    made = joined(node, {0: rows_of(a=[1], b=[1])}, {1: rows_of(c=[1, 1, 2], d=[0, 2, 2])})
    assert made is not None
    assert made.conditions == (condition,)
    assert len(made.rows) == 2


def test_what_is_equal_otherwise_in_spark_is_left_to_it() -> None:
    node = MultiwayJoin((T, U), (Equality("a", "c"),))
    sides = {0: rows_of(a=[0.0], b=[1])}, {1: rows_of(c=[-0.0], d=[1])}
    assert joined(node, *sides) is None


def test_many_combinations_are_left_to_spark() -> None:
    node = MultiwayJoin((T, U), (Equality("a", "c"),))
    many = [7] * 800
    sides = {0: rows_of(a=many, b=many)}, {1: rows_of(c=many, d=many)}
    assert joined(node, *sides) is None


UNION = UnionAll((Scan("t", ("a", "b")), Scan("u", ("a", "b")), Scan("v", ("a", "b"))))
SILENT = {"a": LongType(), "b": StringType()}


def test_a_union_has_the_rows_of_those_that_have_any() -> None:
    changes = {0: rows_of(a=[1, 2], b=["x", None]), 2: rows_of(b=["y"], a=[1])}
    made = united(UNION, changes, {1: SILENT}.__getitem__)
    assert made.schema.names == ["a", "b", "_weight", "_step"]
    found = [tuple(row.values())[:2] for row in made.table.to_pylist()]
    assert found == [(1, "x"), (2, None), (1, "y")]


def test_nulls_without_a_type_have_that_of_the_other_inputs() -> None:
    nulls = {0: rows_of(a=[1], b=[None])}
    assert nulls[0].schema["b"].dataType == NullType()
    made = united(UNION, nulls, lambda _: SILENT)
    assert made.schema["b"].dataType == StringType()
    assert made.table["b"].to_pylist() == [None]
    assert united(UNION, nulls, lambda _: {**SILENT, "b": NullType()}).schema == nulls[0].schema


@pytest.mark.parametrize("silent", [{"a": LongType()}, {**SILENT, "a": DoubleType()}])
def test_types_that_differ_or_are_not_known_are_left_to_spark(silent: dict[str, Any]) -> None:
    with pytest.raises(Unlike):
        united(UNION, {0: rows_of(a=[1], b=["x"])}, lambda _: silent)


@pytest.mark.parametrize(("size", "is_here"), [("10 seconds", True), ("3 days", False)])
def test_rows_that_may_be_put_into_too_many_windows_are_left_to_spark(
    size: str, is_here: bool
) -> None:
    scan = Scan("t", ("a", "ts"))
    nodes = (scan, TimeWindow(scan, "w", "ts", size, "1 second"))
    operators = {
        ref: Operator(ref, node, (0,) * ref, (), True, True, Cost.CHANGE, 1)
        for ref, node in enumerate(nodes)
    }
    rows = rows_of(a=[1, 2, 3], ts=[0, 1, 2])
    found = base(operators, 1, lambda ref: None if ref else Sifted(rows))
    assert (found is not None) == is_here


@pytest.mark.parametrize("x", [[1.0, 2.0, 1.0], [1, 1, 1], [1, 2, 3]], ids=str)
def test_rows_in_many_windows_are_made_here_if_they_are_netted_before(
    x: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "MOST_ROWS", 20)
    monkeypatch.setattr(linear, "_MOST_TIMES", 4)
    scan = Scan("t", ("x", "ts"))
    nodes = (scan, TimeWindow(scan, "w", "ts", "10 seconds", "1 second"))
    operators = {
        ref: Operator(ref, node, (0,) * ref, (), True, True, Cost.CHANGE, 1)
        for ref, node in enumerate(nodes)
    }
    times = pa.array([0, 1, 2], pa.timestamp("us"))
    ones, zeros = pa.array([1] * 3), pa.array([0] * 3)
    rows = Rows.of(pa.table({"x": x, "ts": times, "_weight": ones, "_step": zeros}))

    def known(ref: int) -> Sifted | None:
        return None if ref else Sifted(rows)

    context: Any = None  # nobody asks Spark
    assert rows_through(operators, 1, known, context) is None
    made = rows_through(operators, 1, known, context, by_pane=(1,))
    if x == [1, 1, 1]:
        assert made is not None
        assert made.table["_weight"].to_pylist() == [3] * 10
    else:
        assert made is None


def test_netted_rows() -> None:
    rows = Rows.of(pa.table({"a": [1, None, 1, None, 2], "_weight": [1, 1, 2, -1, 1]}))
    assert netted(rows, ["a"]).table.to_pylist() == [
        {"a": 1, "_weight": 3},
        {"a": 2, "_weight": 1},
    ]
    both = Rows.of(pa.table({"a": [1, 1], "_weight": [1, -1], "_step": [0, 1]}))
    assert len(consolidated(both, ["a"])) == 2
    with pytest.raises(Unlike):
        netted(Rows.of(pa.table({"a": [[1]], "_weight": [1]})), ["a"])


@pytest.mark.parametrize(("weights", "nothing_cancels"), [([1, 2], True), ([1, 0], False)])
def test_rows_are_netted_if_all_are_there(weights: list[int], nothing_cancels: bool) -> None:
    rows = Rows.of(pa.table({"a": [1, 2], "_weight": weights}))
    assert is_netted(rows) is nothing_cancels
    assert is_netted(rows.where(pa.array([False, False])))


@pytest.mark.parametrize("seed", range(30))
def test_rows_are_numbered_as_they_come_up(seed: int) -> None:
    """Also where columns follow from those before them: by their bits, where null is, or nearly."""
    random = np.random.default_rng(seed)
    size, most = int(random.integers(0, 40)), int(random.integers(1, 9))
    first = random.integers(0, most, size)
    columns = [
        pa.array(first),
        pa.array(first * 7 - 3, pa.timestamp("us")),
        pa.array([f"é{one % 3}" for one in first]),
        pa.array([None if one == 2 else one for one in first.tolist()], pa.int32()),
        pa.array(random.integers(0, 3, size)),
        pa.array([*first[:-1], *(first[-1:] + random.integers(0, 2))]),
    ]
    chosen = [columns[place] for place in random.permutation(6)[: random.integers(0, 6)]]
    rows = list(zip(*(one.to_pylist() for one in chosen), strict=True)) or [()] * size
    known = list(dict.fromkeys(rows))
    found = numbered([pa.chunked_array([one]) for one in chosen], size)
    assert found.tolist() == [known.index(row) for row in rows]


def test_structs_are_equal_if_all_fields_are() -> None:
    pair = pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.string())]))])
    inner = [{"z": "é"}, {"z": None}, None]
    kinds = [None, *({"x": x, "y": y} for x in (1, None) for y in inner)]
    values = [*kinds, *kinds[::-1]]
    column = pa.chunked_array([pa.array(values[:3], pair), pa.array(values[3:], pair)])
    numbers = numbered([column], len(values)).tolist()
    assert numbers == [*range(7), *range(7)[::-1]]
    both = numbered([pa.chunked_array([[0] * 7 + [1] * 7]), column.slice(0)], len(values))
    assert both.tolist() == [*range(7), *range(7, 14)]
    assert numbered([column.slice(5, 0)], 0).tolist() == []
    rows = Rows.of(pa.table({"a": column, "_weight": [1] * 7 + [2] * 6 + [-1]}))
    assert netted(rows, ["a"]).table["a"].to_pylist() == kinds[1:]
    halves = pa.array([{"d": 0.5}], pa.struct([("d", pa.float64())]))
    with pytest.raises(Unlike):
        netted(Rows.of(pa.table({"a": halves, "_weight": [1]})), ["a"])


def test_zeros_and_nans_are_one_row_each_and_no_zero_is_negative() -> None:
    values = [-0.0, 0.0, float("nan"), None, -float("nan"), None]
    rows = Rows.of(pa.table({"a": values, "_weight": [1, 1, 1, 1, 2, 4]}))
    found = netted(rows, ["a"]).table
    assert [str(value) for value in found["a"].to_pylist()] == ["0.0", "nan", "None"]
    assert found["_weight"].to_pylist() == [2, 3, 5]


def exact_sum(rows: list[tuple[int, int, float, int]]) -> float | None:
    """Of rows of group, step, value, weight, by whole numbers; None beyond the greatest double."""
    total = sum(Fraction(value) * weight for _, _, value, weight in rows)
    try:
        return float(total)
    except OverflowError:
        return None


@pytest.mark.parametrize("seed", range(40))
def test_sums_of_doubles_are_rounded_once(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 30))
    span = (-1074, 990) if seed % 2 else (-40, 40)
    values = np.ldexp(random.standard_normal(count), random.integers(*span, count))
    values[random.random(count) < 0.2] = random.choice([0.0, -0.0, 5e-324, 2.0**54, -1.0])
    groups, steps = random.integers(0, 3, (2, count))
    weights = random.choice([1, -1, 2, 3], count)
    bins = binned(pa.chunked_array([values]), groups, weights, steps)
    rows = list(
        zip(groups.tolist(), steps.tolist(), values.tolist(), weights.tolist(), strict=True)
    )
    known = sorted({(group, step) for group, step, _, _ in rows})
    found = bins.after(*np.array(known).T)
    for (group, step), value in zip(known, found.tolist(), strict=True):
        expected = exact_sum([row for row in rows if row[0] == group and row[1] <= step])
        assert expected is None or value == expected
    # What is added to the trace is what all of it comes to.
    of, table = bins.appended(7)
    assert set(table["_place"].to_pylist()) <= {7}
    parts = np.stack([table[f"_part_{part}"].to_numpy() for part in range(3)], axis=1)
    held = Bins(of, np.full(len(of), -1), table["_bin"].to_numpy().astype(np.int64), parts)
    for group in set(groups.tolist()):
        expected = exact_sum([row for row in rows if row[0] == group])
        [value] = held.and_those(bins).after(np.array([group]), np.array([-1])).tolist()
        assert expected is None or value == expected


def test_what_is_no_number_is_counted_apart() -> None:
    values = pa.chunked_array([[float("inf"), 1.0, None, float("nan"), float("-inf")]])
    groups, steps = np.zeros((2, 5), np.int64)
    steps += np.arange(5)
    bins = binned(values, groups, np.array([1, 1, 1, 1, 1]), steps)
    assert [str(value) for value in bins.after(groups, steps)] == [
        "inf",
        "inf",
        "inf",
        "nan",
        "nan",
    ]
    gone = binned(values, groups, np.array([-1, 1, 1, -1, -1]), steps + 5)
    later = bins.and_those(gone).after(groups, steps + 5)
    assert [str(value) for value in later] == ["nan", "nan", "nan", "-inf", "2.0"]


def test_order_is_spark_s() -> None:
    values = pa.chunked_array([[float("nan"), None, -0.0, 0.0, float("inf"), -1.0]])
    nan, null, minus, zero, infinite, one = ranked(values).tolist()
    assert null == -1
    assert one < minus == zero < infinite < nan
    assert ranked(pa.chunked_array([["b", None, "ä", "a"]])).argsort().tolist() == [1, 3, 0, 2]


MOST = (1 << 63) - 1


def test_sums_that_overflow_are_left_to_spark() -> None:
    longs = pa.chunked_array([[MOST, 1]])
    with pytest.raises(Unlike):
        grouped(pa.table({"by": [0, 0], "x": longs}), "by", {"x": "sum"})
    with pytest.raises(Unlike):
        added(longs, longs)
    with pytest.raises(Unlike):
        lifted("_sum_0", longs, pa.chunked_array([[2, 1]]))
    nines = pa.chunked_array([[Decimal("9" * 38)]], pa.decimal128(38, 0))
    with pytest.raises(Unlike):
        added(nines, nines)
    with pytest.raises(Unlike):
        lifted("_sum_0", nines, pa.chunked_array([[2]]))


def test_the_greatest_of_doubles_is_found_where_there_is_no_nan() -> None:
    greatest = [Accumulator("_max_0", "", "max")]
    rows = pa.table({"by": [0, 0, 1], "_max_0": [1.5, -0.5, None]})
    assert merged(rows, "by", greatest)["_max_0"].to_pylist() == [1.5, None]
    with pytest.raises(Unlike):
        merged(pa.table({"by": [0, 0], "_max_0": [1.5, float("nan")]}), "by", greatest)


@pytest.mark.parametrize("seed", range(3))
def test_sums_and_ends_are_of_the_same_group(seed: int) -> None:
    """Arrow gives groups in an order that depends on how columns are cut, too."""
    random = np.random.default_rng(seed)
    keys, values = random.integers(0, 1 << 40, 13000), random.random(13000)
    keys[:4000] = keys[9000:]
    cut = {
        "by": pa.chunked_array([keys[:3000], keys[3000:]]),
        "_rows": pa.chunked_array([np.ones(3000, np.int64), np.ones(10000, np.int64)]),
        "_max_0": pa.chunked_array([values[:3000], values[3000:8001], values[8001:]]),
    }
    accumulators = [Accumulator("_rows", "", "sum"), Accumulator("_max_0", "", "max")]
    found = merged(pa.table(cut), "by", accumulators)
    for key, count, most in zip(*(column.to_pylist() for column in found.columns), strict=True):
        own = values[keys == key]
        assert (count, most) == (len(own), own.max())


@pytest.mark.parametrize("merge", ["min", "max"])
@pytest.mark.parametrize(
    "kind", [pa.int32(), pa.float64(), pa.string(), pa.date32(), pa.timestamp("us", "UTC")], ids=str
)
def test_ends_of_every_type_go_on(merge: str, kind: pa.DataType) -> None:
    values = pa.chunked_array([[None, 3, 1, 2, None, 4]], pa.int32())
    number = pa.int64() if pa.types.is_timestamp(kind) else pa.int32()
    rows = pa.table({"_end_0": values.cast(number).cast(kind)})
    accumulators = [Accumulator("_end_0", "", merge)]
    found = running(rows, np.array([0, 1, 2, 3, 0, 1]), accumulators)["_end_0"]
    expected = {"min": [None, 3, 1, 1, None, 4], "max": [None, 3, 3, 3, None, 4]}[merge]
    assert found.cast(number).to_pylist() == expected


def test_increments_of_decimals_are_whole() -> None:
    digits = Decimal("12345678901234567890.12")
    values = pa.chunked_array([[digits, None, digits]], pa.decimal128(22, 2))
    found = lifted("_sum_0", values, pa.chunked_array([[3, 1, -1]]))
    assert found.type == pa.decimal128(38, 2)
    assert found.to_pylist() == [digits * 3, None, -digits]


def test_null_adds_nothing() -> None:
    one, other = pa.chunked_array([[1, None, None]]), pa.chunked_array([[2, 3, None]])
    assert added(one, other).to_pylist() == [3, 3, None]


def test_which_types_are_compared_here() -> None:
    assert is_exact(LongType())
    assert is_exact(StringType())
    assert not is_exact(DoubleType())
    assert not is_exact(StringType("UTF8_LCASE"))
    [pair, half] = (
        StructType().add("a", LongType()).add("b", kind) for kind in (StringType(), DoubleType())
    )
    assert is_key(pair)
    assert is_key(StructType().add("c", pair))
    assert not is_key(half)
    assert not is_exact(pair)
    assert not has_order(pair)


@pytest.mark.parametrize("apart", [1, 1000])
@pytest.mark.parametrize("first", [0, 1 << 40])
@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.int32(), pa.timestamp("us", "UTC"), pa.decimal128(38, 2)], ids=str
)
def test_groups_come_in_order_with_what_their_values_come_to(
    kind: pa.DataType, first: int, apart: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole numbers near one another are places in a table, others are hashed."""
    hashed, by_hash = list[str](), values._by_hash
    monkeypatch.setattr(values, "_by_hash", lambda *of: (hashed.append(of[1]), by_hash(*of))[1])
    by = [first + apart * one for one in (3, 0, 3, 2, 0, 3, 2)]
    numbers = [5, None, -7, None, 4, None, None]
    column = pa.array(numbers, pa.int64()).cast(kind)
    merges = {"least": "min", "most": "max"}
    if not pa.types.is_timestamp(kind):
        merges["total"] = "sum"
    rows = pa.table({"by": by, **dict.fromkeys(merges, column)})
    found = grouped(rows.take(pa.array(range(7))), "by", merges)
    wanted = pa.table(
        {
            "by": sorted(set(by)),
            "least": pa.array([4, None, -7]).cast(kind),
            "most": pa.array([4, None, 5]).cast(kind),
            "total": pa.array([4, None, -2]).cast(kind),
        }
    )
    assert found == wanted.select(found.column_names)
    assert bool(hashed) == (apart > 1 or pa.types.is_decimal(kind))
    assert set(found.column_names) == {"by", *merges}
    assert grouped(rows.slice(0, 0), "by", merges).num_rows == 0
    assert grouped(rows, "by", {})["by"].to_pylist() == sorted(set(by))
