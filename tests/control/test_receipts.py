"""Receipts: an offset is pending, planned, committed, published, trimmed or skipped."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from control_builders import FILES, SINKS, at, interval, slice_of

from lockstep.control.model import Division, PipelineState, TopicSlice, Version
from lockstep.control.receipts import (
    Receipt,
    ReceiptStatus,
    input_of_step,
    receipts,
    wait_until_settled,
)
from lockstep.errors import Retry, WrongUse

TOPIC = "topic_s"
TOPICS = {"s": TOPIC}


def state(committed: int = -1, published: int = -1, oldest_step: int = 0) -> PipelineState:
    """Steps 0..5 are planned, ten offsets a partition each, from offset 0; intervals of three steps."""
    versions = [Version.zero()]
    versions += [
        Version(last // 3 + 1, f"a{last}", last, 0, {}) for last in (2, 5) if last <= committed
    ]
    return PipelineState(
        "p",
        "i1",
        7,
        FILES,
        next_step=6,
        positions=(slice_of("s", (0, 0, 60), (1, 0, 60)),),
        versions=tuple(versions),
        sinks=tuple(replace(sink, published_step=published) for sink in SINKS),
        oldest_step=oldest_step,
    )


def one(recorded: PipelineState, partition: int, offset: int) -> Receipt:
    kept = [d for d in interval(0, 6).divisions if d.step >= recorded.oldest_step]
    (receipt,) = receipts(recorded, kept, TOPICS, TOPIC, partition, offset)
    return receipt


def test_an_offset_that_no_step_has_is_pending() -> None:
    for partition, offset in ((0, 60), (1, 1000), (7, 0)):
        receipt = one(state(committed=5), partition, offset)
        assert receipt.status is ReceiptStatus.PENDING
        assert receipt.step is None
        assert receipt.waiting == ("v", "k")


def test_the_step_is_the_one_whose_range_holds_the_offset() -> None:
    for offset in range(60):
        receipt = one(state(), 1, offset)
        assert (receipt.status, receipt.step) == (ReceiptStatus.PLANNED, offset // 10)
        assert receipt.version is None


def test_committed_names_the_version_and_who_waits() -> None:
    receipt = one(state(committed=5, published=2), 0, 35)
    assert receipt == Receipt(
        "s", ReceiptStatus.COMMITTED, step=3, version=2, published=(), waiting=("v", "k")
    )
    assert str(receipt) == ("source s: in step 3; committed, held by version 2; not yet by v, k")


def test_published_where_every_sink_is_at_the_step() -> None:
    receipt = one(state(committed=5, published=2), 0, 29)
    assert receipt.status is ReceiptStatus.PUBLISHED
    assert str(receipt) == "source s: in step 2; committed, held by version 1; published by v, k"


def test_a_sink_that_lags_is_named() -> None:
    recorded = state(committed=5, published=5)
    view, topic = recorded.sinks
    recorded = replace(recorded, sinks=(view, replace(topic, published_step=3)))
    receipt = one(recorded, 0, 45)
    assert (receipt.status, receipt.published, receipt.waiting) == (
        ReceiptStatus.COMMITTED,
        ("v",),
        ("k",),
    )


def test_a_trimmed_step_is_before_the_oldest_kept() -> None:
    receipt = one(state(committed=5, published=5, oldest_step=3), 0, 5)
    assert (receipt.status, receipt.step, receipt.before_step) == (
        ReceiptStatus.PUBLISHED,
        None,
        3,
    )
    assert str(receipt).startswith("source s: before step 3; committed")


def test_an_offset_before_the_source_began_is_skipped() -> None:
    recorded = replace(state(), positions=(slice_of("s", (0, 40, 60)),))
    assert one(recorded, 0, 39).status is ReceiptStatus.SKIPPED


def forgotten(begun: TopicSlice, offset: int, published: int) -> Receipt:
    """Of an offset, once the source was forgotten after step 5, and begun anew with step 6."""
    divisions = (*interval(0, 6).divisions, Division(6, at(6), (begun,)))
    recorded = replace(
        state(committed=5, published=published), next_step=7, positions=(begun,), oldest_step=0
    )
    if published > 5:
        newest = Version(3, "a6", 6, 0, {})
        recorded = replace(recorded, versions=(*recorded.versions, newest))
    (receipt,) = receipts(recorded, divisions, TOPICS, TOPIC, 0, offset)
    return receipt


def test_an_offset_of_a_topic_that_was_made_anew_is_not_the_old_topics() -> None:
    anew = slice_of("s", (0, 0, 30), topic_id="id2")
    planned = forgotten(anew, 5, published=5)
    assert (planned.status, planned.step) == (ReceiptStatus.PLANNED, 6)
    assert forgotten(anew, 40, published=5).status is ReceiptStatus.PENDING
    published = forgotten(anew, 5, published=6)
    assert (published.status, published.step) == (ReceiptStatus.PUBLISHED, 6)


def test_an_offset_that_was_forgotten_and_read_again_is_where_it_was_read_last() -> None:
    """Of the same topic, which has lost the records before offset 40."""
    again = slice_of("s", (0, 40, 70), (1, 60, 60))
    planned = forgotten(again, 45, published=5)
    assert (planned.status, planned.step) == (ReceiptStatus.PLANNED, 6)
    assert forgotten(again, 39, published=5).status is ReceiptStatus.SKIPPED


def test_two_sources_of_a_topic_have_a_receipt_each() -> None:
    recorded = state()
    other = replace(recorded.positions[0], source="t")
    recorded = replace(recorded, positions=(*recorded.positions, other))
    topics = {"t": TOPIC, "s": TOPIC}
    found = receipts(recorded, interval(0, 6).divisions, topics, TOPIC, 0, 70)
    assert [receipt.source for receipt in found] == ["s", "t"]


def test_before_the_first_step_a_record_of_a_source_is_pending() -> None:
    recorded = PipelineState("p", "i1", 1, FILES, sinks=SINKS)
    (receipt,) = receipts(recorded, (), TOPICS, TOPIC, 3, 17)
    assert receipt == Receipt("s", ReceiptStatus.PENDING, waiting=("v", "k"))
    assert str(receipt) == "source s: pending, in no step yet"


def test_a_source_that_no_step_has_read_is_pending_beside_one_that_was_read() -> None:
    recorded = state(committed=5, published=5)
    topics = {"s": TOPIC, "a": TOPIC, "other": "other"}
    found = receipts(recorded, interval(0, 6).divisions, topics, TOPIC, 0, 5)
    assert [(receipt.source, receipt.status) for receipt in found] == [
        ("a", ReceiptStatus.PENDING),
        ("s", ReceiptStatus.PUBLISHED),
    ]


def test_a_topic_that_no_source_reads_is_refused() -> None:
    for recorded in (state(), PipelineState("p", "i1", 1, FILES)):
        with pytest.raises(WrongUse, match="pipeline p does not read topic nope") as caught:
            receipts(recorded, (), {"s": TOPIC, "t": "more"}, "nope", 0, 0)
        assert caught.value.expected == "more or topic_s"
        assert caught.value.next_step == "lockstep receipt p TOPIC PARTITION OFFSET"


class SteppedClock:
    """A clock that moves when somebody sleeps."""

    def __init__(self) -> None:
        self.time = at(0)

    def now(self) -> datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


def test_waiting_ends_when_every_sink_shows_it() -> None:
    lives = iter(
        [state(), state(committed=5), state(committed=5, published=2), state(5, published=5)]
    )
    waited = wait_until_settled(lambda: (one(next(lives), 0, 35),), "it", 60, SteppedClock())
    assert [receipt.published for receipt in waited] == [("v", "k")]
    assert next(lives, None) is None


def test_waiting_ends_where_a_source_began_later() -> None:
    recorded = replace(state(), positions=(slice_of("s", (0, 40, 60)),))
    waited = wait_until_settled(lambda: (one(recorded, 0, 39),), "it", 60, SteppedClock())
    assert [receipt.status for receipt in waited] == [ReceiptStatus.SKIPPED]


def test_waiting_is_given_up_with_words() -> None:
    clock = SteppedClock()
    recorded = state(committed=5, published=2)
    with pytest.raises(Retry) as caught:
        wait_until_settled(
            lambda: (one(recorded, 0, 29), one(recorded, 0, 35)), "offset 35 of t[0]", 7.5, clock
        )
    error = caught.value
    assert error.exit_code == 1
    assert error.message == "offset 35 of t[0] is not published everywhere after 7.5 seconds"
    assert error.found == "source s: in step 3; committed, held by version 2; not yet by v, k"
    assert clock.time == at(7.5)


def test_the_input_of_a_step() -> None:
    recorded, divisions = state(committed=5, oldest_step=2), interval(0, 6).divisions
    assert input_of_step(recorded, divisions[4:5], 4).slices == (
        slice_of("s", (0, 40, 50), (1, 40, 50)),
    )
    with pytest.raises(WrongUse, match="pipeline p: step 1 is trimmed from the step log") as caught:
        input_of_step(recorded, (), 1)
    assert caught.value.expected == "a step from 2 to 5"
    assert "_steps WHERE step = 1" in caught.value.next_step
    with pytest.raises(WrongUse, match="pipeline p: step 6 is not recorded yet") as caught:
        input_of_step(recorded, (), 6)
    assert caught.value.next_step == "lockstep steps p"
