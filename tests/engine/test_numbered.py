"""Numbers for rows that are equal, and what values come to by such numbers, beside plain Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from lockstep_engine.local import values
from lockstep_engine.local.aggregate import Groups
from lockstep_engine.local.functions import FUNCTIONS
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.values import grouped, matched, numbered

LEAST, GREATEST = -(1 << 63), (1 << 63) - 1
ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(-3, 3), st.sampled_from([LEAST, GREATEST])),
        st.one_of(st.none(), st.sampled_from("ab")),
        st.integers(0, 40),
    ),
    max_size=60,
)
KINDS = (pa.int64(), pa.string(), pa.int64())


def columns_of(rows: Sequence[Sequence[Any]], chunks: int) -> list[pa.ChunkedArray]:
    """In pieces, as what is read comes."""
    size = max(1, -(-len(rows) // chunks))
    pieces = [rows[first : first + size] for first in range(0, len(rows), size)]
    return [
        pa.chunked_array([pa.array([row[at] for row in piece], kind) for piece in pieces], kind)
        for at, kind in enumerate(KINDS)
    ]


def as_they_come(rows: Sequence[Any]) -> list[int]:
    """0 for the first, and one more for each that is the first of its kind."""
    known: dict[Any, int] = {}
    return [known.setdefault(row, len(known)) for row in rows]


def noted(made: Callable[..., Any], name: str, used: list[str]) -> Callable[..., Any]:
    """The same, which adds the name to what has been used."""

    def noting(*arguments: Any) -> Any:
        used.append(name)
        return made(*arguments)

    return noting


@given(ROWS, st.integers(1, 3), st.permutations(range(3)), st.integers(1, 3))
def test_rows_are_numbered_as_they_come(
    rows: list[tuple[Any, ...]], chunks: int, order: list[int], width: int
) -> None:
    wanted = order[:width]
    columns = columns_of(rows, chunks)
    found = numbered([columns[at] for at in wanted], len(rows))
    assert found.tolist() == as_they_come([tuple(row[at] for at in wanted) for row in rows])


@given(ROWS, st.booleans())
def test_rows_are_numbered_by_structs(rows: list[tuple[Any, ...]], with_nulls: bool) -> None:
    columns = [column.combine_chunks() for column in columns_of(rows, 1)]
    is_null = pa.array([with_nulls and row[2] % 3 == 0 for row in rows], pa.bool_())
    struct = pa.StructArray.from_arrays(columns, ["x", "y", "z"], mask=is_null)
    keys = [None if null else row for row, null in zip(rows, is_null.to_pylist(), strict=True)]
    found = numbered([pa.chunked_array([struct]), pa.chunked_array([columns[2]])], len(rows))
    pairs = [(key, row[2]) for key, row in zip(keys, rows, strict=True)]
    assert found.tolist() == as_they_come(pairs)


@given(ROWS, st.integers(2, 3))
def test_matched_rows_are_those_that_are_equal(rows: list[tuple[Any, ...]], width: int) -> None:
    found = matched(columns_of(rows, 1)[:width], len(rows))
    keys = [row[:width] for row in rows]
    assert as_they_come(found.tolist()) == as_they_come(keys)
    assert not len(found) or 0 <= found.min() <= found.max() <= 4 * len(rows)


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
@pytest.mark.parametrize("gap", [1, 3])
@pytest.mark.parametrize(
    ("repeats", "text", "looked_at"),
    [(False, "b", 1), (True, "b", 2), (True, "a", 2)],
    ids=["none", "the key", "the row"],
)
def test_others_are_not_looked_at_where_no_row_repeats_the_first_key(
    monkeypatch: pytest.MonkeyPatch,
    kind: pa.DataType,
    gap: int,
    repeats: bool,
    text: str,
    looked_at: int,
) -> None:
    # The last row, long after those that are looked at first.
    size = 2 * values._FEW + 1
    keys = gap * np.random.default_rng(1).permutation(size) - 5
    keys[-1] = keys[-1 - repeats]
    texts = [*["a"] * (size - 1), text]
    coded = list[str]()
    monkeypatch.setattr(values, "_near", noted(values._near, "near", coded))
    columns = [pa.chunked_array([pa.array(keys).cast(kind)]), pa.chunked_array([texts])]
    found = numbered(columns, size).tolist()
    assert found == as_they_come(list(zip(keys.tolist(), texts, strict=True)))
    assert len(coded) == looked_at


@pytest.mark.parametrize("seed", range(4))
def test_many_rows_are_numbered_whose_keys_follow_one_another(seed: int) -> None:
    # More than are looked at first, and enough for columns to be looked at beside one another.
    random, size = np.random.default_rng(seed), values._MANY + 7
    first = random.integers(0, 3 * size, size) - size
    follows = first * 10_000_000 if seed % 2 else np.where(np.arange(size) < 2_000, first, 5)
    texts = pa.array(random.choice(["a", "bb", "ccc"], size))
    columns = [pa.chunked_array([one]) for one in (pa.array(first), pa.array(follows), texts)]
    found = numbered(columns, size)
    rows = list(zip(first.tolist(), follows.tolist(), texts.to_pylist(), strict=True))
    assert found.tolist() == as_they_come(rows)


STEPS = [1, 2, 10_000_000, 86_400_000_000, 1 << 61]


@st.composite
def in_steps(draw: st.DrawFn) -> list[int]:
    """Windows, days: also where some of them are between two, or too far away to be counted."""
    step = draw(st.sampled_from(STEPS))
    least = draw(st.sampled_from([LEAST, -7, 0, 1_700_000_000_000_000]))
    numbers = st.integers(0, min(40, (GREATEST - 1 - least) // step))
    between = st.integers(0, 1) if draw(st.booleans()) else st.just(0)
    keys = st.tuples(numbers, between).map(lambda one: least + one[0] * step + one[1])
    return draw(st.lists(keys, max_size=40))


@given(in_steps(), st.integers(1, 300), st.booleans())
@example([LEAST, LEAST + 7 * (1 << 61), LEAST], 3, True)
def test_keys_in_steps_are_numbered(keys: list[int], kinds: int, come_first: bool) -> None:
    others = [number * 7 % kinds for number in range(len(keys))]
    pair = (keys, others) if come_first else (others, keys)
    columns = [pa.chunked_array([pa.array(one, pa.int64())]) for one in pair]
    rows = list(zip(*pair, strict=True))
    assert numbered(columns, len(rows)).tolist() == as_they_come(rows)
    assert as_they_come(matched(columns, len(rows)).tolist()) == as_they_come(rows)


@pytest.mark.parametrize(
    ("kinds", "between", "by"),
    [
        (150, False, []),
        (600, False, ["table"]),
        (1_500, False, ["table", "table", "dictionary"]),
        (150_000, False, ["dictionary", "table", "dictionary"]),
        (150, True, ["dictionary"]),
    ],
)
def test_many_keys_in_steps_are_numbered(
    monkeypatch: pytest.MonkeyPatch, kinds: int, between: bool, by: list[str]
) -> None:
    """Forty windows of so many others; with one `between` two of them, long after the rows that are
    looked at first, they are not counted in steps. Of 2,007 rows 8,028 places are near enough as they
    are, and 32,112 for a table that makes them so; else both are made near before they are paired."""
    random, size = np.random.default_rng(kinds), 2 * values._FEW + 7
    keys = random.integers(0, 40, size) * 10_000_000 + 1_700_000_000_000_000
    keys[-1] += between
    others = random.integers(0, kinds, size)
    columns = [pa.chunked_array([pa.array(one)]) for one in (others, keys)]
    rows = list(zip(others.tolist(), keys.tolist(), strict=True))
    assert numbered(columns, size).tolist() == as_they_come(rows)
    used = list[str]()
    for name, place, function in (
        ("table", values, "numbered_by_table"),
        ("dictionary", values._Codes, "of_dictionary"),
    ):
        monkeypatch.setattr(place, function, noted(getattr(place, function), name, used))
    matches = matched(columns, size)
    assert as_they_come(matches.tolist()) == as_they_come(rows)
    assert matches.max() < 4 * size
    assert used == by


VALUES = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.one_of(st.none(), st.integers(-9, 9), st.just(LEAST), st.just(GREATEST)),
    ),
    min_size=1,
    max_size=30,
)


def check_merged(rows: list[tuple[int, int | None]], is_one: bool, merge: str) -> None:
    """By group, or all rows as one, beside Python's own functions of those that are not null."""
    by = [7 if is_one else group for group, _ in rows]
    columns = {"by": pa.array(by, pa.int64()), "v": pa.array([v for _, v in rows], pa.int64())}
    found = grouped(pa.table(columns), "by", {"v": merge})
    expected = {}
    for group in sorted(set(by)):
        there = [v for g, (_, v) in zip(by, rows, strict=True) if g == group and v is not None]
        expected[group] = {"min": min, "max": max, "sum": sum}[merge](there) if there else None
    assert dict(zip(found["by"].to_pylist(), found["v"].to_pylist(), strict=True)) == expected


