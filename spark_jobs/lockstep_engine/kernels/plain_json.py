"""JSON records of the plain kind, parsed by Arrow, many at a time.

`from_json` takes a record at a time, and what it takes wrongly has to be looked for in each; Arrow
(https://arrow.apache.org/docs/python/json.html) parses thousands at once, in a third of the time. It has
other ideas of JSON in turn, so here it has its say on those records alone of which nobody could think
otherwise. The law: a record is undecided, or it is a good one for `sources.json_values` too, with the
same values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

__all__ = ["PLAIN", "PlainColumn", "PlainKey", "read_keyed", "read_plain", "undecided"]

PLAIN = "_plain"
"""The column that is true for a plain record."""

LONGEST = 32_000
"""No record of more bytes is plain: a name may have 50,000 for Spark's parser."""

SHORT = 1_000
"""Neither a number nor the depth of a record of so many bytes is too much for Spark's parser."""

PARTS, PIECE = 4, 100
"""Records of which one cannot be parsed are parsed in so many parts, which are no smaller than that."""

_DAY = "[12][0-9]{3}-[0-9]{2}-[0-9]{2}"
_TIME = r"[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"

_END_OF_LINE, _OPENS, _CLOSES = b"\n{}"

_NOT_NUMBERS = {b"NaN": b"aN", b"Inf": b"In"}
"""Arrow takes them for numbers wherever they stand; and what is looked for first."""


@dataclass(frozen=True)
class PlainColumn:
    """A field of the objects, and what is made of it; one that may be absent may be null, too."""

    name: str
    type: pa.DataType
    may_be_null: bool
    may_be_absent: bool = False

    @property
    def parsed_type(self) -> pa.DataType:
        """Dates and timestamps are looked at as texts: Arrow reads forms of them that Spark does not."""
        return pa.string() if pa.types.is_temporal(self.type) else self.type


@dataclass(frozen=True)
class PlainKey:
    """What keys are: objects with these columns, or, where `is_raw`, texts of the one column."""

    columns: tuple[PlainColumn, ...]
    is_raw: bool = False


def read_plain(values: Sequence[bytes | None], columns: Sequence[PlainColumn]) -> pa.Table:
    """The columns, by their places as names, and PLAIN; a row for each value. Of one that is undecided
    they say nothing."""
    found = _all_plain(values, columns)
    return _some_plain(pa.array(values, pa.binary()), columns) if found is None else found


def read_keyed(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    columns: Sequence[PlainColumn],
    key: PlainKey,
) -> pa.Table:
    """The columns of values, and then those of their keys, by their places, and PLAIN. Where there is no
    value its columns are null, and the key decides."""
    found = _read_there(values, columns)
    of_keys = _read_texts(keys) if key.is_raw else read_plain(keys, key.columns)
    is_plain = pc.and_(_plain_of(found), _plain_of(of_keys))
    arrays = [*found.columns[:-1], *of_keys.columns[:-1], is_plain]
    return pa.table(arrays, [*map(str, range(len(arrays) - 1)), PLAIN])


def undecided(rows: int, columns: Sequence[PlainColumn]) -> pa.Table:
    """So many rows of which none is plain."""
    made = {str(place): pa.nulls(rows, column.type) for place, column in enumerate(columns)}
    return pa.table({**made, PLAIN: pa.repeat(False, rows)})


def _plain_of(found: pa.Table) -> pa.BooleanArray:
    return found[PLAIN].combine_chunks()


def _read_there(values: Sequence[bytes | None], columns: Sequence[PlainColumn]) -> pa.Table:
    """The same as `read_plain`, but for values that are not there, which are plain."""
    there = [value for value in values if value is not None]
    if len(there) == len(values):
        return read_plain(values, columns)
    found = read_plain(there, columns) if there else undecided(0, columns)
    is_there = pa.array([value is not None for value in values])
    return _spread(found, is_there, True)


def _read_texts(keys: Sequence[bytes | None]) -> pa.Table:
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


