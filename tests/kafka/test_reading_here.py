"""What this process reads of a topic by itself, by its threads and by processes beside it: the rows that
Spark's own source gives, or nothing, and then Spark is asked."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from kafka_builders import (
    T0,
    delete_before,
    idle_processes,
    interval,
    new_topic,
    read_by_itself,
    read_every_way,
    send,
    send_transaction,
    source,
    wait_until_decided,
)
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from lockstep.adapters.embedded.ports import HOST, free_ports
from lockstep.control.kafka_options import KafkaConnection
from lockstep.control.model import OffsetRange
from lockstep_engine.context import Context
from lockstep_engine.deltas import STEP
from lockstep_engine.kernels.plain_json import PLAIN, PlainObject
from lockstep_engine.kernels.plain_kinds import PlainRows
from lockstep_engine.kernels.plain_values import PlainColumn
from lockstep_engine.local.rows import Rows
from lockstep_engine.sources import (
    fetching,
    handing_over,
    plain_reading,
    plain_records,
    readers,
    reading_here,
)
from lockstep_engine.sources.kafka import read_kafka
from lockstep_engine.sources.offsets import StepRange
from lockstep_engine.sources.plain_reading import PlainReading
from lockstep_engine.sources.readers import CannotRead, a_reader, seats
from lockstep_engine.sources.reading_here import read_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

kafka = pytest.mark.kafka
spark_server = pytest.mark.spark

ROOM = 1 << 30
HEAD = handing_over._HEAD
CUTS = ((0, 20), (20, 40), (40, 50))
GOOD = b'{"n": %d, "t": "a\xc3\xa9"}'


@pytest.fixture(autouse=True)
def _no_readers() -> Iterator[None]:
    """Each test starts its own."""
    readers._READERS.end()
    yield
    readers._READERS.end()


@pytest.fixture
def utc(spark: SparkSession) -> SparkSession:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return spark


def by_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """So does whatever is read from now on; there are no processes."""
    monkeypatch.setattr(reading_here, "MANY_RECORDS", 1 << 40)
    monkeypatch.setattr(reading_here, "_by_another", _unwanted)


def by_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """So does whatever is read from now on, by two of them; this one reads nothing."""
    monkeypatch.setattr(reading_here, "MANY_RECORDS", 0)
    monkeypatch.setattr(reading_here, "seats", lambda: 2)
    monkeypatch.setattr(plain_reading, "fetched", _unwanted)


def _unwanted(*_: object) -> None:
    raise AssertionError("this is not to be the way")


ways = pytest.mark.parametrize("way", [by_threads, by_processes])
Way = Callable[[pytest.MonkeyPatch], None]


def plain_reading_of(bootstrap: str, topic: str, *ranges: StepRange) -> PlainReading:
    """Of records like GOOD."""
    shape = pa.schema(
        [
            ("_partition", pa.int32()),
            ("_offset", pa.int64()),
            ("_timestamp", pa.timestamp("us", "UTC")),
            ("_key", pa.binary()),
            ("_value", pa.binary()),
            (STEP, pa.int64()),
            (PLAIN, pa.bool_()),
            ("n", pa.int64()),
            ("t", pa.string()),
        ]
    )
    columns = (PlainColumn("n", pa.int64(), False), PlainColumn("t", pa.string(), False))
    kind = PlainRows(PlainObject(columns))
    return PlainReading(KafkaConnection(bootstrap), topic, ranges, kind, (0, 1), shape, STEP)


def good(first: int, end: int) -> list[bytes]:
    return [GOOD % number for number in range(first, end)]


@pytest.fixture
def some(broker: Any) -> PlainReading:
    """Of a topic of two partitions, with 50 records and 10."""
    topic = new_topic(broker.bootstrap, 2)
    send(broker.bootstrap, topic, good(0, 50))
    send(broker.bootstrap, topic, good(50, 60), partition=1)
    ranges = (StepRange(0, 0, 20, 0), StepRange(0, 20, 50, 1), StepRange(1, 0, 10, 1))
    return plain_reading_of(broker.bootstrap, topic, *ranges)


def assert_is_whole(found: pa.Table | None, first: int = 0, end: int = 60) -> None:
    """It has the numbered records of `some`."""
    assert found is not None
    numbers = list(range(first, end))
    assert found["n"].to_pylist() == numbers
    assert found["t"].to_pylist() == ["a\xe9"] * len(numbers)
    assert found[STEP].to_pylist() == [int(number >= 20) for number in numbers]


@ways
@kafka
@spark_server
def test_the_rows_of_spark(
    utc: SparkSession, broker: Any, monkeypatch: pytest.MonkeyPatch, way: Way
) -> None:
    """Records that are plain, undecided and good, undecided and bad; offsets that no record has; and all
    that metadata columns may show."""
    topic = new_topic(broker.bootstrap, 3)
    values: list[bytes | None] = [*good(0, 300), b' {"n": 1, "t": null}', None, b"{", b"\xff"]
    values += [b'{"n": "5", "t": "x"}', b'{"n": 5}', b'{"t": "x", "n": 6, "more": [1]}', b""]
    send(broker.bootstrap, topic, values, timestamp=1_700_000_000_123)
    send_transaction(broker.bootstrap, topic, good(300, 310), commit=False, partition=1)
    send_transaction(broker.bootstrap, topic, good(310, 320), commit=True, partition=1)
    send(broker.bootstrap, topic, [b"[]"] * 3, partition=2, timestamp=1_600_000_000_000)
    wait_until_decided(broker.bootstrap, topic)
    metadata = (("p", "INT"), ("o", "BIGINT"), ("at", "TIMESTAMP"), ("of", "STRING"))
    table = source(
        broker.bootstrap,
        topic,
        (("n", "BIGINT"), ("t", "STRING"), *metadata, ("stepped", "TIMESTAMP")),
        metadata="partition AS p, offset AS o, timestamp AS at, topic AS of, step_time AS stepped",
    )
    steps = interval(topic, [{0: 3}, {0: 200, 1: 4}, {0: 304, 1: 15}, {0: 308, 1: 22, 2: 3}], 7)
    first = round(T0.timestamp())
    times = tuple((first + number) * 1_000_000 for number in range(3))
    way(monkeypatch)
    for columns in (tuple(column.key for column in table.columns), ("o", "stepped")):
        found = read_every_way(table, columns, steps, Context(utc, 1000, times=times))
        assert isinstance(found.delta, DataFrame)
        assert found.delta.count() == 297 + 2 + 10
        assert found.bad_records() == 6 + 3


@ways
@kafka
@spark_server
def test_bad_records_alone(
    utc: SparkSession, broker: Any, monkeypatch: pytest.MonkeyPatch, way: Way
) -> None:
    topic = new_topic(broker.bootstrap)
    send(broker.bootstrap, topic, [None, b"{", b'{"n": 1.5}'])
    way(monkeypatch)
    table = source(broker.bootstrap, topic, (("n", "BIGINT"),))
    found = read_every_way(table, ("n",), interval(topic, [{0: 0}, {0: 3}]), Context(utc, 9))
    assert (found.bad_records(), found.errors.count()) == (3, 3)


@kafka
def test_threads_and_processes_read_the_same(
    some: PlainReading, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for way in (by_threads, by_processes):
        with monkeypatch.context() as patched:
            way(patched)
            found[way] = read_here(some, ROOM)
            assert_is_whole(found[way])
    assert found[by_threads] == found[by_processes]
    assert 1 <= len(idle_processes()) <= seats()


@kafka
def test_what_is_more_than_there_is_room_for(
    some: PlainReading, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        by_threads(patched)
        assert read_here(some, 1) is None
        assert_is_whole(read_here(some, ROOM))
    by_processes(monkeypatch)
    assert_is_whole(read_here(some, ROOM))
    before = idle_processes()
    assert read_here(some, 1) is None
    ended = [one for one in before if one.poll() is not None]
    assert ended
    assert not set(ended) & set(idle_processes())
    assert_is_whole(read_here(some, ROOM))
    assert all(one.poll() is None for one in idle_processes())


@pytest.mark.parametrize(
    ("start", "end", "steps"), [(0, 50, [0, 1, 2]), (10, 20, [0]), (19, 21, [0, 1]), (20, 30, [1])]
)
def test_a_slice_is_sent_with_its_own_ranges(start: int, end: int, steps: list[int]) -> None:
    ranges = [StepRange(0, at, until, step) for step, (at, until) in enumerate(CUTS)]
    reading = plain_reading_of("b", "t", *ranges, StepRange(1, 0, 50, 0))
    own = reading.of(OffsetRange(0, start, end))
    assert replace(own, ranges=reading.ranges) == reading
    assert [one.step for one in own.ranges] == steps
    assert {one.partition for one in own.ranges} == {0}


def test_room_is_taken_to_the_last_byte() -> None:
    batch = pa.record_batch({"n": pa.array([1, 2, 3]), PLAIN: pa.array([True] * 3)})
    assert list(reading_here._Room(2 * batch.nbytes).taken([batch] * 2)) == [batch] * 2
    with pytest.raises(CannotRead, match="more than this process should hold"):
        list(reading_here._Room(2 * batch.nbytes - 1).taken([batch] * 2))
    room = reading_here._Room(batch.nbytes)
    assert list(room.taken([batch])) == [batch]
    with pytest.raises(CannotRead):
        list(room.taken([batch]))


@kafka
def test_processes_that_were_killed_are_replaced(
    some: PlainReading, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_processes(monkeypatch)
    assert_is_whole(read_here(some, ROOM))
    killed = idle_processes()
    for one in killed:
        os.kill(one.pid, signal.SIGKILL)
        one.wait(10)
    assert_is_whole(read_here(some, ROOM))
    assert not {one.pid for one in killed} & {one.pid for one in idle_processes()}


def test_where_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    by_processes(monkeypatch)
    monkeypatch.setattr(sys, "executable", f"{sys.executable}.not.there")
    assert read_here(plain_reading_of("h:1", "t", StepRange(0, 0, 9, 0)), ROOM) is None


@kafka
def test_processes_that_are_killed_as_they_read_are_replaced(
    some: PlainReading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait for a record that does not come."""
    by_processes(monkeypatch)
    longer = replace(some, ranges=(StepRange(0, 0, 51, 0),))
    killed = []

    def kill_and_listen(link: socket.socket) -> pa.RecordBatch | str | None:
        [asked] = [one._process for one in readers._READERS.all if one._link is link]
        killed.append(asked)
        asked.kill()
        return handing_over.receive(link)

    with patch.object(readers, "receive", kill_and_listen):
        assert read_here(longer, ROOM) is None
    assert killed
    assert {one.returncode for one in killed} == {-signal.SIGKILL}
    assert idle_processes() == []
    assert_is_whole(read_here(some, ROOM))


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"", "it said nothing more"),
        (b"b\0", "it said nothing more"),
        (HEAD.pack(handing_over.BATCH, 9) + b"123456789", "its batch did not come"),
        (HEAD.pack(handing_over.FAILED, 5) + b"oops", "it said less than it announced"),
        (HEAD.pack(handing_over.FAILED, 4) + b"oops", "^oops$"),
        (HEAD.pack(b"x", 0), "which says nothing"),
    ],
)
def test_answers_that_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes, sentence: str
) -> None:
    told, program = tmp_path / "told", tmp_path / "program"
    told.write_bytes(answer)
    # What it is asked comes as one, and all of it is taken: else nobody would be told the end.
    program.write_text(f"#!/bin/sh\ndd bs=65536 count=1 of={tmp_path}/asked\ncat {told} >&0\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    reading = plain_reading_of("h:1", "t", StepRange(0, 0, 9, 0))
    with pytest.raises(CannotRead, match=sentence), a_reader() as one:
        list(one.read(reading, OffsetRange(0, 0, 9)))
    assert idle_processes() == []
    assert one._process.returncode is not None


@kafka
@spark_server
def test_offsets_that_are_gone_are_for_spark_to_complain_of(
    utc: SparkSession, broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(broker.bootstrap)
    send(broker.bootstrap, topic, good(0, 5))
    delete_before(broker.bootstrap, topic, 2)
    table = source(broker.bootstrap, topic, (("n", "BIGINT"),))
    for way in (by_threads, by_processes):
        with monkeypatch.context() as patched:
            way(patched)
            for start in (0, 1):
                ranges = StepRange(0, start, 5, 0)
                assert read_here(plain_reading_of(broker.bootstrap, topic, ranges), ROOM) is None
            ranges = StepRange(0, 2, 5, 0)
            found = read_here(plain_reading_of(broker.bootstrap, topic, ranges), ROOM)
            assert_is_whole(found, 2, 5)
    steps = interval(topic, [{0: 0}, {0: 5}])
    with pytest.raises(PySparkException, match="not available in Kafka any more"):
        read_kafka(utc, table, ("n",), steps, Context(utc, 1000), is_wanted_here=True)
    # Of many records nothing is asked before somebody reads them.
    large = Context(utc, 1000, many_records=0)
    lazy = read_kafka(utc, table, ("n",), steps, large, is_wanted_here=True, is_read_once=True)
    assert isinstance(lazy.delta, DataFrame)
    with pytest.raises(PySparkException, match=r"OFFSET_OUT_OF_RANGE|out of range"):
        lazy.delta.collect()


@kafka
def test_offsets_that_are_not_there_yet(
    some: PlainReading, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_threads(monkeypatch)
    monkeypatch.setattr(fetching, "_END_SECONDS", 0.3)
    assert read_here(replace(some, ranges=(StepRange(1, 0, 11, 0),)), ROOM) is None
    assert_is_whole(read_here(some, ROOM))


@pytest.fixture
def nobody() -> str:
    """Where no broker is."""
    return f"{HOST}:{free_ports(1)[0]}"


def test_a_broker_that_is_not_there(nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_threads(monkeypatch)
    ranges = (StepRange(0, 0, 9, 0), StepRange(1, 0, 9, 0))
    reading = replace(plain_reading_of(nobody, "t", *ranges), silent_seconds=0.3)
    assert read_here(reading, ROOM) is None


@spark_server
@pytest.mark.parametrize("many_records", [0, 1000])
def test_where_nothing_can_be_read_spark_is_asked(
    utc: SparkSession, nobody: str, monkeypatch: pytest.MonkeyPatch, many_records: int
) -> None:
    by_threads(monkeypatch)
    monkeypatch.setattr(plain_records, "_SILENT_SECONDS", 0.3)
    table, steps = source(nobody, "t", (("n", "BIGINT"),)), interval("t", [{0: 0}, {0: 9}])
    context = Context(utc, 1000, many_records=many_records)
    if many_records:
        with pytest.raises(AssertionError, match="Spark is asked"):
            read_by_itself(table, ("n",), steps, context)
    else:
        found = read_by_itself(table, ("n",), steps, context)
        assert isinstance(found.delta, DataFrame), "its tasks are to read plain records"


@kafka
@spark_server
@pytest.mark.parametrize(
    ("limit", "most"), [("MOST_UNDECIDED", 3), ("MOST_UNDECIDED_BYTES", 20 + 20 + 3)]
)
def test_of_much_that_is_undecided_spark_reads_all(
    utc: SparkSession, broker: Any, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    topic = new_topic(broker.bootstrap)
    odd = [b' {"n": 60, "t": "a"}', b' {"n": 61, "t": "a"}', b" {}"]
    send(broker.bootstrap, topic, [*good(0, 10), *odd])
    table = source(broker.bootstrap, topic, (("n", "BIGINT"), ("t", "STRING")))
    steps, context = interval(topic, [{0: 0}, {0: 5}, {0: 13}]), Context(utc, 1000)
    monkeypatch.setattr(reading_here, limit, most)
    rows = read_by_itself(table, ("n",), steps, context)
    assert isinstance(rows.delta, Rows)
    expected = sorted([*((n, int(n >= 5)) for n in range(10)), (60, 1), (61, 1)])
    assert _numbers(rows.delta.frame(utc)) == expected
    monkeypatch.setattr(reading_here, limit, most - 1)
    with pytest.raises(AssertionError, match="Spark is asked"):
        read_by_itself(table, ("n",), steps, context)
    fetched = read_kafka(utc, table, ("n",), steps, context, is_wanted_here=True)
    assert isinstance(fetched.delta, Rows)
    assert _numbers(fetched.delta.frame(utc)) == expected
    large = replace(context, many_records=0)
    lazy = read_kafka(utc, table, ("n",), steps, large, is_wanted_here=True)
    assert isinstance(lazy.delta, DataFrame)
    assert _numbers(lazy.delta) == expected
    errors = [sorted(map(repr, one.errors.collect())) for one in (rows, fetched, lazy)]
    assert errors[0] == errors[1] == errors[2]
    assert [one.bad_records() for one in (rows, fetched, lazy)] == [1, 1, 1]
    for frame in lazy.kept:
        frame.unpersist()


def _numbers(delta: DataFrame) -> list[tuple[int, int]]:
    return sorted((row["n"], row[STEP]) for row in delta.collect())


@kafka
def test_a_process_goes_on_after_offsets_that_are_gone(some: PlainReading) -> None:
    with a_reader() as one:
        with pytest.raises(CannotRead, match=r"^OffsetOutOfRangeError: .*OFFSET_OUT_OF_RANGE"):
            list(one.read(some, OffsetRange(0, 100, 109)))
        assert_is_whole(pa.Table.from_batches(one.read(some, OffsetRange(0, 10, 50))), 10, 50)