@given(VALUES, st.booleans(), st.sampled_from(["min", "max"]))
def test_values_come_to_their_ends(
    rows: list[tuple[int, int | None]], is_one: bool, merge: str
) -> None:
    check_merged(rows, is_one, merge)


@given(
    VALUES.map(lambda rows: [(g, v) for g, v in rows if v is None or abs(v) < 10]), st.booleans()
)
def test_values_come_to_their_sums(rows: list[tuple[int, int | None]], is_one: bool) -> None:
    check_merged(rows, is_one, "sum")


def test_keys_of_groups_are_taken_in_any_order() -> None:
    schema = StructType([StructField(name, LongType()) for name in ("k", "_weight", "_step")])
    delta = Rows.of(
        pa.table({"k": [5, 3, 5, 9], "_weight": [1, 1, 1, 1], "_step": [0, 0, 0, 0]}), schema
    )
    held = Rows.of(pa.table({"k": [3, 8], "_weight": [1, 1], "_step": [0, 0]}), schema)
    groups = Groups.of(("k",), delta, {"held": held})
    for wanted, keys in (
        ([0, 1, 2], [5, 3, 9]),
        ([2, 0, 1], [9, 5, 3]),
        ([1, 1], [3, 3]),
        ([], []),
    ):
        found = groups.key_columns(np.array(wanted, np.int64))
        assert found["k"].to_pylist() == keys
    assert groups.touched("held").tolist() == [0], "8 is of a group that the delta has not"


@pytest.mark.parametrize(
    "micros",
    [
        [-1],
        [0],
        [-1, 0],
        [86_399_999_999, 86_400_000_000],
        [-86_400_000_000, -1],
        [5, 86_399_999_999],
    ],
)
def test_days_are_told_on_both_sides_of_midnight(micros: list[int]) -> None:
    times = pa.chunked_array([pa.array(micros, pa.timestamp("us", tz="UTC"))])
    found, _ = FUNCTIONS["date_format"](times, TimestampType(), "yyyy-MM-dd")
    start = datetime(1970, 1, 1, tzinfo=UTC)
    days = [f"{start + timedelta(microseconds=one):%Y-%m-%d}" for one in micros]
    assert found.to_pylist() == days