def _spread(found: pa.Table, is_there: pa.BooleanArray, otherwise: bool) -> pa.Table:
    """The rows where something is there, and between them rows of nulls, of which PLAIN is given."""
    places = pc.subtract(pc.cumulative_sum(is_there.cast(pa.int64())), 1)
    spread = found.take(pc.if_else(is_there, places, None))
    is_plain = pc.fill_null(_plain_of(spread), otherwise)
    return spread.set_column(spread.num_columns - 1, PLAIN, is_plain)


def _all_plain(values: Sequence[bytes | None], columns: Sequence[PlainColumn]) -> pa.Table | None:
    """The same of values that are as most are, in few looks at all of them; None where one is not."""
    try:
        text = b"\n".join(values)  # type: ignore[arg-type]
    except TypeError:
        return None
    if not _holds_lines_of_objects(text, len(values)) or _has_suspects(text, columns):
        return None
    try:
        if not text.isascii():
            text.decode()
        return _parsed(pa.py_buffer(text), len(values), columns)
    except UnicodeDecodeError:
        return None


def _holds_lines_of_objects(text: bytes, count: int) -> bool:
    """Whether there are so many lines, each short, and from `{` to `}`."""
    if not (text.startswith(b"{") and text.endswith(b"}")):
        return False
    each = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(each == _END_OF_LINE)
    lengths = np.diff(ends, prepend=-1, append=len(text)) - 1
    return bool(
        len(ends) == count - 1
        and (each[ends - 1] == _CLOSES).all()
        and (each[ends + 1] == _OPENS).all()
        and lengths.min() > 1
        and lengths.max() < SHORT
    )


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


def _some_plain(values: pa.BinaryArray, columns: Sequence[PlainColumn]) -> pa.Table:
    may_be = _may_be_plain(values, columns)
    texts = values.filter(may_be)
    found = pa.concat_tables(_pieces(texts, columns)) if len(texts) else undecided(0, columns)
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
    if (pc.max(length).as_py() or 0) >= SHORT:
        is_large = pc.greater_equal(
            pc.add(pc.count_substring(values, b"{"), pc.count_substring(values, b"[")), SHORT
        )
        has_long = pc.match_substring_regex(values, rb"[0-9.eE+-]{%d}" % SHORT)
        may_be = pc.and_not(may_be, pc.or_(is_large, has_long))
    return pc.fill_null(may_be, False)


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


