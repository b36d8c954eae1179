"""How rows of two sides find one another here: by numbers of their keys, and whichever side has more."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.sql.plans.multiway import Hop
from lockstep.sql.plans.nodes import Equality, MultiwayJoin, Scan
from lockstep_engine.local import join
from lockstep_engine.local.changes import consolidated
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.values import matched

DAY = dt.datetime(2026, 1, 1)
KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "numbers": (pa.int32(), lambda n: n),
    "numbers far from one another": (pa.int64(), lambda n: n << 50),
    "texts": (pa.string(), lambda n: f"é{n}"),
    "times": (pa.timestamp("us"), lambda n: DAY + dt.timedelta(microseconds=n)),
    "dates": (pa.date32(), lambda n: DAY.date() + dt.timedelta(days=n)),
}
VALUES = st.lists(st.none() | st.integers(0, 5), max_size=12)
KIND = st.sampled_from(list(KINDS))


def column(values: list[int | None], kind: str) -> pa.ChunkedArray:
    """In two chunks."""
    type_, of = KINDS[kind]
    made = [None if one is None else of(one) for one in values]
    half = len(made) // 2
    return pa.chunked_array([pa.array(part, type_) for part in (made[:half], made[half:])], type_)


@given(VALUES, VALUES, KIND)
def test_numbers_are_equal_where_values_are(
    ones: list[int | None], others: list[int | None], kind: str
) -> None:
    size = min(len(ones), len(others))
    keys = [ones[:size]], [ones[:size], others[:size]]
    for values in keys:
        numbers = matched([column(one, kind) for one in values], size).tolist()
        rows = list(zip(*values, strict=True))
        assert all(
            (numbers[i] == numbers[j]) == (rows[i] == rows[j])
            for i in range(size)
            for j in range(size)
        )
        assert all(0 <= number < 4 * size for number in numbers)


@given(VALUES, VALUES, KIND, st.booleans())
def test_keys_meet_where_they_are_equal_and_a_null_where_that_is_asked_for(
    left: list[int | None], right: list[int | None], kind: str, null_safe: bool
) -> None:
    sides = pa.table({"a": column(left, kind)}), pa.table({"b": column(right, kind)})
    ours, theirs = join._numbered(*sides, [Equality("a", "b", null_safe=null_safe)])
    met = ours[:, None] == theirs[None, :]
    wanted = [[a == b and (null_safe or a is not None) for b in right] for a in left]
    assert met.tolist() == wanted


@given(st.lists(st.integers(0, 6)), st.lists(st.integers(0, 6)))
def test_pairs_are_the_same_whichever_side_has_more(ours: list[int], theirs: list[int]) -> None:
    wanted = [
        (i, j) for i, one in enumerate(ours) for j, other in enumerate(theirs) if one == other
    ]
    numbers = [np.array(one, np.int64) for one in (ours, theirs)]
    found = join._pairs(*numbers, most=len(wanted))
    assert found is not None
    assert sorted(zip(*(one.tolist() for one in found), strict=True)) == wanted
    assert not wanted or join._pairs(*numbers, most=len(wanted) - 1) is None


@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_what_is_joined_piece_by_piece_is_what_is_joined_at_once(
    monkeypatch: pytest.MonkeyPatch, seed: int, is_turned: bool
) -> None:
    """Also where rows are there for a while, and as long as there is room for all pieces together."""
    random = np.random.default_rng(seed)
    few, many = side(random, "ab", 4), side(random, "cd", 60)
    if seed % 2:
        more = few if is_turned else many
        until = pa.array(more["_step"].to_numpy() + random.integers(1, 3, len(more)))
        few, many = (
            one.append_column("_until", until) if one is more else one for one in (few, many)
        )
    sides = (many, few) if is_turned else (few, many)
    names = ("c", "a") if is_turned else ("a", "c")
    hop = Hop(1, (Equality(*names),), ())
    asked = [*sides, hop]
    whole = join._met_at(*asked, is_before=bool(seed % 3))
    monkeypatch.setattr(join, "_ROWS_OF_A_PIECE", 7)
    found = join._met_at(*asked, is_before=bool(seed % 3))
    assert whole is not None
    assert found is not None
    assert rows_of(found) == rows_of(whole)
    assert found["b"].num_chunks >= 6, "more than one piece has pairs"
    monkeypatch.setattr(join, "_most_pairs", lambda *_: len(whole) - 1)
    assert join._met_at(*asked, is_before=bool(seed % 3)) is None


def side(random: np.random.Generator, names: str, size: int) -> pa.Table:
    columns = [
        pa.array(random.integers(0, 3, size)),
        pa.array([f"{names} {n}" for n in range(size)]),
        pa.array(random.integers(1, 3, size)),
        pa.array(random.integers(0, 4, size)),
    ]
    return pa.table(columns, [*names, "_weight", "_step"])


def rows_of(table: pa.Table) -> list[Any]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_all_rows_in_their_order_are_taken_as_they_are() -> None:
    rows = pa.table({"a": [5, 6, 7]})
    assert join._taken(rows, np.arange(3)) is rows
    assert join._taken(rows, np.array([0, 2, 1])).to_pydict() == {"a": [5, 7, 6]}
    assert join._taken(rows, np.array([0, 1])).to_pydict() == {"a": [5, 6]}


@pytest.mark.parametrize("steps", [1, 2])
def test_many_keys_of_which_three_inputs_take_rows_back_are_no_more_pairs_than_rows(
    monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """As three aggregates of the same groups: of each group six or twelve changes."""
    keys = 50
    monkeypatch.setattr(join, "_most_pairs", lambda *_: 2 * keys * steps)
    inputs = Scan("t", ("a", "b")), Scan("u", ("c", "d")), Scan("v", ("e", "f"))
    node = MultiwayJoin(inputs, (Equality("a", "c"), Equality("a", "e")))
    changes, before = dict[int, Rows](), dict[int, Rows]()
    for place, (key, value) in enumerate(one.columns for one in inputs):
        moved = np.repeat(np.arange(steps), 2 * keys)
        weights = np.tile(np.repeat([-1, 1], keys), steps)
        made = {
            key: np.tile(np.arange(keys), 2 * steps),
            value: moved + (weights > 0),
            "_weight": weights,
            "_step": moved,
        }
        changes[place] = Rows.of(pa.table(made))
        there = {key: np.arange(keys), value: np.zeros(keys, int), "_weight": np.ones(keys, int)}
        before[place] = Rows.of(pa.table({**there, "_step": np.full(keys, -1)}))
    made = join.joined(node, changes, before)
    assert made is not None
    found = consolidated(made.rows, node.columns).table.to_pylist()
    assert {(row["a"], row["_step"], row["_weight"]) for row in found} == {
        (key, step, weight) for key in range(keys) for step in range(steps) for weight in (-1, 1)
    }
    assert len(found) == 2 * keys * steps
    assert all(row["b"] == row["d"] == row["f"] for row in found)
