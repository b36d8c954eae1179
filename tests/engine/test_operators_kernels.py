"""Kernels: running extremes and exact running sums, against the obvious computation in Python."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep_engine.kernels import exact_sums
from lockstep_engine.kernels.comoments import COUNTS, PRODUCTS, XS, YS, running_comoments
from lockstep_engine.kernels.exact_sums import running_sums
from lockstep_engine.kernels.extremes import running_extremes
from lockstep_engine.kernels.groups import numbered_by_table, pairs, spread

Change = tuple[int, int, int, int]

CHANGES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(-1, 5), st.integers(0, 20), st.integers(-1, 2)),
    min_size=1,
    max_size=60,
)
"""Key, value within the key (-1 is null), step, weight."""


def arrays(rows: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    return list(np.array(rows, np.int64).T)


@settings(max_examples=300)
@given(CHANGES)
def test_extremes_are_those_of_the_values_present_after_each_step(changes: list[Change]) -> None:
    # Values of different keys are different numbers, as ranks over (key, value) are.
    rows = [(k, -1 if v < 0 else k * 100 + v, t, w) for k, v, t, w in changes]
    keys, values, steps, weights = arrays(rows)
    found = running_extremes(keys, values, steps, weights)
    assert [(keys[i], steps[i]) for i in found.at] == sorted({(k, t) for k, _, t, _ in rows})
    for at, least, greatest in zip(found.at, found.least, found.greatest, strict=True):
        total: Counter[int] = Counter()
        for key, value, step, weight in rows:
            if key == keys[at] and step <= steps[at] and value >= 0:
                total[value] += weight
        present = [value for value, weight in total.items() if weight > 0]
        expected = (min(present), max(present)) if present else (None, None)
        assert tuple(None if i < 0 else values[i] for i in (least, greatest)) == expected


def test_extremes_of_no_values_are_none() -> None:
    found = running_extremes(*arrays([(1, -1, 3, 1), (1, -1, 4, -1)]))
    assert list(found.at) == [0, 1]
    assert list(found.least) == list(found.greatest) == [-1, -1]


def test_extremes_of_a_key_that_changes_at_each_of_many_steps() -> None:
    count = 5_000
    steps = np.arange(count)
    # Value i is there from step i to step i + 10.
    keys = np.zeros(2 * count, np.int64)
    values = np.concatenate([steps, steps])
    found = running_extremes(
        keys, values, np.concatenate([steps, steps + 10]), np.repeat([1, -1], count)
    )
    assert len(found.at) == count + 10
    assert list(values[found.greatest[:count]]) == list(range(count))
    assert list(values[found.least[20:count]]) == list(range(11, count - 9))
    assert found.least[-1] == found.greatest[-1] == -1


def in_bin(number: float) -> tuple[int, tuple[int, int, int]]:
    """A number's bin and parts, lowest first."""
    if math.isnan(number):
        return exact_sums.NOT_A_NUMBER, (1, 0, 0)
    if math.isinf(number):
        kind = exact_sums.PLUS_INFINITY if number > 0 else exact_sums.MINUS_INFINITY
        return kind, (1, 0, 0)
    if number == 0:
        return exact_sums.NO_BIN, (0, 0, 0)
    place = (math.frexp(number)[1] - 1) // exact_sums.DIGIT_BITS
    digits = Fraction(number) / Fraction(2) ** (exact_sums.DIGIT_BITS * (place - 2))
    assert digits.denominator == 1
    sign, size = (1 if number > 0 else -1), abs(digits.numerator)
    mask = (1 << exact_sums.DIGIT_BITS) - 1
    parts = (size & mask, size >> 27 & mask, size >> 54)
    return place, (sign * parts[0], sign * parts[1], sign * parts[2])


def rounded(total: Fraction) -> float:
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


NUMBERS = st.one_of(
    st.sampled_from([1e20, -1e20, 1.0, -1.0, 0.1, 5e-324, -5e-324, 1.7e308, -1.7e308, 0.0]),
    st.sampled_from([2.0**53, 2.0**53 - 1, 2.0**-53, 2.0**52 + 0.5, -(2.0**-1074), 2.0**1023]),
    st.floats(allow_nan=False, allow_infinity=False),
)


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), NUMBERS, st.integers(0, 5), st.sampled_from([1, -1, 3])),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from([1, 100, exact_sums.CELLS_AT_ONCE]),
)
def test_sums_are_rounded_once(
    changes: list[tuple[int, float, int, int]], cells_at_once: int
) -> None:
    bins = [in_bin(number) for _, number, _, _ in changes]
    keys = np.array([key for key, _, _, _ in changes])
    steps = np.array([step for _, _, step, _ in changes])
    weights = np.array([[weight] for _, _, _, weight in changes])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_sums, "CELLS_AT_ONCE", cells_at_once)
        at, sums = running_sums(
            keys,
            np.array([place for place, _ in bins]),
            steps,
            np.array([parts for _, parts in bins]) * weights,
        )
    assert [(keys[i], steps[i]) for i in at] == sorted({(k, t) for k, _, t, _ in changes})
    for row, total in zip(at, sums, strict=True):
        expected = sum(
            (
                Fraction(number) * weight
                for key, number, step, weight in changes
                if key == keys[row] and step <= steps[row]
            ),
            Fraction(0),
        )
        assert total == rounded(expected)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([1e20, 1.0, -1e20], 1.0),
        ([math.inf, 1.0], math.inf),
        ([-math.inf, 1e308, 1e308], -math.inf),
        ([math.inf, -math.inf], math.nan),
        ([math.nan, 1.0], math.nan),
        ([1.7e308, 1.7e308, -1.7e308], 1.7e308),
        ([0.0, -0.0], 0.0),
    ],
)
def test_sums_of_special_numbers(numbers: list[float], expected: float) -> None:
    bins = [in_bin(number) for number in numbers]
    size = len(numbers)
    # All come at step 0 and go at step 1.
    _, sums = running_sums(
        np.zeros(2 * size, np.int64),
        np.array([place for place, _ in bins] * 2),
        np.repeat([0, 1], size),
        np.array([parts for _, parts in bins] * 2) * np.repeat([[1], [-1]], size, axis=0),
    )
    assert sums[0] == expected or (math.isnan(expected) and math.isnan(sums[0]))
    assert sums[1] == 0.0


