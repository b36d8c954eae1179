"""What a publish to Kafka has to do, decided from markers and counts alone: pure.

The law: every row of the outbox up to a shard's marker is in the topic once, and no other row of
that shard is. Rows and marker move in one transaction; a transaction ends with a step; it is
committed only if it holds as many rows as the outbox says, because in a job that fails the other
tasks' inputs end early without an error.

The number of shards stands in each marker. It can change only between two publishes, when all
markers are equal: every id, old and new, then stamps its marker with the new number before a row
goes out, and whoever still works with the old number finds that out in its own transaction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from lockstep.errors import StateDiverged

__all__ = [
    "FencedError",
    "IncompleteRowsError",
    "Marker",
    "Message",
    "ShardLink",
    "ShardWork",
    "SinkPlan",
    "Transaction",
    "cut_transactions",
    "plan_shards",
    "send_shard",
]


@dataclass(frozen=True)
class Marker:
    """The last step that a shard has published (-1: none), and the number of shards at that time."""

    step: int
    shards: int

    @property
    def offset(self) -> int:
        """The step as an offset; these are never negative, so the metadata says it as well."""
        return max(self.step, 0)

    @property
    def metadata(self) -> str:
        """As it stands beside the offset."""
        return f"step={self.step} shards={self.shards}"

    @staticmethod
    def read(offset: int, metadata: str | None) -> Marker:
        """Raises ValueError where offset and metadata are not ours."""
        found = re.fullmatch(r"step=(-1|\d+) shards=(\d+)", metadata or "")
        marker = Marker(int(found[1]), int(found[2])) if found else None
        if marker is None or marker.offset != offset:
            raise ValueError(f"offset {offset} with metadata {metadata!r} is no marker of a sink")
        return marker


@dataclass(frozen=True)
class Message:
    """One record for the topic. `partition` -1: by the key."""

    step: int
    partition: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class Transaction:
    """The rows of the steps up to `last_step` that no transaction before it holds."""

    last_step: int
    rows: int


@dataclass(frozen=True)
class ShardWork:
    """What one shard's task does: from after step `after` to `last_step`; `rows` by step, those
    steps left out that have none. `shards` must stand in the marker, if there is one."""

    shard: int
    shards: int
    after: int
    last_step: int
    rows: Mapping[int, int]


@dataclass(frozen=True)
class SinkPlan:
    """`shards` is the number to publish with, `after` the step that each of them has. `stamp` maps
    shards whose marker has to be written, in this order, before any row, to the step that it has."""

    shards: int
    after: Mapping[int, int]
    stamp: Mapping[int, int]


class ShardLink(Protocol):
    """A transactional producer of one shard, fenced against all before it."""

    def open(self) -> Marker | None:
        """Fence others with this shard's id, abort what they left, then read the marker."""
        ...

    def begin(self) -> None: ...

    def send(self, message: Message) -> None: ...

    def abort(self) -> None: ...

    def commit(self, marker: Marker) -> None:
        """Rows and marker, or neither."""
        ...


class FencedError(Exception):
    """Another publish has taken over a shard, or moved it: what is published has to be read again."""

    TEXT = "another publish has taken over"


class IncompleteRowsError(Exception):
    """The input of a task is not what the outbox holds for its shard."""


