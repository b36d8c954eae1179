"""What the benchmarks of aims count: which keys change when, and when files are bounded."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from typing import Any, cast

import aims_disk
import aims_report
import aims_small
import aims_steps
import pytest
from aims_bench import Bench, median, medians


def test_every_key_changes_in_every_step_at_the_most_steps() -> None:
    keys, steps = 50, 1000
    records = aims_steps.numbered_records(keys * steps, keys, seed=1)
    values = {}
    for step in range(3):
        taken = list(islice(records, keys))
        assert [key for key, _ in taken] == list(range(keys)), f"step {step}"
        rows = [json.loads(text) for _, text in taken]
        changed = [row["amount"] != values.get(row["key"]) for row in rows]
        assert sum(changed) > keys * 0.99, "another amount than before"
        values.update({row["key"]: row["amount"] for row in rows})


class Sent:
    """In the place of a stack and of a topic: what a feed would have sent there."""

    def __init__(self) -> None:
        self.topics = dict[str, Sent]()
        self.rows = list[dict[str, Any]]()

    def topic(self, name: str, partitions: int) -> Sent:
        assert partitions == 4
        return self.topics.setdefault(name, Sent())

    def send(self, rows: Iterable[tuple[int, str]]) -> None:
        self.rows.extend(json.loads(text) for _, text in rows)


def test_each_topic_of_a_feed_gets_its_own_kind() -> None:
    sent = Sent()
    feed = aims_small.Feed(cast("Bench", sent))
    feed.send(49 * 100)
    feed.send(49 * 10)
    auctions, bids = (sent.topics[aims_small.PREFIX + kind].rows for kind in ("auction", "bid"))
    assert [len(auctions), len(bids)] == [330, 46 * 110]
    assert all("seller" in row for row in auctions)
    assert all("bidder" in row for row in bids)
    assert len({row["id"] for row in auctions}) == len(auctions)


@pytest.mark.parametrize(
    ("counts", "is_bounded"),
    [
        (range(1, 1001), False),
        ([count % 8 + 20 for count in range(1000)], True),
        ([20 + number.bit_length() for number in range(1000)], True),
    ],
    ids=["one an interval", "merged by eights", "by the logarithm"],
)
def test_files_that_grow_with_intervals_are_not_bounded(
    counts: list[int], is_bounded: bool
) -> None:
    assert (aims_disk.growth(counts) <= aims_disk.GROWTH) is is_bounded


def test_medians_are_of_the_parts_that_all_have() -> None:
    assert median([3.0, 1.0, 2.0, 4.0]) == 2.0, "the lower of the two in the middle"
    found = [{"read": 1.0, "new": 9.0}, {"read": 3.0}, {"read": 2.0}]
    assert medians(found) == {"read": 2.0}


def test_the_table_says_what_does_not_hold() -> None:
    saved = {
        "replay": {
            "target": "20 x",
            "measured": "12.0 x",
            "holds": False,
            "scale": "an hour",
            "load": 1.5,
        }
    }
    assert "| replay | 20 x | 12.0 x | no | an hour | 1.5 |" in aims_report.table(saved)
