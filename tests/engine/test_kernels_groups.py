"""Rows in order, whatever their numbers are: as NumPy's own stable sort has them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lockstep_engine.kernels.groups import in_order, positions_of

Numbers = NDArray[np.int64]
LEAST, GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
SPANS = [(0, 1), (-3, 3), (5, 1 << 20), (-1 << 45, 1 << 45), (0, 1 << 62), (LEAST, GREATEST)]


@st.composite
def columns(draw: st.DrawFn) -> list[Numbers]:
    """Up to three of as many rows, each of numbers near or far from one another, in runs or none."""
    size = draw(st.sampled_from([0, 1, 2, 40, 3000]))
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    found = list[Numbers]()
    for span in draw(st.lists(st.sampled_from(SPANS), min_size=1, max_size=3)):
        column = random.integers(*span, size, np.int64, endpoint=True)
        runs = draw(st.sampled_from([0, 1, 3, 15, 100]))
        for part in np.array_split(np.arange(size), runs) if runs else ():
            column[part] = np.sort(column[part])
        found.append(column)
    return found


@given(columns())
def test_rows_are_sorted_by_the_first_and_then_the_next_and_stay_where_all_are_equal(
    given_columns: list[Numbers],
) -> None:
    assert in_order(*given_columns).tolist() == np.lexsort(given_columns[::-1]).tolist()


@pytest.mark.parametrize("size", [17, 300])
def test_the_ends_of_what_a_number_may_be(size: int) -> None:
    ends = np.array([GREATEST, LEAST, 0, -1, 1, GREATEST - 1, LEAST + 1], np.int64)
    column = np.resize(ends, size)
    expected = np.argsort(column, kind="stable").tolist()
    assert in_order(column).tolist() == expected
    assert in_order(column, column).tolist() == expected
    small = np.resize(np.array([2, 1], np.int64), size)
    assert in_order(small, column).tolist() == np.lexsort((column, small)).tolist()
    assert in_order(column, small).tolist() == np.lexsort((small, column)).tolist()


@given(columns())
def test_a_position_is_a_key_at_a_step_and_knows_those_of_its_key(
    given_columns: list[Numbers],
) -> None:
    keys, steps = given_columns[0], given_columns[-1]
    found = positions_of(keys, steps)
    known = sorted(set(zip(keys.tolist(), steps.tolist(), strict=True)))
    at = zip(keys[found.at].tolist(), steps[found.at].tolist(), strict=True)
    assert list(at) == known
    places = {position: place for place, position in enumerate(known)}
    of_row = [places[one] for one in zip(keys.tolist(), steps.tolist(), strict=True)]
    assert found.of_row.tolist() == of_row
    by_key: dict[int, list[int]] = {}
    for place, (key, _) in enumerate(known):
        by_key.setdefault(key, []).append(place)
    ranges = [(by_key[key][0], by_key[key][-1] + 1) for key, _ in known]
    assert list(zip(found.first.tolist(), found.last.tolist(), strict=True)) == ranges
