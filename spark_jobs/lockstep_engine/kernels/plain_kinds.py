"""What records of the plain kind are: rows, rows of keys, changes of rows; each read of keys and values,
many at a time, by `plain_json`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lockstep_engine.kernels.plain_json import (
    PLAIN,
    Lines,
    PlainObject,
    plain_of,
    read_plain,
    read_there,
)
from lockstep_engine.kernels.plain_values import PlainColumn, typed

__all__ = ["PlainEvents", "PlainKey", "PlainKeyed", "PlainRecords", "PlainRows"]

_Keys = Iterable[bytes | None]
"""Made for who asks for them: most kinds do not."""
_Values = Sequence[bytes | None]


class PlainRecords(Protocol):
    """Records of a kind. They are sent by value."""

    @property
    def types(self) -> Sequence[pa.DataType]:
        """Of the columns that are made of them."""

    def only(self, places: Collection[int]) -> PlainRecords:
        """The same, of which nobody asks what other columns than these have."""

    def read(self, keys: _Keys, values: _Values) -> pa.Table:
        """These columns, by their places as names, and PLAIN; a row for each record. Of one that is
        undecided they say nothing."""


@dataclass(frozen=True)
class PlainRows:
    """A record is a row, and its key has no part in it."""

    content: PlainObject

    @property
    def types(self) -> Sequence[pa.DataType]:
        return self.content.types

    def only(self, places: Collection[int]) -> PlainRows:
        """As `PlainRecords` has it."""
        return PlainRows(self.content.only(places))

    def read(self, keys: _Keys, values: _Values) -> pa.Table:  # noqa: ARG002 - of the protocol
        return read_plain(values, self.content)


@dataclass(frozen=True)
class PlainKey:
    """What keys are: objects, or, where `is_raw`, texts of the one column."""

    content: PlainObject
    is_raw: bool = False


@dataclass(frozen=True)
class PlainKeyed:
    """A record is the row of its key, or, without a value, its end: the columns of the value, those of
    the key, and whether it is the end."""

    content: PlainObject
    key: PlainKey

    @property
    def types(self) -> Sequence[pa.DataType]:
        return [*self.content.types, *self.key.content.types, pa.bool_()]

    def only(self, places: Collection[int]) -> PlainKeyed:
        """As `PlainRecords` has it."""
        return PlainKeyed(self.content.only(places), self.key)

    def read(self, keys: _Keys, values: _Values) -> pa.Table:
        found = read_there(values, self.content)
        found_keys = list(keys)
        if self.key.is_raw:
            of_keys = _read_texts(found_keys)
        else:
            of_keys = read_plain(found_keys, self.key.content)
        is_plain = pc.and_(plain_of(found), plain_of(of_keys))
        is_end = pa.array([value is None for value in values], pa.bool_())
        arrays = [*found.columns[:-1], *of_keys.columns[:-1], is_end, is_plain]
        return pa.table(arrays, [*map(str, range(len(arrays) - 1)), PLAIN])


def _read_texts(keys: _Values) -> pa.Table:
    """The texts as the one column."""
    found = pa.array(keys, pa.binary())
    try:
        texts = found.cast(pa.string())
    except pa.ArrowInvalid:
        texts = pa.array([_text(key) for key in keys], pa.string())
    return pa.table([texts, texts.is_valid()], ["0", PLAIN])


def _text(key: bytes | None) -> str | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None


@dataclass(frozen=True)
class PlainEvents:
    """A record is a change of a row as Debezium writes it, or, without a value, nothing.

    With `keys`, which are places of columns: the columns, of which those of the key are those of the row
    before where it is deleted, whether there is a change at all, and whether it deletes. Without: those
    of the row after, those of the row before, and whether there is one of each. Where there is none its
    columns may have anything.
    """

    columns: tuple[PlainColumn, ...]
    keys: tuple[int, ...] = ()

    @property
    def types(self) -> Sequence[pa.DataType]:
        columns = [one.type for one in self.columns]
        return [*columns, *([] if self.keys else columns), pa.bool_(), pa.bool_()]

    def only(self, places: Collection[int]) -> PlainEvents:  # noqa: ARG002 - of the protocol
        """All columns are looked at alike."""
        return self

    @property
    def schema(self) -> pa.Schema:
        """An event, which may be the `payload` of another object."""
        sides = [
            pa.struct([(one.name, one.parsed_type) for one in columns])
            for columns in (self.columns, self._columns_before)
        ]
        event = [("op", pa.string()), ("after", sides[0]), ("before", sides[1])]
        return pa.schema([*event, ("payload", pa.struct(event))])

    @property
    def _columns_before(self) -> tuple[PlainColumn, ...]:
        return tuple(self.columns[place] for place in self.keys) or self.columns

    def read(self, keys: _Keys, values: _Values) -> pa.Table:  # noqa: ARG002 - of the protocol
        found = read_there(values, self)
        # Of what is not there nothing is known.
        flags = [pc.fill_null(one, False) for one in found.columns[-3:-1]]
        arrays = [*found.columns[:-3], *flags, found[PLAIN]]
        return pa.table(arrays, found.column_names)

    def made(
        self, rows: pa.Table, lines: Lines
    ) -> tuple[Sequence[pa.ChunkedArray], Sequence[pa.ChunkedArray]]:
        """As `PlainContent` has it."""
        is_wrapped = rows["payload"].is_valid()
        op, *sides = (
            pc.if_else(is_wrapped, pc.struct_field(rows["payload"], [place]), rows[name])
            for place, name in enumerate(("op", "after", "before"))
        )
        comes, goes = (
            pc.is_in(op, pa.array(ops))
            for ops in (["c", "r", "u"], ["d"] if self.keys else ["u", "d"])
        )
        judged: list[pa.ChunkedArray] = [pc.is_in(op, pa.array(["c", "r", "u", "d", "m"]))]
        made: list[list[pa.ChunkedArray]] = []
        columns = (self.columns, self._columns_before)
        for name, side, flag, own in zip(
            ("after", "before"), sides, (comes, goes), columns, strict=True
        ):
            found, fits = _of_side(name, side, flag, own, lines)
            made.append(found)
            judged += fits
        after, before = made
        if not self.keys:
            return [*after, *before, comes, goes], judged
        for place, key in zip(self.keys, before, strict=True):
            after[place] = pc.if_else(goes, key, after[place])
        return [*after, pc.or_(comes, goes), goes], judged


def _of_side(
    name: str,
    side: pa.ChunkedArray,
    flag: pa.ChunkedArray,
    columns: Sequence[PlainColumn],
    lines: Lines,
) -> tuple[list[pa.ChunkedArray], list[pa.ChunkedArray]]:
    """The columns of the row before or after, and where they are beyond doubt, or not asked for."""
    made, fits = list[pa.ChunkedArray](), [side.is_valid()]
    for place, column in enumerate(columns):
        parsed = pc.struct_field(side, [place])
        found, is_sure = typed(parsed, column)
        made.append(found)
        fits += [] if is_sure is None else [is_sure]
        if column.has_to_be_there and parsed.null_count:
            fits.append(lines.say_null(parsed, column.name, name, flag.to_numpy()))
    return made, [pc.or_(one, pc.invert(flag)) for one in fits]
