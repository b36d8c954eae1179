"""What a publish to Kafka has to do, decided from markers and counts alone: pure.

The law: every row of the outbox up to a shard's marker is in the topic once, and no other row of
that shard is. Rows and marker move in one transaction. A step is said to be there only if as many of
its rows have gone out as the outbox says, because in a job that fails the other tasks' inputs end
early without an error.

Rows of a step have one order, so a step too long for one transaction can be cut anywhere: the marker
then says how many rows of the next step are there, and the digest of all of them, so that what goes
on later is the same step.

The number of shards stands in each marker. It can change only between two publishes, when all
markers are equal: every id, old and new, then stamps its marker with the new number before a row
goes out, and whoever still works with the old number finds that out in its own transaction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from lockstep.errors import StateDiverged

__all__ = [
    "FencedError",
    "IncompleteRowsError",
    "LostMarkers",
    "Marker",
    "Message",
    "ShardLink",
    "ShardWork",
    "SinkPlan",
    "StepRows",
    "check_part",
    "lost_markers",
    "marker_after",
    "markers_from_tail",
    "plan_shards",
    "rows_of_next_transaction",
    "send_shard",
    "step_of_all",
]

_METADATA = re.compile(r"step=(-1|\d+) shards=(\d+)(?: rows=(\d+) digest=([0-9a-f]*))?")


@dataclass(frozen=True)
class Marker:
    """How far a shard is: all steps up to `step` (-1: none), and the first `rows` rows of the next
    one. `shards` is the number of shards at that time.

    `digest` is that of all rows which the next step has in this shard; '' where `rows` is 0, or where
    it was read from the topic, which does not say.
    """

    step: int
    shards: int
    rows: int = 0
    digest: str = ""

    @property
    def offset(self) -> int:
        """The step as an offset; these are never negative, so the metadata says it as well."""
        return max(self.step, 0)

    @property
    def metadata(self) -> str:
        """As it stands beside the offset."""
        part = f" rows={self.rows} digest={self.digest}" if self.rows else ""
        return f"step={self.step} shards={self.shards}{part}"

    @staticmethod
    def read(offset: int, metadata: str | None) -> Marker:
        """Raises ValueError where offset and metadata are not ours."""
        found = _METADATA.fullmatch(metadata or "")
        if found is not None:
            step, shards, rows, digest = found.groups()
            marker = Marker(int(step), int(shards), int(rows or 0), digest or "")
            if marker.offset == offset:
                return marker
        raise ValueError(f"offset {offset} with metadata {metadata!r} is no marker of a sink")


@dataclass(frozen=True)
class Message:
    """One record for the topic. `partition` -1: by the key."""

    step: int
    partition: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class StepRows:
    """What a step has in a shard: how many messages, the sum of their hashes as hex digits, and a key
    that came twice, if one did."""

    count: int
    digest: str
    twice: str | None = None


@dataclass(frozen=True)
class ShardWork:
    """What one shard's task does: from after step `after` to `last_step`; `rows` and `digests` by
    step, those steps left out that have no rows. `shards` must stand in the marker."""

    shard: int
    shards: int
    after: int
    last_step: int
    rows: Mapping[int, int]
    digests: Mapping[int, str] = field(default_factory=dict)

    def left(self, marker: Marker) -> Iterator[tuple[int, int]]:
        """Steps with rows after the marker, in order, and how many of these rows are not there."""
        for step in sorted(step for step in self.rows if marker.step < step <= self.last_step):
            yield step, self.rows[step] - (marker.rows if step == marker.step + 1 else 0)


@dataclass(frozen=True)
class SinkPlan:
    """`shards` is the number to publish with, `after` the step that each of them has. `stamp` are the
    markers that have to be written, in this order, before any row."""

    shards: int
    after: Mapping[int, int]
    stamp: Mapping[int, Marker]


class ShardLink(Protocol):
    """A transactional producer of one shard, fenced against all before it."""

    def open(self) -> Marker | None:
        """Fence others with this shard's id, abort what they left, then read the marker."""
        ...

    def begin(self) -> None: ...

    def send(self, message: Message) -> bool:
        """Whether the transaction has lasted long, and should end with this message."""
        ...

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
    to retired shards. While the steps differ, or one of them is there in part, a publish was
    interrupted: it is ended with the number of shards that it had.

    Where any marker is stamped, that of shard 0 is, as it was maybe: another publish may have taken over
    shard 0 since it was fenced, changed the number of shards, and not come to the others. That stamp it
    then refuses, before a row goes out with a number that holds no more.
    Raises StateDiverged where a marker is behind what the store says, FencedError where markers are
    not of one moment: each is read once its own shard is fenced, and a stamp must not move one back.
    """
    if not markers:
        everyone = dict.fromkeys(range(wanted_shards), published)
        first = {shard: Marker(published, wanted_shards) for shard in everyone}
        return SinkPlan(wanted_shards, everyone, _zero_last(first, markers))
    shards = _shards_in_force(markers, sink)
    after = {s: markers[s].step if s in markers else published for s in range(shards)}
    behind = {shard: step for shard, step in after.items() if step < published}
    if behind:
        raise _diverged(sink, f"every shard at step {published} or beyond", f"shards at {behind}")
    in_parts = any(marker.rows for shard, marker in markers.items() if shard < shards)
    if in_parts or len(set(after.values())) > 1:
        # A publish that wanted another number, and lost to this one, may have stamped some shards.
        strays = {
            shard: Marker(step, shards)
            for shard, step in after.items()
            if shard not in markers or (markers[shard].shards != shards and not markers[shard].rows)
        }
        return SinkPlan(shards, after, _zero_last(strays, markers))
    step = after[0]
    stamp = {
        shard: Marker(step, wanted_shards)
        for shard in range(max(shards, wanted_shards))
        if markers.get(shard) != Marker(step, wanted_shards)
    }
    ahead = {s: markers[s].step for s in stamp if s in markers and markers[s].step > step}
    if ahead:
        raise FencedError(
            f"{FencedError.TEXT} sink {sink}: shards at {ahead}, read after others at step {step}"
        )
    everyone = dict.fromkeys(range(wanted_shards), step)
    return SinkPlan(wanted_shards, everyone, _zero_last(stamp, markers))


def _shards_in_force(markers: Mapping[int, Marker], sink: str) -> int:
    if 0 in markers:
        return markers[0].shards
    counts = {marker.shards for marker in markers.values()}
    # Two numbers: it was being changed, which is done where all shards are equal.
    if len(counts) > 1 and len({(marker.step, marker.rows) for marker in markers.values()}) > 1:
        raise _diverged(sink, "a marker of shard 0", f"{dict(markers)}")
    return max(counts)


def _zero_last(stamp: Mapping[int, Marker], markers: Mapping[int, Marker]) -> dict[int, Marker]:
    """With shard 0's own marker, where others are stamped."""
    if not stamp:
        return {}
    also = {0: markers[0]} if 0 in markers else {}
    return dict(sorted({**also, **stamp}.items(), reverse=True))


