"""JSON records of the plain kind, read of a topic and parsed, wherever that is: in Spark's tasks, in
processes beside the driver, in the driver.

To fetch them batch by batch (`fetching`) and to see what is alike, or Arrow, takes a third of the time
of Spark's Kafka source and `from_json`. Nothing of Spark is imported
here: a process that only reads has begun in half the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lockstep.control.kafka_options import KafkaConnection
from lockstep.control.model import OffsetRange
from lockstep_engine.kernels.groups import Integers
from lockstep_engine.kernels.plain_json import PLAIN, plain_of, undecided
from lockstep_engine.kernels.plain_kinds import PlainRecords
from lockstep_engine.sources.fetching import fetched
from lockstep_engine.sources.offsets import StepRange
from lockstep_engine.sources.record_batches import Records

__all__ = ["PlainReading", "PlainTask"]

_REST = 15
"""Where less than half of a chunk is plain, so many chunks go by untried."""


@dataclass(frozen=True)
class PlainReading:
    """How records of a topic are read, which are of a `kind`. `places` are those of its columns that are
    handed on, `ranges` say which offsets are of which step, `step` is the column for it. A broker may be
    silent for `silent_seconds`. It is sent by value."""

    connection: KafkaConnection
    topic: str
    ranges: tuple[StepRange, ...]
    kind: PlainRecords
    places: tuple[int, ...]
    shape: pa.Schema
    step: str
    shows_timestamp: bool = False
    silent_seconds: float = 60.0

    def of(self, wanted: OffsetRange) -> PlainReading:
        """The same for a slice alone: to send the ranges of a thousand steps takes a while."""
        return replace(
            self,
            ranges=tuple(
                one
                for one in self.ranges
                if one.partition == wanted.partition
                and one.start < wanted.end
                and one.end > wanted.start
            ),
        )

    def records(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Those of a slice, in order. Raises as `fetched` does."""
        for told in self.told(wanted):
            yield self.whole(told, wanted.partition)

    def whole(self, told: pa.RecordBatch, partition: int) -> pa.RecordBatch:
        """With the columns that were left out of what was told of a partition."""
        rows = told.num_rows

        def untold(field: pa.Field) -> pa.Array:
            match field.name:
                case "_partition":
                    return pa.repeat(pa.scalar(partition, field.type), rows)
                case "_topic":
                    return pa.repeat(self.topic, rows)
                case name if name == PLAIN:
                    return pa.repeat(True, rows)
            return pa.nulls(rows, field.type)

        there = set(told.schema.names)
        columns = [told[one.name] if one.name in there else untold(one) for one in self.shape]
        return pa.RecordBatch.from_arrays(columns, schema=self.shape)

    def told(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        """The same, without the columns that say the same of all records of a batch, or nothing: most
        have no others than those of their values, and these may be few. Batches have the same columns
        but for those before the first that has records which are not plain. Raises as `records` does."""
        steps = _steps([one for one in self.ranges if one.partition == wanted.partition])
        rest, is_mixed = 0, False
        for records in fetched(self.connection, self.topic, wanted, self.silent_seconds):
            is_tried = not rest
            if is_tried:
                found = self.kind.read(records.keys(), records.values)
            else:
                found = undecided(len(records), self.kind.types)
            plain = plain_of(found).true_count
            if is_tried:
                rest = _REST if plain < len(records) / 2 else 0
            else:
                rest -= 1
            is_mixed = is_mixed or plain < len(records)
            yield self._told(records, found, steps, is_mixed)

    def _told(
        self,
        records: Records,
        found: pa.Table,
        steps: Callable[[Integers], Integers],
        is_mixed: bool,
    ) -> pa.RecordBatch:
        is_plain, rows = plain_of(found), len(records)
        left: Sequence[int] = ()
        if is_mixed:
            left = np.flatnonzero(~is_plain.to_numpy(zero_copy_only=False)).tolist()

        made = {
            "_offset": pa.array(records.offsets),
            self.step: pa.array(steps(records.offsets)),
        }
        if is_mixed:
            made |= {
                "_key": _at(left, records.keys(), rows, pa.binary()),
                "_value": _at(left, records.values, rows, pa.binary()),
                PLAIN: is_plain,
            }
        if is_mixed or self.shows_timestamp:
            times = range(rows) if self.shows_timestamp else left
            milliseconds = _at(times, records.timestamps(), rows, pa.timestamp("ms", "UTC"))
            made["_timestamp"] = milliseconds.cast(self.shape.field("_timestamp").type)
        fields = [one for one in self.shape if one.name in made]
        columns = [made[one.name] for one in fields]
        columns.extend(found[str(place)].combine_chunks() for place in self.places)
        fields.extend(list(self.shape)[len(self.shape) - len(self.places) :])
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


@dataclass(frozen=True)
class PlainTask:
    """Runs in a task: numbers of slices in, their records out."""

    reading: PlainReading
    slices: tuple[OffsetRange, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.reading.records(self.slices[number])


def _at(places: Sequence[int], of: Iterable[object], rows: int, kind: pa.DataType) -> pa.Array:
    """What stands at these places of so many rows, and null elsewhere; nobody is asked for none."""
    if not places:
        return pa.nulls(rows, kind)
    all_, made = list(of), list[object]([None] * rows)
    for place in places:
        made[place] = all_[place]
    return pa.array(made, kind)


def _steps(ranges: Sequence[StepRange]) -> Callable[[Integers], Integers]:
    """The steps of offsets of a partition, which has these ranges."""
    starts = np.array([one.start for one in ranges], np.int64)
    steps = np.array([one.step for one in ranges], np.int64)
    return lambda offsets: steps[np.searchsorted(starts, offsets, "right") - 1]