# Of less than some 1e-150 a product is no longer two doubles.
NUMBERS = st.one_of(
    st.integers(-3, 3).map(float),
    st.builds(math.ldexp, st.integers(-(1 << 53), 1 << 53), st.integers(-200, 150)),
)
PAIRS = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, 6), st.sampled_from([-1, 1, 1, 2]), NUMBERS, NUMBERS
    ),
    min_size=1,
    max_size=30,
)
"""Key, step, weight, x, y."""


def added(numbers: Sequence[tuple[int, int, int, int, float]]) -> list[np.ndarray]:
    """Addends, keys, bins, steps and parts of changes (addend, key, step, weight, number)."""
    found = []
    for addend, key, step, weight, number in numbers:
        bin_, parts = in_bin(number)
        found.append((addend, key, bin_, step, *(weight * part for part in parts)))
    addends, keys, bins, steps, *parts = arrays(found)
    return [addends, keys, bins, steps, np.stack(parts, axis=1)]


@settings(max_examples=200)
@given(PAIRS, st.booleans())
def test_comoments_are_those_of_the_pairs_after_each_step_rounded_once(
    pairs: list[tuple[int, int, int, float, float]], of_squares: bool
) -> None:
    pairs = [(key, step, weight, x, x if of_squares else y) for key, step, weight, x, y in pairs]
    rows = []
    for key, step, weight, x, y in pairs:
        product = x * y
        left = float(Fraction(x) * Fraction(y) - Fraction(product))
        numbers = [(COUNTS, 1.0), (XS, x), (PRODUCTS, product), (PRODUCTS, left)]
        numbers += [] if of_squares else [(YS, y)]
        rows += [(addend, key, step, weight, number) for addend, number in numbers]
    changes = added(rows)
    at, found = running_comoments(*changes)
    for row, value in zip(at, found, strict=True):
        there = [
            (weight, Fraction(x), Fraction(y))
            for key, step, weight, x, y in pairs
            if key == changes[1][row] and step <= changes[3][row]
        ]
        count = sum(weight for weight, _, _ in there)
        if count <= 0:
            continue
        sum_x, sum_y = (sum(one[0] * one[place] for one in there) for place in (1, 2))
        products = sum(weight * x * y for weight, x, y in there)
        assert value == float(products - sum_x * sum_y / count)


def test_equal_numbers_do_not_deviate_and_what_is_no_number_is_none() -> None:
    def of(*numbers: float) -> float:
        rows = [
            (addend, 0, 0, 1, value)
            for x in numbers
            for addend, value in (
                (COUNTS, 1.0),
                (XS, x),
                (PRODUCTS, x * x),
                (PRODUCTS, float(Fraction(x) ** 2 - Fraction(x * x)) if abs(x) < 1e150 else 0.0),
            )
        ]
        _, found = running_comoments(*added(rows))
        return float(found[0])

    assert of(*[0.1] * 7) == 0
    assert of(1.0) == 0
    assert math.isnan(of(math.nan, 1.0))
    assert math.isnan(of(math.inf, 1.0))
    assert of(1e200, -1e200) == math.inf


@given(st.lists(st.integers(0, 9)))
def test_values_are_numbered_as_they_come_up(values: list[int]) -> None:
    found = numbered_by_table(np.array(values, np.int64), 10).tolist()
    assert found == [list(dict.fromkeys(values)).index(value) for value in values]


@given(st.lists(st.integers(0, 6)), st.lists(st.integers(0, 6)))
def test_pairs_are_those_of_equal_numbers(ours: list[int], theirs: list[int]) -> None:
    """In the order of ours; also where each of theirs is another one."""
    wanted = [
        (i, j) for i, one in enumerate(ours) for j, other in enumerate(theirs) if one == other
    ]
    numbers = [np.array(one, np.int64) for one in (ours, theirs)]
    found = pairs(*numbers, most=len(wanted))
    assert found is not None
    assert list(zip(*(one.tolist() for one in found), strict=True)) == wanted
    assert not wanted or pairs(*numbers, most=len(wanted) - 1) is None


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(-2, 3))))
def test_ranges_are_laid_out(ranges: list[tuple[int, int]]) -> None:
    first, size = np.array(ranges, np.int64).reshape(-1, 2).T
    found = spread(first, first + size)
    wanted = [(place, at) for place, (a, n) in enumerate(ranges) for at in range(a, a + n)]
    assert list(zip(*(one.tolist() for one in found), strict=True)) == wanted
