"""Decimals are multiplied by weights and added up as whole numbers where these are small: with the sums
that exact arithmetic gives, whatever their size."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep_engine.local.accumulators import lifted
from lockstep_engine.local.values import Unlike, grouped, unscaled, with_point

EDGES = [0, 1, -1, (1 << 62) - 1, 1 << 62, (1 << 63) - 1, -(1 << 63), 1 << 63, 10**35, -(10**35)]
NUMBERS = st.none() | st.sampled_from(EDGES) | st.integers(-(10**4), 10**4)
WIDE = pa.decimal128(38, 3)


def decimals(numbers: Sequence[int | None], kind: pa.DataType = WIDE) -> pa.ChunkedArray:
    """Of numbers without their point, in two chunks of which the second begins somewhere."""
    with localcontext(prec=38):
        values = [None if n is None else Decimal(n).scaleb(-kind.scale) for n in numbers]
    cut = len(values) // 2
    more = pa.array([None, *values[cut:]], kind).slice(1)
    return pa.chunked_array([pa.array(values[:cut], kind), more])


@given(st.lists(st.tuples(NUMBERS, st.integers(-3, 3)), min_size=1, max_size=12))
def test_increments_are_what_weights_make_of_values(rows: list[tuple[int | None, int]]) -> None:
    weights = pa.chunked_array([[weight for _, weight in rows]], pa.int64())
    found = lifted("_sum_0", decimals([number for number, _ in rows]), weights)
    wanted = [None if number is None else number * weight for number, weight in rows]
    assert found.type == WIDE
    assert found.to_pylist() == decimals(wanted).to_pylist()


@given(st.lists(st.tuples(st.sampled_from([0, 1, 10**6]), NUMBERS), min_size=1, max_size=12))
def test_sums_are_exact(rows: list[tuple[int, int | None]]) -> None:
    by = pa.array([group for group, _ in rows])
    found = grouped(pa.table({"by": by, "x": decimals([n for _, n in rows])}), "by", {"x": "sum"})
    wanted = dict[int, int | None]()
    for group, number in rows:
        before = wanted.setdefault(group, None)
        if number is not None:
            wanted[group] = number + (before or 0)
    groups = sorted(wanted)
    assert found["by"].to_pylist() == groups
    assert found["x"].type == WIDE
    assert found["x"].to_pylist() == decimals([wanted[one] for one in groups]).to_pylist()


def test_a_sum_that_has_more_digits_than_its_type_is_left_to_spark() -> None:
    kind = pa.decimal128(4, 2)
    for last, by in ((9_999 - 5_000, 0), (9_999 - 4_999, 1)):
        rows = pa.table({"by": [by, by], "x": decimals([5_000, last], kind)})
        if by:
            with pytest.raises(Unlike):
                grouped(rows, "by", {"x": "sum"})
        else:
            assert grouped(rows, "by", {"x": "sum"})["x"].to_pylist() == [Decimal("99.99")]


@given(st.lists(st.none() | st.sampled_from(EDGES[:7]) | st.integers(-99, 99), max_size=9))
def test_whole_numbers_and_decimals_go_over_into_one_another(numbers: list[int | None]) -> None:
    column = decimals(numbers)
    whole = unscaled(column)
    assert whole.tolist() == [number or 0 for number in numbers]
    again = with_point(whole, WIDE, column.is_valid())
    assert again.type == WIDE
    assert again.to_pylist() == column.to_pylist()


def test_more_than_63_bits_are_told() -> None:
    for number in (1 << 63, -(1 << 63) - 1, 10**37):
        with pytest.raises(Unlike):
            unscaled(decimals([0, number]))
