"""JSON records of the plain kind, parsed by Arrow, many at a time.

`from_json` takes a record at a time, and what it takes wrongly has to be looked for in each; Arrow
(https://arrow.apache.org/docs/python/json.html) parses thousands at once, in a third of the time. It has
other ideas of JSON in turn, so here it has its say on those records alone of which nobody could think
otherwise. The law: a record is undecided, or it is a good one for `sources.json_values` too, with the
same values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from lockstep_engine.kernels.alike import ROOM, Objects, read_alike
from lockstep_engine.kernels.groups import Integers
from lockstep_engine.kernels.plain_values import PlainColumn, says_null, typed

__all__ = [
    "PLAIN",
    "Flags",
    "Lines",
    "PlainContent",
    "PlainObject",
    "plain_of",
    "read_plain",
    "read_there",
    "undecided",
]

Flags = npt.NDArray[np.bool_]

PLAIN = "_plain"
"""The column that is true for a plain record."""

LONGEST = 32_000
"""No record of more bytes is plain: a name may have 50,000 for Spark's parser."""

SHORT = 1_000
"""Neither a number nor the depth of a record of so many bytes is too much for Spark's parser."""

MOST_BYTES = 8 << 20
"""Of more text it is not looked for what is alike, which takes ten times as many bytes and more."""

PARTS, PIECE = 4, 100
"""Records of which one cannot be parsed are parsed in so many parts, which are no smaller than that."""

_END_OF_LINE, _FIRST_PRINTED, _OPENS, _CLOSES, _OPENS_ARRAY = b"\n {}["

_OF_NUMBERS = np.isin(np.arange(256), list(b"0123456789.eE+-"))
"""Bytes that a number may have."""

_NOT_NUMBERS = {b"NaN": b"aN", b"Inf": b"In"}
"""Arrow takes them for numbers wherever they stand; and what is looked for first."""


class PlainContent(Protocol):
    """What values hold, and what is made of it."""

    @property
    def schema(self) -> pa.Schema:
        """The fields that Arrow looks for."""

    @property
    def columns(self) -> Sequence[PlainColumn]:
        """Those of the declaration."""

    @property
    def types(self) -> Sequence[pa.DataType]:
        """Of the columns that are made."""

    def made(
        self, rows: pa.Table, lines: Lines
    ) -> tuple[Sequence[pa.ChunkedArray], Sequence[pa.ChunkedArray]]:
        """The columns, of the fields that Arrow has found in the lines, and where they are beyond
        doubt: where all of these are true."""


@dataclass(frozen=True)
class PlainObject:
    """Values are objects, each of whose columns is a field."""

    columns: tuple[PlainColumn, ...]

    def only(self, places: Collection[int]) -> PlainObject:
        """The same, with other columns than these not wanted."""
        columns = enumerate(self.columns)
        return PlainObject(tuple(replace(one, is_wanted=at in places) for at, one in columns))

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([one.field for one in self.columns])

    @property
    def types(self) -> Sequence[pa.DataType]:
        return [one.type for one in self.columns]

    def made(
        self, rows: pa.Table, lines: Lines
    ) -> tuple[Sequence[pa.ChunkedArray], Sequence[pa.ChunkedArray]]:
        """As `PlainContent` has it."""
        made, judged = list[pa.ChunkedArray](), list[pa.ChunkedArray]()
        for column in self.columns:
            found, fits = typed(rows[column.name], column)
            made.append(found)
            judged += [] if fits is None else [fits]
            if column.has_to_be_there and found.null_count:
                judged.append(lines.say_null(rows[column.name], column.name))
        return made, judged


