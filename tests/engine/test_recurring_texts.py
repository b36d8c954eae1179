"""Functions of texts that recur are found once for each text: the same as row by row."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType

from lockstep_engine.local import functions
from lockstep_engine.local.functions import FUNCTIONS
from lockstep_engine.local.values import Unlike

CALLS = [
    ("split_part", "/", 2),
    ("regexp_extract", "[?&]id=([0-9]+)", 1),
    ("replace", "a", "bb"),
]


def column(texts: Sequence[str | None], size: int) -> pa.ChunkedArray:
    parts = [texts[first : first + size] for first in range(0, len(texts), size)]
    return pa.chunked_array([pa.array(part, pa.string()) for part in parts], pa.string())


def found(call: tuple[str | int, ...], of: pa.ChunkedArray) -> list[str | None]:
    function, *given = call
    made, kind = FUNCTIONS[str(function)](of, StringType(), *given)
    assert kind == StringType()
    assert len(made) == len(of)
    return list(made.to_pylist())


@pytest.mark.parametrize("different", [1, 30, 7_000, 1 << 40], ids=str)
@pytest.mark.parametrize("call", CALLS, ids=lambda call: str(call[0]))
def test_they_are_what_each_row_gives(call: tuple[str | int, ...], different: int) -> None:
    chosen = random.Random(different)
    texts = [
        None if chosen.random() < 0.1 else f"a/{number % 3 * 'ä'}?id={number}&b"
        for number in (chosen.randrange(different) for _ in range(25_000))
    ]
    alone = [one for text in texts[:2_000] for one in found(call, column([text], 1))]
    for size in (25_000, 7_000):
        assert found(call, column(texts, size))[:2_000] == alone
        assert found(call, column(texts[::-1], size))[:-2001:-1] == alone


@pytest.mark.parametrize("texts", [[None] * 20_000, [""] * 20_000], ids=["null", "empty"])
@pytest.mark.parametrize("call", CALLS, ids=lambda call: str(call[0]))
def test_where_there_is_one_or_none(call: tuple[str | int, ...], texts: list[str | None]) -> None:
    assert found(call, column(texts, 6_000)) == found(call, column(texts[:1], 1)) * 20_000


@pytest.mark.parametrize("call", CALLS, ids=lambda call: str(call[0]))
def test_a_text_that_recurs_is_looked_at_once(
    call: tuple[str | int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[int]()
    is_well_formed = functions.is_well_formed

    def noting(texts: pa.ChunkedArray) -> bool:
        seen.append(len(texts))
        return is_well_formed(texts)

    monkeypatch.setattr(functions, "is_well_formed", noting)
    found(call, column(["a/b", "c", None] * 10_000, 9_000))
    assert seen == [2]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: str(call[0]))
def test_what_is_not_utf_8_and_what_is_no_text_is_left_to_spark(
    call: tuple[str | int, ...],
) -> None:
    function, *given = call
    wrong = pa.array([b"a"] * 20_000 + [b"\xff"]).view(pa.string())
    for of, kind in (
        (pa.chunked_array([wrong]), StringType()),
        (pa.chunked_array([pa.array([1] * 20_000)]), IntegerType()),
    ):
        with pytest.raises(Unlike):
            FUNCTIONS[str(function)](of, kind, *given)
