"""What no column of Arrow holds, 2 GB of texts above all, is Spark's to work out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lockstep.sql.plans.nodes import Equality, MultiwayJoin, Scan
from lockstep_engine.local import evaluation, join
from lockstep_engine.local.join import joined
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.values import Unlike, grouped

EVENTS, DOCUMENTS = Scan("events", ("id", "of")), Scan("documents", ("key", "text"))


def rows_of(**columns: Any) -> Rows:
    numbers = {"_weight": [1] * len(columns["_step"])}
    return Rows.of(pa.table({**columns, **numbers}))


def test_pairs_that_take_more_than_a_column_holds_are_left_to_spark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A document that is met by thirty rows is there thirty times."""
    node = MultiwayJoin((EVENTS, DOCUMENTS), (Equality("of", "key"),))
    events = rows_of(id=list(range(30)), of=[1] * 30, _step=[0] * 30)
    documents = rows_of(key=[1], text=["x" * 1000], _step=[-1])
    monkeypatch.setattr(join, "_MOST_BYTES", 40_000)
    assert len(joined(node, {0: events}, {1: documents}).rows) == 30  # type: ignore[union-attr]
    monkeypatch.setattr(join, "_MOST_BYTES", 20_000)
    assert joined(node, {0: events}, {1: documents}) is None


def test_pairs_for_which_there_is_no_room_are_left_to_spark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = MultiwayJoin((EVENTS, DOCUMENTS), (Equality("of", "key"),))
    events = rows_of(id=list(range(30)), of=[1] * 30, _step=[0] * 30)
    documents, others = (rows_of(key=[key], text=["x" * 1000], _step=[-1]) for key in (1, 2))
    asked = list[int]()

    def has_room(more: int) -> bool:
        asked.append(more)
        return False

    monkeypatch.setattr(join, "has_room", has_room)
    assert joined(node, {0: events}, {1: documents}) is None
    [wanted] = asked
    assert 30 * 1000 < wanted < 35 * 1000
    found = joined(node, {0: events}, {1: others})
    assert found is not None, "for nothing there is always room"
    assert not len(found.rows)


@pytest.mark.parametrize("error", [pa.ArrowInvalid, pa.ArrowCapacityError, Unlike])
def test_what_arrow_cannot_hold_is_left_to_spark(error: type[Exception]) -> None:
    def work() -> None:
        raise error("Take operation overflowed binary array capacity")

    assert evaluation._tried(work) is None


def test_what_has_been_added_up_is_added_up_once_more() -> None:
    """Half of many rows are of one group: what these come to, as often as there are groups, is more than
    a bigint holds, and all of it is not."""
    size, value = 100_000, (1 << 32) - 5
    by = np.maximum(np.arange(size) - size // 2, 0)
    rows = pa.table({"by": by, "x": np.full(size, value)})
    once = grouped(rows, "by", {"x": "sum"})
    assert once["x"].to_pylist()[:2] == [(size // 2 + 1) * value, value]
    again = grouped(
        once.set_column(0, "by", pa.array(np.zeros(len(once), int))), "by", {"x": "sum"}
    )
    assert again["x"].to_pylist() == [size * value]


@pytest.mark.parametrize("values", [[1 << 62, 1 << 62], [-(1 << 63), 1, 1], [1 << 60] * 8])
def test_numbers_whose_sums_may_overflow_are_left_to_spark(values: list[int]) -> None:
    with pytest.raises(Unlike):
        grouped(pa.table({"by": [0] * len(values), "x": values}), "by", {"x": "sum"})