# ── markers that are lost ───────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class LostMarkers:
    """Markers are lost, and the store does not know what they said. `shards` is the number in force, 0
    where no marker is left to say it; `is_one_left`: one is, and all that are stand at the step that is
    recorded as published."""

    shards: int
    is_one_left: bool


def lost_markers(
    markers: Mapping[int, Marker], published: int, was_intended: bool, sink: str
) -> LostMarkers | None:
    """Whether the topic has to tell; None where all markers are there, or the store knows what those
    that are lost said: no publish of later steps was ever begun.

    Kafka forgets each marker by itself, `offsets.retention.minutes` after its last commit.
    """
    shards = _shards_in_force(markers, sink) if markers else 0
    left = [markers[shard] for shard in range(shards) if shard in markers]
    are_at_published = all(one.step == published and not one.rows for one in left)
    if (shards and len(left) == shards) or (are_at_published and not was_intended):
        return None
    return LostMarkers(shards, bool(left) and are_at_published)


def step_of_all(markers: Mapping[int, Marker], sink: str) -> int:
    """The last step that every shard in force has by its marker; -1 where one of them says nothing."""
    if not markers:
        return -1
    shards = range(_shards_in_force(markers, sink))
    return min(markers[shard].step if shard in markers else -1 for shard in shards)


def markers_from_tail(
    tail: Mapping[tuple[int, int, int], int], shards: int, published: int
) -> dict[int, Marker]:
    """The markers as the end of the topic tells them.

    `tail`: by (shard, number of shards, step) how many records of steps after `published` are in the
    topic, all of them. `shards` is the number in force, 0 where nothing else tells it; then that of
    the newest step is, and there are no markers without any record. Records of a shard stand in order
    of steps, so those before its newest are whole; of the newest the count is how far it is. Records of
    another number of shards are whole steps, as that number changes only where all shards are equal.
    """
    if not shards and tail:
        _, shards, _ = max(tail, key=lambda record: record[2])
    base = max([published, *(step for _, number, step in tail if number != shards)])
    found: dict[int, Marker] = {}
    for shard in range(shards):
        steps = [step for one, number, step in tail if (one, number) == (shard, shards)]
        newest = max(steps, default=base)
        found[shard] = (
            Marker(newest - 1, shards, tail[shard, shards, newest])
            if newest > base
            else Marker(base, shards)
        )
    return found