def plan_shards(
    markers: Mapping[int, Marker], wanted_shards: int, published: int, sink: str
) -> SinkPlan:
    """Which shards to publish with, from their markers and what the store says is published.

    A shard without a marker stands at `published`; the first publish stamps them all. The marker of
    shard 0 is stamped last, so its number of shards is the one that holds; markers beyond it belong
    to retired shards. While the steps differ, a publish was interrupted: it is ended with the number
    of shards that it had.
    Raises StateDiverged where a marker is behind what the store says, FencedError where markers are
    not of one moment: each is read once its own shard is fenced, and a stamp must not move one back.
    """
    if not markers:
        everyone = dict.fromkeys(range(wanted_shards), published)
        return SinkPlan(wanted_shards, everyone, _zero_last(everyone))
    shards = _shards_in_force(markers, sink)
    after = {s: markers[s].step if s in markers else published for s in range(shards)}
    behind = {shard: step for shard, step in after.items() if step < published}
    if behind:
        raise _diverged(sink, f"every shard at step {published} or beyond", f"shards at {behind}")
    if len(set(after.values())) > 1:
        # A publish that wanted another number, and lost to this one, may have stamped some shards.
        strays = {s: after[s] for s in after if s in markers and markers[s].shards != shards}
        return SinkPlan(shards, after, _zero_last(strays))
    step = after[0]
    stamp = {
        shard: step
        for shard in range(max(shards, wanted_shards))
        if markers.get(shard) != Marker(step, wanted_shards)
    }
    ahead = {s: markers[s].step for s in stamp if s in markers and markers[s].step > step}
    if ahead:
        raise FencedError(
            f"{FencedError.TEXT} sink {sink}: shards at {ahead}, read after others at step {step}"
        )
    return SinkPlan(wanted_shards, dict.fromkeys(range(wanted_shards), step), _zero_last(stamp))


def _shards_in_force(markers: Mapping[int, Marker], sink: str) -> int:
    if 0 in markers:
        return markers[0].shards
    counts = {marker.shards for marker in markers.values()}
    if len(counts) > 1:
        raise _diverged(sink, "a marker of shard 0", f"{dict(markers)}")
    return counts.pop()


def _zero_last(stamp: Mapping[int, int]) -> dict[int, int]:
    return {shard: stamp[shard] for shard in sorted(stamp, reverse=True)}


def cut_transactions(
    rows: Mapping[int, int], after: int, last_step: int, row_limit: int
) -> tuple[Transaction, ...]:
    """Steps after `after` to `last_step` as transactions of at most `row_limit` rows each, unless a
    single step has more. Never empty where there are steps: the last one moves the marker."""
    if after >= last_step:
        return ()
    cuts: list[Transaction] = []
    held, held_to = 0, after
    for step in sorted(step for step in rows if after < step <= last_step):
        if held and held + rows[step] > row_limit:
            cuts.append(Transaction(held_to, held))
            held = 0
        held, held_to = held + rows[step], step
    return (*cuts, Transaction(last_step, held))


def send_shard(
    work: ShardWork, messages: Iterator[Message], link: ShardLink, row_limit: int
) -> int:
    """Publish a shard's messages, which come in order of steps; returns how many were sent.

    What the marker says is done is passed over. Raises IncompleteRowsError where the messages are
    not as many as expected, with nothing of that transaction published, and FencedError where the
    marker is none that this work was planned from.
    """
    marker = link.open()
    after = work.after if marker is None else marker.step
    if after < work.after or (marker is not None and marker.shards != work.shards):
        raise FencedError(
            f"{FencedError.TEXT} shard {work.shard}: planned from step {work.after} with "
            f"{work.shards} shards, found {marker}"
        )
    sent = 0
    pending = next(messages, None)
    while pending is not None and pending.step <= after:
        pending = next(messages, None)
    for transaction in cut_transactions(work.rows, after, work.last_step, row_limit):
        link.begin()
        count = 0
        while pending is not None and pending.step <= transaction.last_step:
            link.send(pending)
            count += 1
            pending = next(messages, None)
        is_last = transaction.last_step == work.last_step
        if count != transaction.rows or (is_last and pending is not None):
            link.abort()
            raise IncompleteRowsError(
                f"shard {work.shard}, up to step {transaction.last_step}: expected "
                f"{transaction.rows} rows, saw {count}; nothing of them was published"
            )
        link.commit(Marker(transaction.last_step, work.shards))
        sent += count
    return sent


def _diverged(sink: str, expected: str, found: str) -> StateDiverged:
    return StateDiverged(
        f"sink {sink}: its markers in Kafka do not fit what is recorded",
        expected=expected,
        found=found,
        next_step="lockstep doctor DIR",
    )
