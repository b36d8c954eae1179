"""Slices of Iceberg tables: where steps end, how slices are read, what is refused, what is recorded."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from control_builders import SINKS, at, attempt, deploy, slice_of, store_url
from hypothesis import given
from hypothesis import strategies as st

from lockstep.adapters.memory_store import MemoryStore
from lockstep.adapters.sql_store import SqlStore
from lockstep.control.changes import (
    BeginAttempt,
    CommitVersion,
    Landed,
    RecordInterval,
    RecordPublished,
    TrimSteps,
    TrimVersions,
)
from lockstep.control.codec import dumps, loads
from lockstep.control.model import Division, Interval, SourceSlice, TableSlice, Version
from lockstep.control.ports import PartitionBounds, TopicBounds
from lockstep.control.preconditions import Precondition
from lockstep.control.receipts import ReceiptStatus, snapshot_receipts
from lockstep.control.steps import Divided, StepLimits, divide
from lockstep.control.table_history import Reading, TableHistory, TableSnapshot
from lockstep.control.transitions import apply
from lockstep.errors import SourceChanged, WrongUse

LIMITS = StepLimits()
TABLE = "lake.shop.orders"


def snapshot(
    number: int,
    parent: int | None,
    seconds: float,
    operation: str = "append",
    added: int = 10,
    removed: int = 0,
) -> TableSnapshot:
    return TableSnapshot(number, parent, at(seconds), operation, added, removed, 100 * number)


def history(
    *snapshots: TableSnapshot, head: int | None = None, append_only: bool = False, id_: str = "u1"
) -> TableHistory:
    """A table whose `main` is at `head`, or at the last one given."""
    last = snapshots[-1].snapshot_id if snapshots and head is None else head
    by_id = {one.snapshot_id: one for one in snapshots}
    return TableHistory("s", TABLE, id_, last, by_id, append_only)


def position(end: int | None, id_: str = "u1") -> TableSlice:
    return TableSlice("s", TABLE, id_, None, end, 0)


def divided(
    table: TableHistory,
    *times: float,
    reached: int | None = None,
    limits: StepLimits = LIMITS,
    last_is_stable: bool = False,
) -> Divided:
    before = () if reached is None else (position(reached),)
    moments = tuple(at(time) for time in times)
    return divide(before, {"s": table}, moments, {}, 0, limits, last_is_stable=last_is_stable)


def ends(found: Divided) -> list[tuple[int | None, int | None]]:
    assert found.interval is not None
    slices = [slice_ for division in found.interval.divisions for slice_ in division.slices]
    return [(s.start, s.end) for s in slices if isinstance(s, TableSlice)]


FOUR = (
    snapshot(1, None, 5),
    snapshot(2, 1, 12, "delete", 0, 3),
    snapshot(3, 2, 13, "replace", 50, 50),
    snapshot(4, 3, 27),
)


# Where steps end


def test_a_step_ends_at_the_newest_snapshot_committed_before_its_time() -> None:
    found = divided(history(*FOUR), 5, 10, 20, 30, reached=None)
    assert ends(found) == [(None, None), (None, 1), (1, 3), (3, 4)]
    assert found.interval is not None
    assert [division.records for division in found.interval.divisions] == [0, 100, 3, 10]
    assert found.interval.divisions[0].slices[0].is_empty


def test_a_first_step_takes_one_snapshot_and_nothing_of_what_was_before_it() -> None:
    assert ends(divided(history(*FOUR), 20, 30)) == [(None, 3), (3, 4)]
    assert ends(divided(history(*FOUR), 40)) == [(None, 4)]


def test_the_last_step_ends_at_the_head_whatever_its_clock_says() -> None:
    late = (*FOUR, snapshot(5, 4, 9_999))
    assert ends(divided(history(*late), 20, 30, reached=1)) == [(1, 3), (3, 4)]
    assert ends(divided(history(*late), 20, 30, reached=1, last_is_stable=True)) == [
        (1, 3),
        (3, 5),
    ]


def test_a_snapshot_whose_clock_was_behind_comes_with_its_parent() -> None:
    skewed = (snapshot(1, None, 25), snapshot(2, 1, 7))
    assert ends(divided(history(*skewed), 10, 20, 30)) == [(None, None), (None, None), (None, 2)]


def test_a_table_without_a_snapshot_gives_empty_steps() -> None:
    assert ends(divided(history(), 10, 20)) == [(None, None), (None, None)]
    # A table that was replaced by an empty one has lost all of its rows.
    emptied = history(*FOUR)
    assert ends(divided(replace(emptied, head=None), 10, reached=2)) == [(2, None)]


def test_a_large_step_is_cut_between_snapshots_and_never_within_one() -> None:
    line = tuple(snapshot(n, n - 1 or None, n, added=40) for n in range(1, 7))
    limits = StepLimits(rows_per_step=100, rows_per_interval=170)
    found = divided(history(*line), 100, reached=1, limits=limits)
    assert ends(found) == [(1, 3), (3, 5)]
    assert found.behind
    assert ends(divided(history(*line), 100, reached=5, limits=limits)) == [(5, 6)]
    one = divided(history(*line), 100, limits=limits)
    assert ends(one) == [(None, 6)]
    assert one.interval is not None
    assert one.interval.records == 600


def test_a_topic_and_a_table_are_cut_one_after_the_other() -> None:
    line = tuple(snapshot(n, n - 1 or None, n, added=40) for n in range(1, 4))
    topic = TopicBounds("topic_a", "id1", (PartitionBounds(0, 0, 120),))
    bounds = {"s": history(*line), "a": topic}
    limits = StepLimits(rows_per_step=70, rows_per_interval=1000)
    before: tuple[SourceSlice, ...] = (slice_of("a", (0, 0, 0)), position(1))
    found = divide(before, bounds, (at(10),), {"a": ({0: None},)}, 0, limits)
    assert found.interval is not None
    read = [[(s.source, s.records) for s in d.slices] for d in found.interval.divisions]
    assert read == [
        [("a", 60), ("s", 0)],
        [("a", 60), ("s", 0)],
        [("a", 0), ("s", 40)],
        [("a", 0), ("s", 40)],
    ]
    together = divide(before, bounds, (at(10),), {"a": ({0: None},)}, 0, LIMITS)
    assert together.interval is not None
    assert [division.records for division in together.interval.divisions] == [200]


@st.composite
def trees(draw: st.DrawFn) -> tuple[TableHistory, int | None]:
    """Snapshots that descend from each other in any way, some of them expired, and one read last."""
    count = draw(st.integers(1, 8))
    made = []
    for number in range(1, count + 1):
        parent = draw(st.none() | st.integers(1, number - 1)) if number > 1 else None
        operation = draw(st.sampled_from(["append", "append", "delete", "overwrite", "replace"]))
        removed = 0 if operation == "append" else draw(st.integers(0, 20))
        added, seconds = draw(st.integers(0, 40)), draw(st.integers(0, 60))
        made.append(snapshot(number, parent, seconds, operation, added, removed))
    kept = [one for one in made if draw(st.integers(0, 5)) or one is made[-1]]
    read = draw(st.none() | st.integers(1, count))
    return history(*kept, head=draw(st.sampled_from(kept)).snapshot_id), read


@given(trees(), st.lists(st.integers(0, 70), min_size=1, max_size=5), st.booleans())
def test_slices_continue_each_other_and_can_be_recorded(
    drawn: tuple[TableHistory, int | None], seconds: list[int], last_is_stable: bool
) -> None:
    table, read = drawn
    limits = StepLimits(rows_per_step=25, rows_per_interval=60)
    times = [float(second) for second in sorted(seconds)]
    try:
        found = divided(table, *times, reached=read, limits=limits, last_is_stable=last_is_stable)
    except SourceChanged:
        assert read not in table.snapshots
        return
    slices = ends(found)
    assert [start for start, _ in slices] == [read, *(end for _, end in slices[:-1])]
    if last_is_stable and not found.behind:
        assert slices[-1][1] == table.head
    state = apply(None, deploy(), name="p")
    state = replace(state, positions=() if read is None else (position(read),))
    assert found.interval is not None
    assert apply(state, RecordInterval(found.interval)).positions == (position(slices[-1][1]),)
    for start, end in slices:
        assert table.reading(start, end) in Reading
        if table.reading(start, end) is Reading.NOTHING:
            assert table.records(start, end) == 0


# How slices are read


@pytest.mark.parametrize(
    ("start", "end", "reading"),
    [
        (1, 1, Reading.NOTHING),
        (2, 3, Reading.NOTHING),
        (None, 3, Reading.ALL),
        (3, 4, Reading.APPENDS),
        (2, 4, Reading.APPENDS),
        (1, 2, Reading.DIFFERENCE),
        (1, 4, Reading.DIFFERENCE),
        (4, 2, Reading.DIFFERENCE),
        (4, None, Reading.DIFFERENCE),
    ],
)
def test_how_a_slice_is_read(start: int | None, end: int | None, reading: Reading) -> None:
    assert history(*FOUR).reading(start, end) is reading


def test_appends_can_be_read_after_a_snapshot_that_has_expired() -> None:
    kept = history(*FOUR[2:])
    assert ends(divided(kept, 30, reached=2)) == [(2, 4)]
    assert kept.reading(2, 4) is Reading.APPENDS


def test_a_rollback_is_compared_in_full_and_the_plan_says_so() -> None:
    """Snapshot 5 was committed after a rollback to 1; what 2 to 4 did is taken back."""
    back = history(*FOUR, snapshot(5, 1, 40))
    found = divided(back, 50, reached=4)
    assert ends(found) == [(4, 5)]
    assert back.reading(4, 5) is Reading.DIFFERENCE
    assert found.interval is not None
    assert found.interval.records == 400 + 500
    [note] = found.notes
    assert note == (
        "source s: snapshot 4, which was read last, is no ancestor of 5 any more; step 0 compares all "
        "rows of lake.shop.orders at the two"
    )
    assert divided(history(*FOUR), 50, reached=1).notes == ()


def test_a_rollback_without_a_commit_is_noticed() -> None:
    back = history(*FOUR, head=1)
    assert ends(divided(back, 50, reached=4)) == [(4, 1)]


# Refusals


def refusal(table: TableHistory, reached: int, id_: str = "u1") -> SourceChanged:
    with pytest.raises(SourceChanged) as caught:
        divide((position(reached, id_),), {"s": table}, (at(50),), {}, 0, LIMITS)
    return caught.value


@pytest.mark.parametrize("kept", [FOUR[1:], (snapshot(9, 8, 30),)])
def test_what_an_expired_snapshot_held_cannot_be_compared(kept: tuple[TableSnapshot, ...]) -> None:
    error = refusal(history(*kept), 1)
    assert error.message == (
        "source s: snapshot 1 of table lake.shop.orders, which was read last, has expired, and what "
        "replaced it is unknown"
    )
    assert "deploy the project under another name and database" in error.next_step
    assert "history.expire.max-snapshot-age-ms" in error.next_step


def test_a_table_that_was_made_anew_is_refused() -> None:
    error = refusal(history(*FOUR, id_="u2"), 1)
    assert error.message == "source s: table lake.shop.orders was dropped and made anew"
    assert (error.expected, error.found) == (
        "table uuid u1, whose snapshots are recorded",
        "table uuid u2",
    )


def test_an_append_only_source_names_the_snapshot_that_took_rows_away() -> None:
    error = refusal(history(*FOUR, append_only=True), 1)
    assert error.found == "snapshot 2, a commit of type delete that took away up to 3 rows"
    error = refusal(history(*FOUR, head=1, append_only=True), 4)
    assert error.found == "snapshot 1, which does not descend from snapshot 4"
    grown = history(snapshot(1, None, 1), snapshot(2, 1, 2, "overwrite"), append_only=True)
    assert ends(divided(grown, 50, reached=1)) == [(1, 2)]


def test_a_compaction_takes_nothing_from_an_append_only_source() -> None:
    """Also beside a commit that could have, and has not."""
    table = history(
        snapshot(1, None, 1),
        snapshot(2, 1, 2, "replace", added=3, removed=3),
        snapshot(3, 2, 3, "overwrite"),
        append_only=True,
    )
    assert table.reading(1, 3) is Reading.DIFFERENCE


def test_a_source_that_is_gone_is_refused() -> None:
    with pytest.raises(SourceChanged, match="source s is recorded, and is no longer") as caught:
        divide((position(1),), {}, (at(1),), {}, 0, LIMITS)
    assert caught.value.expected == "a source s, which reads table lake.shop.orders"


@pytest.mark.parametrize(
    ("slice_", "reason"),
    [
        (
            TableSlice("s", TABLE, "u1", 2, 3, 0),
            "step 0, source s: snapshot 1 was read last, the slice starts at 2",
        ),
        (
            TableSlice("s", TABLE, "u2", 1, 3, 0),
            "step 0, source s: its position is recorded for table lake.shop.orders with id u1, "
            "the division is of lake.shop.orders with id u2",
        ),
        (
            slice_of("s", (0, 0, 1)),
            "step 0, source s: its position is recorded for table lake.shop.orders, "
            "the division is of topic topic_s",
        ),
    ],
)
def test_a_division_that_does_not_continue_is_refused(slice_: SourceSlice, reason: str) -> None:
    state = replace(apply(None, deploy(), name="p"), positions=(position(1),))
    with pytest.raises(Precondition) as caught:
        apply(state, RecordInterval(Interval((Division(0, at(1), (slice_,)),))))
    assert caught.value.reason == reason


def test_a_slice_of_one_snapshot_changes_no_rows() -> None:
    with pytest.raises(ValueError, match="snapshot 1 to 1 cannot change 2 rows"):
        TableSlice("s", TABLE, "u1", 1, 1, 2)


# What is recorded


def mixed(first: int, snapshots: tuple[int | None, ...], times: datetime) -> Interval:
    """Steps of a topic `a` and the table, which goes from snapshot to snapshot."""
    divisions = []
    for number, (start, end) in enumerate(pairwise(snapshots)):
        step = first + number
        table = TableSlice("s", TABLE, "u1", start, end, 0 if start == end else 7)
        topic = slice_of("a", (0, step, step + 1))
        divisions.append(Division(step, times + timedelta(seconds=number), (topic, table)))
    return Interval(tuple(divisions))


def test_both_stores_keep_slices_of_tables(tmp_path: Path) -> None:
    big = 2**63 - 1
    first, second = mixed(0, (None, None, 5, 5), at(1)), mixed(3, (5, big, 6), at(9))
    changes: list[Any] = [
        deploy(),
        RecordInterval(first),
        BeginAttempt(attempt("one", 0, 2)),
        CommitVersion(Version(1, "one", 2, 0, {}), ""),
        *(RecordPublished(sink.name, 2) for sink in SINKS),
        RecordInterval(second),
    ]
    stores = (SqlStore(store_url(tmp_path)), MemoryStore())
    for store in stores:
        for change in changes:
            assert isinstance(store.apply("p", change), Landed)
    for store in stores:
        state = store.read("p")
        assert state.pending == second
        assert state.positions == (slice_of("a", (0, 0, 5)), position(6))
        assert store.divisions("p", 0, 9) == (*first.divisions, *second.divisions)
    assert stores[0].read("p") == stores[1].read("p")


def test_trimmed_steps_lose_their_slices(tmp_path: Path) -> None:
    store = SqlStore(store_url(tmp_path))
    base = ""
    for number in range(3):
        interval = mixed(number, (number or None, number + 1), at(number))
        name = f"a{number}"
        for change in (
            *([deploy()] if number == 0 else []),
            RecordInterval(interval),
            BeginAttempt(attempt(name, number, number, base)),
            CommitVersion(Version(number + 1, name, number, 0, {}), base),
            *(RecordPublished(sink.name, number) for sink in SINKS),
        ):
            assert isinstance(store.apply("p", change), Landed)
        base = name
    for change in (TrimVersions(2), TrimSteps(2)):
        assert isinstance(store.apply("p", change), Landed)
    assert store.divisions("p", 0, 9) == mixed(2, (2, 3), at(2)).divisions
    with sqlite3.connect(tmp_path / "control.db") as opened:
        assert opened.execute("SELECT step FROM table_slices").fetchall() == [(2,)]


def test_an_interval_survives_the_way_through_a_file() -> None:
    interval = mixed(0, (None, 5, 2**63 - 1), at(1))
    assert loads(Interval, dumps(interval)) == interval
    with pytest.raises(WrongUse) as caught:
        loads(Interval, dumps(interval).replace('"table_id"', '"table_uuid"'))
    assert caught.value.expected == "an object with the fields of TopicSlice or TableSlice"


# Receipts


def test_receipts_of_snapshots() -> None:
    table = history(*FOUR, snapshot(5, 4, 60), snapshot(6, 4, 61), head=5)
    state = replace(
        apply(None, deploy(), name="p"),
        next_step=3,
        positions=(position(4),),
        versions=(Version.zero(), Version(1, "a", 1, 0, {})),
        sinks=(replace(SINKS[0], published_step=1), replace(SINKS[1], published_step=0)),
    )
    slices = ((0, None, 1), (1, 1, 3), (2, 3, 4))
    divisions = [
        Division(step, at(step), (TableSlice("s", TABLE, "u1", start, end, 1),))
        for step, start, end in slices
    ]

    def receipt(snapshot_id: int) -> tuple[ReceiptStatus, int | None]:
        [found] = snapshot_receipts(state, divisions, {"s": table}, TABLE, snapshot_id)
        return found.status, found.step

    assert receipt(1) == (ReceiptStatus.PUBLISHED, 0)
    assert receipt(2) == (ReceiptStatus.COMMITTED, 1)
    assert receipt(4) == (ReceiptStatus.PLANNED, 2)
    assert receipt(5) == receipt(6) == (ReceiptStatus.PENDING, None)
    with pytest.raises(WrongUse, match=r"table lake\.shop\.orders has no snapshot 77"):
        receipt(77)
    with pytest.raises(WrongUse, match=r"pipeline p does not read table lake\.shop\.other"):
        snapshot_receipts(state, divisions, {"s": table}, "lake.shop.other", 1)


def placed(
    table: TableHistory, snapshot_id: int, *slices: tuple[int | None, int | None, str]
) -> tuple[ReceiptStatus, int | None]:
    """Of a snapshot, once steps have read the slices: start, end, the table's id. All but the last step
    are published."""
    divisions = [
        Division(step, at(step), (TableSlice("s", TABLE, id_, start, end, start != end),))
        for step, (start, end, id_) in enumerate(slices)
    ]
    last = len(slices) - 2
    state = replace(
        apply(None, deploy(), name="p"),
        next_step=len(slices),
        positions=(position(slices[-1][1], slices[-1][2]),),
        versions=(Version.zero(), Version(1, "a", last, 0, {})),
        sinks=tuple(replace(sink, published_step=last) for sink in SINKS),
    )
    [found] = snapshot_receipts(state, divisions, {"s": table}, TABLE, snapshot_id)
    return found.status, found.step


def test_a_snapshot_of_a_table_that_was_made_anew_is_not_the_old_tables() -> None:
    table = history(*FOUR, id_="u2")
    old = ((None, 3, "u1"), (3, 4, "u1"))
    assert placed(table, 3, *old) == (ReceiptStatus.PENDING, None)
    assert placed(table, 3, *old, (None, 4, "u2")) == (ReceiptStatus.PLANNED, 2)
    assert placed(table, 3, *old, (None, 3, "u2"), (3, 4, "u2")) == (ReceiptStatus.PUBLISHED, 2)


def test_a_snapshot_that_was_forgotten_is_where_it_was_read_since() -> None:
    forgotten = ((None, 1, "u1"), (1, 3, "u1"), (None, 4, "u1"))
    assert placed(history(*FOUR), 1, *forgotten) == (ReceiptStatus.PLANNED, 2)


def test_a_snapshot_that_a_rollback_of_its_table_left_is_where_it_was_read_first() -> None:
    back = history(*FOUR, snapshot(5, 1, 40))
    read = ((None, 1, "u1"), (1, 4, "u1"), (4, 5, "u1"))
    assert placed(back, 1, *read) == (ReceiptStatus.PUBLISHED, 0)
    assert placed(back, 5, *read) == (ReceiptStatus.PLANNED, 2)