class Lines:
    """The texts of objects, looked at where what Arrow finds leaves a doubt."""

    def __init__(self, texts: Callable[[], Sequence[bytes | None]]) -> None:
        self._texts = texts

    def say_null(
        self, found: pa.ChunkedArray, name: str, within: str = "", asked: Flags | None = None
    ) -> pa.BooleanArray:
        """False where a value is null, of those that are `asked` for, and it may be that no field says
        so; see `says_null`."""
        is_fine = found.is_valid().to_numpy()
        if asked is not None:
            is_fine = is_fine | ~asked
        places = np.flatnonzero(~is_fine)
        # Else some object is of several lines.
        if len(places) and len(self._all) == len(found):
            without = pa.array([self._all[place] for place in places.tolist()], pa.binary())
            is_fine[places] = says_null(without, name, within).to_numpy(zero_copy_only=False)
        return pa.array(is_fine)

    @cached_property
    def _all(self) -> Sequence[bytes | None]:
        return self._texts()


def read_plain(values: Sequence[bytes | None], content: PlainContent) -> pa.Table:
    """The columns that are made, by their places as names, and PLAIN; a row for each value. Of one that
    is undecided they say nothing."""
    found = _all_plain(values, content)
    return _some_plain(pa.array(values, pa.binary()), content) if found is None else found


def undecided(rows: int, types: Sequence[pa.DataType]) -> pa.Table:
    """So many rows of which none is plain."""
    made = {str(place): pa.nulls(rows, kind) for place, kind in enumerate(types)}
    return pa.table({**made, PLAIN: pa.repeat(False, rows)})


def plain_of(found: pa.Table) -> pa.BooleanArray:
    """Which of the rows are plain."""
    return found[PLAIN].combine_chunks()


def read_there(values: Sequence[bytes | None], content: PlainContent) -> pa.Table:
    """The same as `read_plain`, but for values that are not there: they are plain, and have nothing."""
    there = [value for value in values if value is not None]
    if len(there) == len(values):
        return read_plain(values, content)
    found = read_plain(there, content) if there else undecided(0, content.types)
    is_there = pa.array([value is not None for value in values])
    return _spread(found, is_there, True)


def _spread(found: pa.Table, is_there: pa.BooleanArray, otherwise: bool) -> pa.Table:
    """The rows where something is there, and between them rows of nulls, of which PLAIN is given."""
    places = pc.subtract(pc.cumulative_sum(is_there.cast(pa.int64())), 1)
    spread = found.take(pc.if_else(is_there, places, None))
    is_plain = pc.fill_null(plain_of(spread), otherwise)
    return spread.set_column(spread.num_columns - 1, PLAIN, is_plain)


def _all_plain(values: Sequence[bytes | None], content: PlainContent) -> pa.Table | None:
    """The same of values that are as most are, in few looks at all of them; None where one is not."""
    try:
        # A copy of it with room behind would take as long as half of a look at it.
        data = b"\n".join([*values, ROOM])  # type: ignore[list-item]
    except TypeError:
        return None
    each = np.frombuffer(data, np.uint8, max(len(data) - len(ROOM) - 1, 0))
    # Of what is no printed character at least the ends of lines are there.
    are_printed = int(np.count_nonzero(each < _FIRST_PRINTED)) < len(values)
    lines = _lines_of_objects(each, values, are_printed)
    if lines is None or not _is_utf_8(data):
        return None
    if len(each) <= MOST_BYTES and are_printed:
        with suppress(pa.ArrowInvalid):
            found = _alike(values, Objects(data, *lines), content)
            if found is not None:
                return found
    if _has_suspects(data, content.columns):
        return None
    return _parsed(pa.py_buffer(data).slice(0, len(each)), len(values), content)


def _is_utf_8(text: bytes) -> bool:
    try:
        return text.isascii() or bool(text.decode())
    except UnicodeDecodeError:
        return False


def _alike(
    values: Sequence[bytes | None], objects: Objects, content: PlainContent
) -> pa.Table | None:
    """Those that are written alike taken at once, and others by themselves; None where few are. Raises
    ArrowInvalid."""
    found = read_alike(objects, content.schema)
    if found is None:
        return None
    if len(found.numbers) == len(values):
        return _judged(found.rows, Lines(lambda: values), content)
    is_alike = np.zeros(len(values), np.bool_)
    is_alike[found.numbers] = True
    alike = _judged(found.rows, Lines(lambda: list(compress(values, is_alike))), content)
    others = pa.array(list(compress(values, ~is_alike)), pa.binary())
    # Of each the next one of its own.
    places = np.where(is_alike, np.cumsum(is_alike), np.cumsum(~is_alike) + len(alike)) - 1
    return pa.concat_tables([alike, _some_plain(others, content)]).take(pa.array(places))