def _pieces(texts: pa.BinaryArray, columns: Sequence[PlainColumn]) -> Iterator[pa.Table]:
    found = _of_lines(texts, columns)
    if found is not None:
        yield found
    elif len(texts) <= PIECE:
        yield undecided(len(texts), columns)
    else:
        size = -(-len(texts) // PARTS)
        for start in range(0, len(texts), size):
            yield from _pieces(texts.slice(start, size), columns)


def _of_lines(texts: pa.BinaryArray, columns: Sequence[PlainColumn]) -> pa.Table | None:
    """The columns and PLAIN; None where not all of the texts are UTF-8, or Arrow cannot parse one."""
    try:
        lines = texts.cast(pa.string())
    except pa.ArrowInvalid:
        return None
    as_one = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    return _parsed(pc.binary_join(as_one, "\n")[0].as_buffer(), len(texts), columns)


def _parsed(data: pa.Buffer, count: int, columns: Sequence[PlainColumn]) -> pa.Table | None:
    """Columns and PLAIN of so many lines of UTF-8; None where Arrow does not find as many objects."""
    try:
        rows = arrow_json.read_json(
            pa.BufferReader(data),
            arrow_json.ReadOptions(use_threads=False, block_size=data.size + 1),
            arrow_json.ParseOptions(
                explicit_schema=pa.schema([(one.name, one.parsed_type) for one in columns]),
                unexpected_field_behavior="ignore",
            ),
        )
        if rows.num_rows != count:
            return None
        is_plain = pa.chunked_array([pa.repeat(True, count)])
        made = {}
        for place, column in enumerate(columns):
            found, fits = _typed(rows[column.name], column)
            made[str(place)] = found
            is_plain = is_plain if fits is None else pc.and_(is_plain, fits)
            if column.may_be_null and not column.may_be_absent:
                is_there = _are_there(data, rows[column.name], column.name)
                is_plain = is_plain if is_there is None else pc.and_(is_plain, is_there)
    except pa.ArrowInvalid:
        return None
    return pa.table({**made, PLAIN: is_plain})


def _typed(
    found: pa.ChunkedArray, column: PlainColumn
) -> tuple[pa.ChunkedArray, pa.ChunkedArray | None]:
    """The values of the column, and where they are beyond doubt; None: everywhere."""
    if pa.types.is_floating(column.type):
        fits = pc.and_(pc.is_finite(found), _is_no_negative_zero(found))
    elif pa.types.is_temporal(column.type):
        if _are_moments(found, column.type):
            return _moments(found, column.type), None
        fits = pc.match_substring_regex(found, f"^(?:{_looks(column.type)})$")
        found = _moments(pc.if_else(fits, found, None), column.type)
    else:
        fits = None if column.may_be_null or not found.null_count else pc.is_valid(found)
    return found, None if fits is None else pc.fill_null(fits, column.may_be_null)


def _are_there(data: pa.Buffer, found: pa.ChunkedArray, name: str) -> pa.BooleanArray | None:
    """Where it is beyond doubt that a line has a field of that name, if only to say that it is null;
    None: everywhere. In an object without another one, and without a backslash, such a name with its
    colon stands for the field itself."""
    if not found.null_count:
        return None
    is_there = found.is_valid().to_numpy()
    lines = data.to_pybytes().split(b"\n")
    if len(lines) > len(found):
        # Some object is of several lines.
        return pa.array(is_there)
    places = np.flatnonzero(~is_there)
    without = pa.array([lines[place] for place in places], pa.binary())
    says_null = rf'"{re.escape(name)}"\s*:\s*null'.encode()
    is_said = pc.and_(
        pc.match_substring_regex(without, says_null),
        pc.and_not(
            pc.equal(pc.count_substring(without, b"{"), 1), pc.match_substring(without, b"\\")
        ),
    )
    is_there[places] = is_said.to_numpy(zero_copy_only=False)
    return pa.array(is_there)


def _is_no_negative_zero(found: pa.ChunkedArray) -> pa.ChunkedArray:
    """Spark makes 0.0 of -0, and -0.0 of -0.0."""
    return pc.or_kleene(pc.not_equal(found, 0.0), pc.greater(pc.divide(1.0, found), 0.0))


def _looks(type_: pa.DataType) -> str:
    """How a text looks that means the same to everybody."""
    if pa.types.is_date(type_):
        return _DAY
    zone = "" if type_.tz is None else "Z?"
    return f"{_DAY}(?:{_TIME}{zone})?"


def _are_moments(texts: pa.ChunkedArray, type_: pa.DataType) -> bool:
    """Whether all of them are there, as long as the first and with digits where that has some, which
    looks as it should. It is seen in a fraction of the time that the pattern takes."""
    if texts.null_count or texts.num_chunks != 1:
        return False
    [chunk] = texts.chunks
    first = chunk[0].as_py()
    if re.fullmatch(_looks(type_), first) is None:
        return False
    _, places, held = chunk.buffers()
    ends = np.frombuffer(places, np.int32)[chunk.offset :][: len(chunk) + 1]
    if (np.diff(ends) != len(first)).any():
        return False
    each = np.frombuffer(held, np.uint8)[ends[0] : ends[-1]].reshape(-1, len(first))
    is_digit = each - np.uint8(ord("0")) <= 9
    is_same = each == each[0]
    is_same[:, 1:] |= is_digit[0, 1:]
    looks_so = (is_digit == is_digit[0]) & is_same
    return bool(looks_so.all())


def _moments(texts: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_date(type_):
        return texts.cast(type_)
    return pc.utf8_rtrim(texts, "Z").cast(pa.timestamp("us")).cast(type_)
