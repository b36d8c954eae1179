"""JSON records of the plain kind, parsed by Arrow, many at a time.

`from_json` takes a record at a time, and what it takes wrongly has to be looked for in each; Arrow
(https://arrow.apache.org/docs/python/json.html) parses thousands at once, in half the time with the way
to Python and back. It has other ideas of JSON in turn, so here it has its say on those records alone of
which nobody could think otherwise. The law: a record is undecided, or it is a good one for
`sources.json_values` too, with the same values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

__all__ = ["PLAIN", "PlainColumn", "read_plain"]

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

_NOT_NUMBERS = (b"NaN", b"Inf")
"""Arrow takes them for numbers wherever they stand."""


@dataclass(frozen=True)
class PlainColumn:
    """A field of the objects, and what is made of it; where it `may_be_null` it may be absent too."""

    name: str
    type: pa.DataType
    may_be_null: bool

    @property
    def parsed_type(self) -> pa.DataType:
        """Dates and timestamps are looked at as texts: Arrow reads forms of them that Spark does not."""
        return pa.string() if pa.types.is_temporal(self.type) else self.type


def read_plain(values: pa.BinaryArray, columns: Sequence[PlainColumn]) -> pa.Table:
    """The columns, by their places as names, and PLAIN; a row for each value. Of one that is undecided
    they say nothing."""
    may_be = _may_be_plain(values, columns)
    texts = values.filter(may_be)
    found = pa.concat_tables(_pieces(texts, columns)) if len(texts) else _nothing(0, columns)
    if len(texts) < len(values):
        places = pc.if_else(
            may_be, pc.subtract(pc.cumulative_sum(may_be.cast(pa.int64())), 1), None
        )
        found = found.take(places)
    return found.set_column(
        found.num_columns - 1, PLAIN, pc.fill_null(found[PLAIN].combine_chunks(), False)
    )


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
    decimals = [column.name for column in columns if pa.types.is_decimal(column.type)]
    if decimals and b"\\u00" in everything:
        # A letter of a name may stand there so.
        may_be = pc.and_not(may_be, pc.match_substring_regex(values, rb"\\u00[0-7]"))
    for name in decimals:
        # Arrow takes a number in quotes for one
        is_quoted = rf'"{re.escape(name)}"\s*:\s*"'.encode()
        if re.search(is_quoted, everything):
            may_be = pc.and_not(may_be, pc.match_substring_regex(values, is_quoted))
    if (pc.max(length).as_py() or 0) >= SHORT:
        is_large = pc.greater_equal(
            pc.add(pc.count_substring(values, b"{"), pc.count_substring(values, b"[")), SHORT
        )
        has_long = pc.match_substring_regex(values, rb"[0-9.eE+-]{%d}" % SHORT)
        may_be = pc.and_not(may_be, pc.or_(is_large, has_long))
    return pc.fill_null(may_be, False)


def _pieces(texts: pa.BinaryArray, columns: Sequence[PlainColumn]) -> Iterator[pa.Table]:
    found = _parsed(texts, columns)
    if found is not None:
        yield found
    elif len(texts) <= PIECE:
        yield _nothing(len(texts), columns)
    else:
        size = -(-len(texts) // PARTS)
        for start in range(0, len(texts), size):
            yield from _pieces(texts.slice(start, size), columns)


def _nothing(rows: int, columns: Sequence[PlainColumn]) -> pa.Table:
    made = {str(place): pa.nulls(rows, column.type) for place, column in enumerate(columns)}
    return pa.table({**made, PLAIN: pa.nulls(rows, pa.bool_())})


def _parsed(texts: pa.BinaryArray, columns: Sequence[PlainColumn]) -> pa.Table | None:
    """The columns and PLAIN; None where Arrow cannot parse all of the texts."""
    try:
        # fails for what is not UTF-8
        lines = texts.cast(pa.string())
        as_one = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
        data = pc.binary_join(as_one, "\n")[0].as_buffer()
        rows = arrow_json.read_json(
            pa.BufferReader(data),
            arrow_json.ReadOptions(use_threads=False, block_size=data.size + 1),
            arrow_json.ParseOptions(
                explicit_schema=pa.schema([(one.name, one.parsed_type) for one in columns]),
                unexpected_field_behavior="ignore",
            ),
        )
        if rows.num_rows != len(texts):
            return None
        is_plain = pa.chunked_array([pa.repeat(True, len(texts))])
        made = {}
        for place, column in enumerate(columns):
            found, fits = _typed(rows[column.name], column)
            made[str(place)] = found
            is_plain = pc.and_(is_plain, fits)
    except pa.ArrowInvalid:
        return None
    return pa.table({**made, PLAIN: is_plain})


def _typed(found: pa.ChunkedArray, column: PlainColumn) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """The values of the column, and where they are beyond doubt."""
    if pa.types.is_floating(column.type):
        fits = pc.is_finite(found)
    elif pa.types.is_temporal(column.type):
        fits = pc.match_substring_regex(found, _looks(column.type))
        found = _moments(pc.if_else(fits, found, None), column.type)
    else:
        fits = pc.is_valid(found) if not column.may_be_null else None
    if fits is None:
        return found, pa.chunked_array([pa.repeat(True, len(found))])
    return found, pc.fill_null(fits, column.may_be_null)


def _looks(type_: pa.DataType) -> str:
    """How a text looks that means the same to everybody."""
    if pa.types.is_date(type_):
        return f"^{_DAY}$"
    zone = "" if type_.tz is None else "Z?"
    return f"^{_DAY}(?:{_TIME}{zone})?$"


def _moments(texts: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_date(type_):
        return texts.cast(type_)
    return pc.utf8_rtrim(texts, "Z").cast(pa.timestamp("us")).cast(type_)
