"""Tables that are read for the first time: what they hold comes together, before a topic's records."""

from __future__ import annotations

from collections.abc import Mapping

from control_builders import at, slice_of

from lockstep.control.model import TableSlice
from lockstep.control.ports import PartitionBounds, SourceBounds, TopicBounds
from lockstep.control.steps import Divided, StepLimits, divide
from lockstep.control.table_history import TableHistory, TableSnapshot

LIMITS = StepLimits(rows_per_step=70, rows_per_interval=300)
TOPIC = TopicBounds("topic_a", "id1", (PartitionBounds(0, 0, 120),))
BEGINNING = slice_of("a", (0, 0, 0))


def table(source: str, *added: int) -> TableHistory:
    """One whose snapshots, from 1 on, each add so many rows."""
    line = {
        number: TableSnapshot(number, number - 1 or None, at(number), "append", rows, 0, sum(added))
        for number, rows in enumerate(added, 1)
    }
    return TableHistory(source, f"lake.shop.{source}", "u1", len(added), line)


def divided(bounds: Mapping[str, SourceBounds], *more: TableSlice) -> Divided:
    """Where nothing has been read but `more`."""
    topics = {"a": ({0: None},)} if "a" in bounds else {}
    before = (*([BEGINNING] if topics else []), *more)
    return divide(before, bounds, (at(10),), topics, 0, LIMITS)


def rows(found: Divided) -> list[dict[str, int]]:
    """By step what it reads of each source."""
    assert found.interval is not None
    divisions = found.interval.divisions
    return [{s.source: s.records for s in one.slices if s.records} for one in divisions]


def test_tables_that_are_new_are_one_step() -> None:
    found = divided({"t": table("t", 10), "u": table("u", 60), "v": table("v", 50)})
    assert rows(found) == [{"t": 10, "u": 60, "v": 50}]
    assert not found.behind


def test_more_than_an_interval_takes_is_one_by_itself() -> None:
    found = divided({"a": TOPIC, "t": table("t", 10), "u": table("u", 400)})
    assert rows(found) == [{"t": 10, "u": 400}]
    assert found.behind


def test_a_topics_records_find_what_they_join() -> None:
    found = divided({"a": TOPIC, "t": table("t", 10)})
    assert rows(found) == [{"t": 10}, {"a": 60}, {"a": 60}]
    assert not found.behind


def test_a_table_that_is_known_comes_last_and_is_cut() -> None:
    known = table("s", 40, 40, 40)
    reached = TableSlice("s", known.table, known.table_id, None, 1, 40)
    found = divided({"a": TOPIC, "s": known, "t": table("t", 10)}, reached)
    assert rows(found) == [{"t": 10}, {"a": 60}, {"a": 60}, {"s": 40}, {"s": 40}]
    assert not found.behind


def test_a_table_that_had_no_snapshot_is_new() -> None:
    late = table("t", 100)
    reached = TableSlice("t", late.table, late.table_id, None, None, 0)
    found = divided({"a": TOPIC, "t": late}, reached)
    assert rows(found) == [{"t": 100}, {"a": 60}, {"a": 60}]
