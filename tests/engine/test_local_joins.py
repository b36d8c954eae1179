"""How rows of two sides find one another here: by numbers of their keys, and whichever side has more."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lockstep.sql.plans.nodes import Equality
from lockstep_engine.local import join
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
    found = join._pairs(*(np.array(one, np.int64) for one in (ours, theirs)))
    assert found is not None
    assert sorted(zip(*(one.tolist() for one in found), strict=True)) == wanted


def test_all_rows_in_their_order_are_taken_as_they_are() -> None:
    rows = pa.table({"a": [5, 6, 7]})
    assert join._taken(rows, np.arange(3)) is rows
    assert join._taken(rows, np.array([0, 2, 1])).to_pydict() == {"a": [5, 7, 6]}
    assert join._taken(rows, np.array([0, 1])).to_pydict() == {"a": [5, 6]}