# ── sending ─────────────────────────────────────────────────────────────────────────────────────


def rows_of_next_transaction(work: ShardWork, at: Marker, row_limit: int) -> int:
    """Whole steps, as many as fit; `row_limit` rows of a step that has more by itself."""
    held = 0
    for _, left in work.left(at):
        if held + left > row_limit:
            return held or row_limit
        held += left
    return held


def marker_after(work: ShardWork, at: Marker, rows: int) -> Marker:
    """Where a shard is that stood `at` a marker and has sent so many rows more."""
    for step, left in work.left(at):
        if rows < left:
            done = work.rows[step] - left + rows
            return Marker(step - 1, work.shards, done, work.digests.get(step, "") if done else "")
        rows -= left
    return Marker(work.last_step, work.shards)


def check_part(work: ShardWork, marker: Marker, sink: str) -> None:
    """Raise StateDiverged where the step of which a part is there has other rows now."""
    step = marker.step + 1
    rows, digest = work.rows.get(step, 0), work.digests.get(step, "")
    if not marker.rows or step > work.last_step:
        return
    if marker.rows > rows or (marker.digest and marker.digest != digest):
        raise _diverged(
            sink,
            f"step {step}, of which {marker.rows} rows of shard {work.shard} are in the topic, with "
            f"digest {marker.digest or 'unknown'}",
            f"{rows} rows with digest {digest}",
        )


def send_shard(
    work: ShardWork, messages: Iterator[Message], link: ShardLink, row_limit: int
) -> int:
    """Publish a shard's messages, which come in the order of steps and, within one, always in the
    same; returns how many were sent.

    What the marker says is done is passed over. Raises IncompleteRowsError where the messages are
    not as many as expected, with nothing of that transaction published, FencedError where the marker
    is none that this work was planned from, StateDiverged where it speaks of other rows.
    """
    at = link.open()
    if at is None or at.step < work.after or at.shards != work.shards:
        raise FencedError(
            f"{FencedError.TEXT} shard {work.shard}: planned from step {work.after} with "
            f"{work.shards} shards, found {at}"
        )
    check_part(work, at, f"shard {work.shard}")
    pending = _after(at, messages)
    sent = 0
    while at.step < work.last_step:
        link.begin()
        rows = rows_of_next_transaction(work, at, row_limit)
        count = _send_rows(work, at, rows, pending, link)
        at = marker_after(work, at, count)
        if at.step == work.last_step and next(pending, None) is not None:
            link.abort()
            raise _incomplete(work, at.step, f"{count} rows", "more")
        link.commit(at)
        sent += count
    return sent


def _send_rows(
    work: ShardWork, at: Marker, rows: int, pending: Iterator[Message], link: ShardLink
) -> int:
    """Send `rows` rows, or fewer where that takes long; how many were sent."""
    expected = (step for step, left in work.left(at) for _ in range(left))
    count = 0
    for step in islice(expected, rows):
        message = next(pending, None)
        if message is None or message.step != step:
            link.abort()
            saw = "the end" if message is None else f"one of step {message.step}"
            raise _incomplete(work, step, f"{rows} rows", f"{count} and then {saw}")
        count += 1
        if link.send(message):
            break
    return count


def _after(marker: Marker, messages: Iterator[Message]) -> Iterator[Message]:
    """The messages that are not published yet."""
    passed = 0
    for message in messages:
        if message.step == marker.step + 1 and passed < marker.rows:
            passed += 1
        elif message.step > marker.step:
            yield message


def _incomplete(work: ShardWork, step: int, expected: str, saw: str) -> IncompleteRowsError:
    return IncompleteRowsError(
        f"shard {work.shard}, up to step {step}: expected {expected}, saw {saw}; nothing of this "
        "transaction was published"
    )


def _diverged(sink: str, expected: str, found: str) -> StateDiverged:
    return StateDiverged(
        f"sink {sink}: its markers in Kafka do not fit what is recorded",
        expected=expected,
        found=found,
        next_step="lockstep doctor DIR",
    )
