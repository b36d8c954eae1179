"""Which rows of a batch are looked up, against a look at each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.lake.wanted_rows import wanted_places

NUMBERS = st.integers(-5, 12)
KEYS = st.lists(st.one_of(st.none(), NUMBERS), max_size=40)
WANTED = st.sets(NUMBERS | st.sampled_from([-(1 << 40), 1 << 40]), min_size=1)


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
@given(
    first=KEYS,
    second=KEYS,
    wanted=st.lists(WANTED, min_size=1, max_size=2),
    is_sorted=st.booleans(),
)
def test_places(
    kind: pa.DataType,
    first: list[int | None],
    second: list[int | None],
    wanted: list[set[int]],
    is_sorted: bool,
) -> None:
    size = min(len(first), len(second))
    columns = [first[:size], second[:size]]
    if is_sorted:
        columns[0] = sorted(one for one in columns[0] if one is not None)
        columns[1] = columns[1][: len(columns[0])]
    rows = pa.RecordBatch.from_arrays([pa.array(c, kind) for c in columns], names=["a", "b"])
    keys = {name: np.array(sorted(one), np.int64) for name, one in zip("ab", wanted, strict=False)}
    expected = [
        place
        for place, row in enumerate(zip(*columns, strict=True))
        if all(value is None or value in one for value, one in zip(row, wanted, strict=False))
    ]
    assert wanted_places(rows, keys).tolist() == expected


def test_without_keys_all_are() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([3, 1])], names=["a"])
    assert wanted_places(rows, {}).tolist() == [0, 1]