def _lines_of_objects(
    each: npt.NDArray[np.uint8], values: Sequence[bytes | None], are_printed: bool
) -> tuple[Integers, Integers] | None:
    """From where to where each of the values is, which are the lines of these bytes; None unless they go
    from `{` to `}`, and Spark's parser can take them. `are_printed`: no line ends in them."""
    if not (len(each) and each[0] == _OPENS and each[-1] == _CLOSES):
        return None
    if not are_printed and np.count_nonzero(each == _END_OF_LINE) != len(values) - 1:
        return None
    ends = np.fromiter(map(len, values), np.int64, len(values))  # type: ignore[arg-type]
    ends += 1
    np.cumsum(ends, out=ends)
    ends -= 1
    starts = np.append(0, ends[:-1] + 1)
    lengths = ends - starts
    are_objects = (
        (each[ends - 1] == _CLOSES).all()
        and (each[starts] == _OPENS).all()
        and lengths.min() > 1
        and lengths.max() < LONGEST
        and not (lengths.max() >= SHORT and _are_too_much(each, starts).any())
    )
    return (starts, ends) if are_objects else None


def _are_too_much(each: npt.NDArray[np.uint8], begins: Integers) -> Flags:
    """Of texts of these bytes, one after the other, each of one and more, those that may have a number
    or a depth that is too much. A number may go on beyond a text: no object ends in one."""
    opens = np.add.reduceat((each == _OPENS) | (each == _OPENS_ARRAY), begins, dtype=np.int64)
    others = np.flatnonzero(~_OF_NUMBERS[each])
    bounds = np.concatenate([[-1], others, [len(each)]])
    long = bounds[:-1][np.diff(bounds) > SHORT] + 1
    flags: Flags = opens >= SHORT
    flags[np.searchsorted(begins, long, "right") - 1] = True
    return flags


def _has_suspects(text: bytes, columns: Sequence[PlainColumn]) -> bool:
    """Whether there may be what some values are undecided for, wherever it stands."""
    decimals = _unlike_decimals(columns)
    return (
        (_holds_pair(text, _NOT_NUMBERS.values()) and any(one in text for one in _NOT_NUMBERS))
        or (bool(decimals) and b"\\u00" in text)
        or any(re.search(unlike, text) for unlike in decimals)
    )


