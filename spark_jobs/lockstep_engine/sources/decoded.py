"""Decoded records as a delta and an error table: kept by Spark, counted in passing, or fetched.

Whichever it is, `delta` and `errors` are the same rows. What is kept is what rows need of the wanted
columns, and of a bad record the raw one, of which its sentence is made when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, TimestampType

from lockstep.sql.circuit import SourceTable
from lockstep.sql.sources.source_layout import layout_of
from lockstep_engine.context import Context
from lockstep_engine.deltas import STEP, WEIGHT, by_step, quoted
from lockstep_engine.kernels.plain_json import PLAIN
from lockstep_engine.local.rows import Rows, fetched_rows
from lockstep_engine.local.values import has_order
from lockstep_engine.sources.decoding import DeclaredColumn, GivenRow, RecordReader
from lockstep_engine.told import counted_in_passing, no_rows

__all__ = ["ERROR_COLUMNS", "Decoded", "Decoder", "raw_columns", "timed"]

ERROR_COLUMNS = (
    "partition int, offset bigint, timestamp timestamp, key binary, value binary, reason string, "
    f"{STEP} bigint"
)
RAW_COLUMNS = ("_partition", "_offset", "_timestamp", "_key", "_value")

_TIME, _GOOD, _BAD = "_step_time", "_good", "bad"


@dataclass(frozen=True)
class Decoded:
    """The records of one source in one interval.

    `delta`: the wanted columns under their lower-case names, `_weight bigint`, `_step bigint`; for a
    keyed source also CHANGE_COLUMNS, for the upsert that reads them. Rows, where this process has them.
    `errors`: bad records, columns as in ERROR_COLUMNS. Frames are filters of those in `kept`,
    which are marked as persisted: the first action that reads one of them to its end reads Kafka,
    and later ones don't. Whoever asked for it calls `unpersist` on each of `kept` when done.

    Of a source that is read once nothing is kept: `delta` counts the bad records that it passes by,
    in `passed`, and `errors` reads Kafka again. `bad` is how many there are, where that is known.
    """

    delta: DataFrame | Rows
    given_errors: Callable[[], DataFrame]
    kept: tuple[DataFrame, ...] = field(default=())
    passed: Observation | None = None
    bad: int | None = None

    @cached_property
    def errors(self) -> DataFrame:
        """Nobody asks for those of which there are none, and Spark nobody then."""
        return self.given_errors()

    def bad_records(self) -> int:
        """How many there are; of a source that is read once, once an action has read `delta`."""
        if self.bad is not None:
            return self.bad
        passed = None if self.passed is None else counted_in_passing(self.passed, _BAD)
        return self.errors.count() if passed is None else passed


@dataclass(frozen=True)
class Decoder:
    """How the records of a source are read; `wanted` are columns of it with the names that they get.
    Frames of records are as `decoding` describes them, or, with what has been `read` of them, as
    `PlainSource` does."""

    source: SourceTable
    reader: RecordReader
    wanted: Mapping[DeclaredColumn, str]
    context: Context
    read: Mapping[str, str] | None = None

    def of_frame(self, records: DataFrame, is_read_once: bool) -> Decoded:
        """Decoded by Spark, when somebody asks."""
        return self._in_passing(records) if is_read_once else self._kept(records)

    def _kept(self, records: DataFrame) -> Decoded:
        """Decoded once, for whoever reads it."""
        kept = self._decode(records).persist()
        return Decoded(self._delta(kept), lambda: self._errors(_bad(kept)), (kept,))

    def _in_passing(self, records: DataFrame) -> Decoded:
        """Of a source that is read once."""
        decoded, passed = self._decode(records), Observation()
        observed = decoded.observe(passed, F.count_if(~F.col(_GOOD)).alias(_BAD))
        return Decoded(self._delta(observed), lambda: self._errors(_bad(decoded)), passed=passed)

    def here(self, records: DataFrame) -> Decoded | None:
        """Fetched now; None where that is too much, or a type or a text is one that may not come back
        to Spark as it was."""
        if not all(_comes_back(column.type) for column in self.wanted):
            return None
        rows = fetched_rows(self._only_good(self._decode(records)))
        if rows is None:
            return None
        bad = rows.where(pc.invert(rows.table[_GOOD])).select([*raw_columns(self.source), STEP])
        good = rows.where(rows.table[_GOOD])
        delta = Rows.together([self._rows_here(good, given) for given in self.reader.rows])
        return Decoded(delta, lambda: self._errors(bad.frame(self.context.spark)), bad=len(bad))

    def held(self, found: Rows, read: Mapping[str, str]) -> Decoded | None:
        """Of records that this process has, and what has been `read` of them, as `PlainSource` describes
        them; of what is undecided Spark has its say. None where this process cannot have what that
        says."""
        is_plain = found.table[PLAIN]
        if pc.all(is_plain, min_count=0).as_py():
            rows = self._plain_rows(found, read)
            return Decoded(rows, lambda: no_rows(self.context.spark, ERROR_COLUMNS), bad=0)
        left = found.where(pc.invert(is_plain)).select([*raw_columns(self.source), STEP])
        rows = self._plain_rows(found.where(is_plain), read)
        decoded = self.here(timed(self.source, left.frame(self.context.spark), self.context))
        if decoded is None:
            return None
        assert isinstance(decoded.delta, Rows), "it is here"
        delta = Rows.together([rows, decoded.delta.select(rows.schema.names)])
        return replace(decoded, delta=delta)

    def _plain_rows(self, found: Rows, read: Mapping[str, str]) -> Rows:
        """The delta of plain records."""
        if "step_time" in layout_of(self.source).metadata.values():
            times = pa.array(self.context.times, pa.timestamp("us", "UTC"))
            taken = times.take(found.table[STEP].combine_chunks())
            found = Rows(
                found.table.append_column(_TIME, taken),
                StructType([*found.schema.fields, StructField(_TIME, TimestampType())]),
            )
        every = [self._rows_here(found, given, read) for given in self.reader.rows]
        return Rows.together(every) if len(every) > 1 else every[0]

    def _decode(self, records: DataFrame) -> DataFrame:
        """What rows need of the wanted columns, `_step`, `_good`, and the raw record where it is not
        good."""
        is_good, values = self.reader.decoding.is_good, dict[str, str]()
        if self.read is not None:
            is_good = f"({PLAIN} OR {is_good})"
            values = {
                name: f"IF({PLAIN}, {read}, {name}) AS {name}" for name, read in self.read.items()
            }
        judged = self._parse(records).selectExpr("*", f"{is_good} AS {_GOOD}")
        return judged.selectExpr(
            *(values.get(name, name) for name in self._needed()),
            STEP,
            _GOOD,
            *(f"CASE WHEN NOT {_GOOD} THEN {n} END AS {n}" for n in raw_columns(self.source)),
        )

    def _only_good(self, decoded: DataFrame) -> DataFrame:
        """Without what was made of bad records, which may be anything."""
        made = (f"CASE WHEN {_GOOD} THEN {name} END AS {name}" for name in self._needed())
        return decoded.selectExpr(*made, STEP, _GOOD, *raw_columns(self.source))

    def _needed(self) -> list[str]:
        """The columns of which rows are made."""
        numbers = [column.number for column in self.wanted]
        return list(dict.fromkeys(n for rows in self.reader.rows for n in rows.columns(numbers)))

    def _parse(self, records: DataFrame) -> DataFrame:
        """Stage by stage, so that Spark evaluates each of them once."""
        for stage in self.reader.decoding.stages:
            records = records.selectExpr("*", *stage)
        return records

    def _delta(self, decoded: DataFrame) -> DataFrame:
        every = (self._rows(decoded, given) for given in self.reader.rows)
        return reduce(DataFrame.unionByName, every)

    def _columns(self, given: GivenRow) -> dict[str, str]:
        """What the rows of one kind have, the wanted columns and those beside them, and of which columns
        of the frame."""
        wanted = {name: given.values[column.number] for column, name in self.wanted.items()}
        return wanted | {name: made for made, (name, _) in given.also.items()}

    def _rows(self, decoded: DataFrame, given: GivenRow) -> DataFrame:
        """The rows of one kind that good records give."""
        columns = [f"{made} AS {quoted(name)}" for name, made in self._columns(given).items()]
        good = decoded.where(f"{_GOOD} AND {given.when}" if given.when else _GOOD)
        return good.selectExpr(*columns, f"{given.weight}L AS {WEIGHT}", STEP)

    def _rows_here(
        self, good: Rows, given: GivenRow, read: Mapping[str, str] = MappingProxyType({})
    ) -> Rows:
        """The same of good records that are here; `read` says what other columns they have."""
        if given.when:
            good = good.where(good.table[read.get(given.when, given.when)])
        columns = {name: read.get(made, made) for name, made in self._columns(given).items()}
        rows = good.renamed({**columns, STEP: STEP})
        return rows.with_number(WEIGHT, given.weight).select([*columns, WEIGHT, STEP])

    def _errors(self, bad: DataFrame) -> DataFrame:
        """Bad records with a sentence each: they are decoded again, as good ones need no sentence."""
        records = bad.selectExpr(*raw_columns(self.source), STEP)
        return self._parse(timed(self.source, records, self.context)).selectExpr(
            *(f"{name} AS {name[1:]}" for name in RAW_COLUMNS),
            f"{self.reader.decoding.reason()} AS reason",
            STEP,
        )


def _bad(decoded: DataFrame) -> DataFrame:
    return decoded.where(f"NOT {_GOOD}")


def _comes_back(kind: DataType) -> bool:
    """Whether values are the same in Spark after they were here."""
    match kind:
        case ArrayType():
            return _comes_back(kind.elementType)
        case MapType():
            return _comes_back(kind.keyType) and _comes_back(kind.valueType)
        case StructType():
            return all(_comes_back(field.dataType) for field in kind)
        case _:
            return has_order(kind)


def timed(source: SourceTable, records: DataFrame, context: Context) -> DataFrame:
    """The records with the times of their steps, where a column of the source shows them."""
    if "step_time" not in layout_of(source).metadata.values():
        return records
    return records.withColumn(_TIME, F.timestamp_micros(by_step(context.times)))


def raw_columns(source: SourceTable) -> list[str]:
    """What is read of a record, and kept of a bad one."""
    shown = layout_of(source).metadata.values()
    return [*RAW_COLUMNS, *(f"_{kind}" for kind in ("topic", "headers") if kind in shown)]
