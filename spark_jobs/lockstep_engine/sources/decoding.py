"""What a format has to say about records: SQL text that makes columns of them, and judges them.

The law: whether a record is good depends on the record and the declaration alone, never on which
columns some view wants, else adding a view would move records between a view and the error table.
So all declared columns are checked, and only the wanted ones kept.

A frame of records has `_partition int`, `_offset bigint`, `_timestamp timestamp`, `_key binary`,
`_value binary`, `_step bigint` and, where metadata columns show them, `_topic string` and
`_headers`. The names keep clear of declared columns, which are often called key or value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from pyspark.sql.types import DataType

from lockstep.sql.plans.terms import text_literal

__all__ = [
    "AT_OFFSET",
    "AT_PARTITION",
    "FOUND_CHARACTERS",
    "IS_DELETED",
    "DeclaredColumn",
    "Decoding",
    "GivenRow",
    "RecordReader",
    "combined",
    "null_fault",
    "plain_name",
    "value_name",
]

FOUND_CHARACTERS = 60
"""So much of a value stands in the sentence about a bad record."""

AT_PARTITION, AT_OFFSET, IS_DELETED = "_at_partition", "_at_offset", "_is_deleted"
"""The frame's columns for where a record of a key lies, which are kept of good ones, too, and whether it
takes the row of its key away."""


@dataclass(frozen=True)
class DeclaredColumn:
    """A declared column: its place in the declaration, where values name it, type, and whether it
    may be null."""

    number: int
    name: str
    type: DataType
    nullable: bool
    path: tuple[str, ...] = ()
    is_key: bool = False


@dataclass(frozen=True)
class Decoding:
    """How some columns of a record are read.

    `stages` are lists of columns to add to a frame of records, one list after the other, so that
    Spark evaluates each text once; `is_good` is then a boolean that is never null. `faults` are
    pairs of a condition and a sentence, both SQL: the first condition that holds says what is
    wrong with a record that is not good.
    """

    stages: tuple[tuple[str, ...], ...] = ()
    is_good: str = "true"
    faults: tuple[tuple[str, str], ...] = ()

    def reason(self) -> str:
        """The sentence, for a record that is not good."""
        cases = " ".join(f"WHEN {fault} THEN {sentence}" for fault, sentence in self.faults)
        otherwise = text_literal("the value is not what the source declares")
        return f"CASE {cases} ELSE {otherwise} END" if cases else otherwise

    def only_where(self, condition: str) -> Decoding:
        """The same, where what it finds counts only for records with the condition (never null)."""
        faults = tuple((f"({condition} AND ({fault}))", text) for fault, text in self.faults)
        return Decoding(self.stages, f"(NOT ({condition}) OR ({self.is_good}))", faults)


@dataclass(frozen=True)
class GivenRow:
    """A row that good records give: `values` names the column of the frame for each number of a
    declared column, `also` further ones with what they are called and their types. `when` names a
    boolean column of the frame: only records for which it is true give the row."""

    values: Mapping[int, str]
    also: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    when: str = ""
    weight: int = 1

    def columns(self, wanted: Sequence[int]) -> list[str]:
        """The frame's columns that are needed for the row."""
        needed = [*(self.values[number] for number in wanted), *self.also]
        return list(dict.fromkeys([*needed, self.when] if self.when else needed))


@dataclass(frozen=True)
class RecordReader:
    """A source's records: how they are decoded, and the rows that each good one gives."""

    decoding: Decoding
    rows: tuple[GivenRow, ...]


def value_name(number: int) -> str:
    """The frame's column for the value of a declared column."""
    return f"_v{number}"


def plain_name(name: str) -> str:
    """The column for what a frame's column has where it has been read beforehand, by `plain_records`."""
    return f"_plain{name}"


def combined(parts: Sequence[Decoding]) -> Decoding:
    """All of the parts, which read different columns: a record is good where it is for each."""
    levels = zip_longest(*(part.stages for part in parts), fillvalue=())
    checks = [part.is_good for part in parts if part.is_good != "true"]
    return Decoding(
        tuple(tuple(column for stage in level for column in stage) for level in levels),
        " AND ".join(checks) or "true",
        tuple(fault for part in parts for fault in part.faults),
    )


def null_fault(column: DeclaredColumn, value: str) -> tuple[str, str]:
    """What is wrong where a column that must not be null is."""
    why = "is of the key" if column.is_key else "is declared NOT NULL"
    return f"{value} IS NULL", text_literal(f"column {column.name} is null, and {why}")