def _holds_pair(text: bytes, pairs: Iterable[bytes]) -> bool:
    """Whether one of the pairs of bytes stands anywhere, which is seen in a fraction of the time that
    longer words take."""
    each = np.frombuffer(text, np.uint8)
    halves = [
        each[first : first + (len(each) - first) // 2 * 2].view(np.uint16) for first in (0, 1)
    ]
    numbers = [np.frombuffer(pair, np.uint16)[0] for pair in pairs]
    return any((half == number).any() for half in halves for number in numbers)


def _some_plain(values: pa.BinaryArray, content: PlainContent) -> pa.Table:
    may_be = _may_be_plain(values, content.columns)
    texts = values.filter(may_be)
    found = pa.concat_tables(_pieces(texts, content)) if len(texts) else undecided(0, content.types)
    if len(texts) < len(values):
        return _spread(found, may_be, False)
    return found


def _may_be_plain(values: pa.BinaryArray, columns: Sequence[PlainColumn]) -> pa.BooleanArray:
    """Whether a value begins and ends as an object does, and nothing in it is for Spark to judge.

    As many objects are then found as there are values only if each is one: where one ends and the next
    begins there is `}`, an end of line, and `{`, and these three stand in no object together.
    """
    length = pc.binary_length(values)
    may_be = pc.and_(pc.starts_with(values, b"{"), pc.ends_with(values, b"}"))
    may_be = pc.and_(may_be, pc.and_(pc.greater(length, 1), pc.less(length, LONGEST)))
    held = values.buffers()[2]
    everything = b"" if held is None else held.to_pybytes()
    for text in _NOT_NUMBERS:
        if text in everything:
            may_be = pc.and_not(may_be, pc.match_substring(values, text))
    decimals = _unlike_decimals(columns)
    if decimals and b"\\u00" in everything:
        # A letter of a name may stand there so.
        may_be = pc.and_not(may_be, pc.match_substring_regex(values, rb"\\u00[0-7]"))
    for unlike in decimals:
        if re.search(unlike, everything):
            may_be = pc.and_not(may_be, pc.match_substring_regex(values, unlike))
    may_be = pc.fill_null(may_be, False)
    if (pc.max(length).as_py() or 0) >= SHORT:
        places = np.flatnonzero(may_be.to_numpy(zero_copy_only=False))
        texts: list[bytes] = values.filter(may_be).to_pylist()
        is_fine = np.zeros(len(values), np.bool_)
        if texts:
            ends = np.cumsum([len(text) for text in texts])
            each = np.frombuffer(b"".join(texts), np.uint8)
            is_fine[places] = ~_are_too_much(each, np.append(0, ends[:-1]))
        may_be = pa.array(is_fine)
    return may_be


def _unlike_decimals(columns: Sequence[PlainColumn]) -> list[bytes]:
    """Patterns, one a decimal, of what Arrow must not see where it stands: numbers in quotes, which it
    takes; with more digits before the point than the type has, which it takes, too, and moves beyond 128
    bits; with exponents, for which it reads powers of ten that are not there
    (https://github.com/apache/arrow/issues/50964)."""
    return [
        rf'"{re.escape(one.name)}"\s*:\s*(?:"|-?(?:{_many_digits(one.type)}|[0-9.]+[eE]))'.encode()
        for one in columns
        if pa.types.is_decimal(one.type)
    ]


def _many_digits(type_: pa.Decimal128Type) -> str:
    digits = type_.precision - type_.scale
    return f"[0-9]{{{digits + 1}}}" if digits else "[1-9]"


def _pieces(texts: pa.BinaryArray, content: PlainContent) -> Iterator[pa.Table]:
    found = _of_lines(texts, content)
    if found is not None:
        yield found
    elif len(texts) <= PIECE:
        yield undecided(len(texts), content.types)
    else:
        size = -(-len(texts) // PARTS)
        for start in range(0, len(texts), size):
            yield from _pieces(texts.slice(start, size), content)


def _of_lines(texts: pa.BinaryArray, content: PlainContent) -> pa.Table | None:
    """The columns and PLAIN; None where not all of the texts are UTF-8, or Arrow cannot parse one."""
    try:
        lines = texts.cast(pa.string())
    except pa.ArrowInvalid:
        return None
    as_one = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    return _parsed(pc.binary_join(as_one, "\n")[0].as_buffer(), len(texts), content)


def _parsed(data: pa.Buffer, count: int, content: PlainContent) -> pa.Table | None:
    """Columns and PLAIN of so many lines of UTF-8; None where Arrow does not find as many objects."""
    try:
        rows = arrow_json.read_json(
            pa.BufferReader(data),
            arrow_json.ReadOptions(use_threads=False, block_size=data.size + 1),
            arrow_json.ParseOptions(
                explicit_schema=content.schema,
                unexpected_field_behavior="ignore",
            ),
        )
        lines = Lines(lambda: data.to_pybytes().split(b"\n"))
        return _judged(rows, lines, content) if rows.num_rows == count else None
    except pa.ArrowInvalid:
        return None


def _judged(rows: pa.Table, lines: Lines, content: PlainContent) -> pa.Table:
    """Columns and PLAIN of the fields that were found in the lines. Raises ArrowInvalid."""
    made, judged = content.made(rows, lines)
    is_plain = pa.chunked_array([pa.repeat(True, rows.num_rows)])
    for fits in judged:
        is_plain = pc.and_(is_plain, fits)
    return pa.table([*made, is_plain], [*map(str, range(len(made))), PLAIN])
