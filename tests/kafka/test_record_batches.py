"""What is taken out of batches of records: what was put in, of transactions that were committed."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from aiokafka.errors import CorruptRecordException, UnsupportedCodecError, UnsupportedVersionError
from batch_builders import CODECS, Sent, all_of, batch, marker
from hypothesis import given
from hypothesis import strategies as st

from lockstep_engine.sources.record_batches import Records, Taken, WholeBatches, committed, taken

TEXTS = st.none() | st.binary(max_size=300)


@st.composite
def sent(draw: st.DrawFn) -> tuple[list[Sent], int, int]:
    """Records with their offsets, the first offset of their batch and the last: some may be gone."""
    first = draw(st.integers(0, 1 << 40))
    places = draw(st.lists(st.integers(0, 200), min_size=1, max_size=40, unique=True).map(sorted))
    if draw(st.booleans()):
        places = list(range(len(places)))
    times = st.integers(0, 1 << 42)
    records = [Sent(first + one, draw(TEXTS), draw(TEXTS), draw(times)) for one in places]
    return records, first, first + places[-1] + draw(st.integers(0, 3))


def told(*parts: Taken) -> list[Sent]:
    """All that is told of each."""
    if not any(part.values for part in parts):
        return []
    records = Records([part for part in parts if part.values])
    assert len(records) == len(records.values)
    columns = (records.offsets.tolist(), records.values, records.keys(), records.timestamps())
    return [Sent(*one) for one in zip(*columns, strict=True)]


@given(sent(), st.sampled_from(sorted(CODECS)))
def test_what_was_sent_comes_out(made: tuple[list[Sent], int, int], codec: str) -> None:
    records, first, last = made
    data = batch(records, last, codec=codec, first=first)
    (found,) = WholeBatches(memoryview(data))
    assert (found.first_offset, found.next_offset) == (first, last + 1)
    all_ = all_of(data)
    assert told(all_) == records
    assert all_.next_offset == last + 1
    assert all_.size >= sum(len(one.value or b"") for one in records)


@given(st.lists(sent(), min_size=1, max_size=4), st.data())
def test_parts_and_what_is_put_together(
    made: list[tuple[list[Sent], int, int]], data: st.DataObject
) -> None:
    parts, all_ = [], []
    for records, first, last in made:
        cuts = data.draw(st.lists(st.integers(0, len(records)), max_size=3).map(sorted))
        whole = all_of(batch(records, last, first=first))
        pieces = [whole.cut(*pair) for pair in pairwise([0, *cuts, len(records)])]
        assert sum(piece.size for piece in pieces) <= whole.size
        parts += [one.cut(0, 1) if len(one.values) == 1 else one for one in pieces]
        all_ += records
    assert told(*parts) == all_


@given(
    st.lists(
        st.tuples(sent(), st.sampled_from(sorted(CODECS)), st.none() | st.just(77)), min_size=1
    ),
    st.integers(1, 60),
    st.integers(1, 4000),
)
def test_batches_together(
    made: list[tuple[tuple[list[Sent], int, int], str, int | None]], most: int, most_bytes: int
) -> None:
    """Of what kind they are, and how many records each has, is not to be seen."""
    log, expected, start = [], list[Sent](), 0
    for (records, first, last), codec, appended in made:
        moved = [replace(one, offset=one.offset - first + start) for one in records]
        end = last - first + start
        log.append(batch(moved, end, codec=codec, first=start, appended=appended))
        # The cleaner leaves a batch without records where they are gone, to tell who wrote it.
        log.append(batch([], end + 3, first=end + 1))
        start = end + 4
        expected += [one if appended is None else replace(one, timestamp=77) for one in moved]
    found = list(taken(WholeBatches(memoryview(b"".join(log))), most, most_bytes))
    assert told(*found) == expected
    assert found[-1].next_offset == start
    assert all(len(one) >= most or one.size >= most_bytes for one in found[:-1])


def test_as_many_together_as_there_is_room_for() -> None:
    log = [batch([Sent(one, b"a" * 100)], one, first=one) for one in range(10)]
    by_records = taken(WholeBatches(memoryview(b"".join(log))), 4, 1 << 20)
    assert [one.offsets.tolist() for one in by_records] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    by_bytes = taken(WholeBatches(memoryview(b"".join(log))), 99, 300)
    assert [len(one) for one in by_bytes] == [3, 3, 3, 1]


@given(sent(), st.data())
def test_records_between_offsets(made: tuple[list[Sent], int, int], data: st.DataObject) -> None:
    records, first, last = made
    start, end = sorted(data.draw(st.tuples(*[st.integers(first - 2, last + 3)] * 2)))
    expected = [one for one in records if start <= one.offset < end]
    found = all_of(batch(records, last, first=first)).between(start, end)
    assert told(found) == expected
    assert told(found.cut(1, len(expected))) == expected[1:]


def test_a_batch_that_was_cut_off_is_not_there() -> None:
    whole, other = batch([Sent(0), Sent(1)], 1), batch([Sent(2)], 2, first=2)
    for cut in range(len(other)):
        found = list(WholeBatches(memoryview(whole + other[:cut])))
        assert [one.next_offset for one in found] == [2]
    assert [one.next_offset for one in WholeBatches(memoryview(whole + other))] == [2, 3]
    assert list(WholeBatches(memoryview(b""))) == []


def test_bytes_that_have_changed_on_their_way_are_seen() -> None:
    data = bytearray(batch([Sent(0, b'{"n": 1}')], 0))
    for place in range(21, len(data)):
        data[place] ^= 1
        (found,) = WholeBatches(memoryview(data))
        with pytest.raises(CorruptRecordException, match="not what its checksum says"):
            found.check()
        data[place] ^= 1


def test_records_of_an_old_format() -> None:
    data = bytearray(batch([Sent(0)], 0))
    data[16] = 1
    with pytest.raises(UnsupportedVersionError, match="records of format 1"):
        list(WholeBatches(memoryview(data)))


def counted(data: Sequence[bytes], *aborted: tuple[int, int]) -> list[int]:
    """The offsets that count."""
    batches = committed(WholeBatches(memoryview(b"".join(data))), aborted)
    return [offset for one in taken(batches, 2, 1 << 20) for offset in one.offsets.tolist()]


def one(offset: int, producer: int) -> bytes:
    return batch([Sent(offset)], offset, producer, first=offset)


def test_aborted_transactions_and_others_beside_them() -> None:
    log = [
        one(0, -1),
        one(1, 7),
        one(2, 8),
        marker(3, 7, commits=False),
        one(4, 7),
        one(5, -1),
        marker(6, 8, commits=True),
        one(7, 8),
        marker(8, 7, commits=True),
        marker(9, 8, commits=False),
    ]
    assert counted(log, (7, 1), (8, 7)) == [0, 2, 4, 5]
    assert counted(log, (8, 7), (7, 1)) == [0, 2, 4, 5], "the broker need not sort them"
    assert counted(log) == [0, 1, 2, 4, 5, 7]


def test_a_transaction_that_began_before_what_was_asked_for() -> None:
    log = [one(10, 7), marker(11, 7, commits=False), one(12, 7), marker(13, 7, commits=True)]
    assert counted(log, (7, 3)) == [12]


def test_a_producer_that_aborts_twice() -> None:
    log = [one(0, 7), marker(1, 7, commits=False), one(2, 7), marker(3, 7, commits=False)]
    assert counted(log, (7, 0), (7, 2)) == []


def test_what_is_passed_by_is_checked_too() -> None:
    """It says where the next one begins."""
    aborted = bytearray(one(0, 7))
    aborted[26] ^= 8  # of its last offset
    with pytest.raises(CorruptRecordException, match="not what its checksum says"):
        counted([bytes(aborted), marker(1, 7, commits=False)], (7, 0))


@pytest.mark.parametrize("length", [-12, 0, 48])
def test_lengths_that_no_batch_has(length: int) -> None:
    data = bytearray(batch([Sent(0, b"a" * 100)], 0))
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(CorruptRecordException, match=f"a batch of {length + 12} bytes"):
        list(WholeBatches(memoryview(data)))


def test_a_short_record_of_an_old_format() -> None:
    data = struct.pack(">qiIbb", 0, 6, 0, 1, 0) + b"12345"
    with pytest.raises(UnsupportedVersionError, match="records of format 1"):
        list(WholeBatches(memoryview(data)))


def test_a_header_whose_name_is_not_utf8() -> None:
    """Some producers let it through, and the parser does not."""
    good = batch([Sent(0, b"{}")], 0, headers=[("aa", b"b")])
    assert all_of(good).values == [b"{}"]
    with pytest.raises(CorruptRecordException, match="UnicodeDecodeError"):
        all_of(good.replace(b"aa", b"\xff\xfe"))


def test_what_was_packed_wrongly() -> None:
    for codec in sorted(set(CODECS) - {"none"}):
        data = bytearray(batch([Sent(0, b"a" * 1000)], 0, codec=codec))
        data[61:] = bytes(len(data) - 61)
        with pytest.raises(CorruptRecordException):
            all_of(bytes(data))


def test_a_way_to_pack_that_nobody_knows() -> None:
    data = bytearray(batch([Sent(0)], 0))
    data[22] |= 7
    with pytest.raises(UnsupportedCodecError, match="packed in way 7"):
        all_of(bytes(data))
