"""Tables that are read whole as a pipeline begins: more rows are worked out by the driver than of any
later interval, as far as there is memory."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lockstep.control.job import Placement
from lockstep_engine import attempt, context, evaluation
from lockstep_engine.context import Context
from lockstep_engine.local import room
from lockstep_engine.local.rows import Rows
from lockstep_engine.sources import file_rows

sys.path.insert(0, str(Path(__file__).parent))
from followed_shop import COPY_ON_WRITE, QUERIES, Shop, two_tables

pytestmark = [pytest.mark.spark]

ROWS = 300
SMALL = "INSERT INTO @orders SELECT {0} + id, 'c1', CAST(id AS INT), NULL FROM range({1})"


@pytest.fixture
def begun(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Three hundred orders and six customers have come. Every interval is a large one, and more than a
    hundred rows are Spark's, as a rule."""
    monkeypatch.setattr(attempt, "FEW_RECORDS", 0)
    monkeypatch.setattr(attempt, "Context", partial(Context, many_records=0))
    monkeypatch.setattr(context, "_FEW_HERE", 25)
    monkeypatch.setattr(context, "_MOST_HERE", 100)
    two_tables(shop, COPY_ON_WRITE)
    return shop


@pytest.mark.parametrize(("most", "is_here"), [(306, True), (305, False)])
def test_tables_that_come_whole_may_have_more_rows_than_later_changes(
    begun: Shop, by_spark: list[str], most: int, is_here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "_WHOLE_TABLES_HERE", most)
    begun.advance()
    begun.check(QUERIES)
    assert bool(by_spark) is not is_here
    for first, count in ((1000, 100), (2000, 101)):
        by_spark.clear()
        begun.follow([SMALL.format(first, count)], QUERIES)
        assert bool(by_spark) is (count > 100)


@pytest.mark.parametrize(
    ("records", "of_whole_tables", "workers", "is_here"),
    [
        (1_100, 1_000, 2, True),
        (1_100, 1_000, 1, True),
        (1_101, 1_000, 2, False),
        (1_101, 1_001, 2, False),
        (1_001, 1_001, 2, False),
        (51, 51, 4, False),
        (50, 50, 4, True),
    ],
)
def test_how_many_rows_are_worked_on_by_the_driver(
    spark: Any,
    records: int,
    of_whole_tables: int,
    workers: int,
    is_here: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of topics no more than ever; and with more workers Spark is as fast."""
    monkeypatch.setattr(context, "_FEW_HERE", 25)
    monkeypatch.setattr(context, "_MOST_HERE", 100)
    monkeypatch.setattr(context, "_WHOLE_TABLES_HERE", 1_000)
    placement = Placement(workers, tuple(range(workers)))
    one = Context(spark, records, placement, is_whole=True, of_whole_tables=of_whole_tables)
    assert one.is_all_here is is_here


def test_rows_for_which_there_is_no_room_are_read_by_spark(
    begun: Shop, by_spark: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_MOST_BYTES", 0)
    # Few rows are read in any case.
    monkeypatch.setattr(file_rows, "FEW_BYTES", 0)
    monkeypatch.setattr(file_rows._ReadFiles, "_bytes", lambda _: 0)
    begun.advance()
    assert any("not all of it can be read here" in line for line in begun.said)
    assert {"MultiwayJoin", "Aggregate"} <= set(by_spark)
    begun.check(QUERIES)


def test_rows_that_have_become_too_many_are_left_to_spark(
    begun: Shop, by_spark: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[int]()

    def is_there() -> bool:
        asked.append(len(by_spark))
        return len(asked) < 2

    monkeypatch.setattr(evaluation, "has_room", is_there)
    begun.advance()
    assert len(asked) >= 2
    assert set(asked) == {0}, "of each operator, before Spark has worked on any"
    assert any("some of it cannot be worked out here" in line for line in begun.said)
    assert {"MultiwayJoin", "Aggregate"} <= set(by_spark)
    begun.check(QUERIES)


def test_what_arrow_cannot_sort_is_left_to_spark(
    begun: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_order, tried = attempt.in_order, list[bool]()

    def sorting(circuit: Any, appends: Any, *more: Any) -> Any:
        tried.append(any(isinstance(one, Rows) for one in appends.values()))
        if tried[-1]:
            raise pa.ArrowCapacityError("array cannot contain more than 2147483646 bytes")
        return in_order(circuit, appends, *more)

    monkeypatch.setattr(attempt, "in_order", sorting)
    begun.advance()
    assert tried == [True, False]
    assert any("some of it cannot be worked out here" in line for line in begun.said)
    begun.check(QUERIES)


@pytest.mark.parametrize(
    ("rows", "few", "batches"), [(ROWS, 0, 2), (100, 0, 3), (10, 0, 3), (100, 1_200, 4)]
)
def test_that_there_is_no_room_is_seen_by_the_first_rows(
    rows: int, few: int, batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for 2,500 bytes, of batches of 40 rows and 320 bytes, three times: of more than a
    hundred rows it is known by the second that they are too many. Few bytes are read in any case."""
    batch = pa.RecordBatch.from_arrays([pa.array(range(40))], ["n"])
    assert batch.nbytes == 320
    held = list[int]()

    def has_room(more: int) -> bool:
        return sum(held) + more <= 2_500

    monkeypatch.setattr(file_rows, "has_room", has_room)
    monkeypatch.setattr(file_rows, "_TELLING_ROWS", 80)
    monkeypatch.setattr(file_rows, "FEW_BYTES", few)
    reading = file_rows._Room(rows)
    for _ in range(batches - 1):
        held.append(batch.nbytes)
        assert reading.is_there_with(batch)
    held.append(batch.nbytes)
    assert not reading.is_there_with(batch)
    assert reading.is_short
