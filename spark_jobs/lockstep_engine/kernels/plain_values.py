"""Values of JSON records, as Arrow finds them, that are what `from_json` makes of them beyond doubt."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockstep_engine.kernels.alike import only_there

__all__ = ["PlainColumn", "says_null", "typed"]

_DAY = "[12][0-9]{3}-[0-9]{2}-[0-9]{2}"
_TIME = r"[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"


@dataclass(frozen=True)
class PlainColumn:
    """A field of the objects, and what is made of it; one that may be absent may be null, too. One that
    is not wanted is looked at like others, but may have any values."""

    name: str
    type: pa.DataType
    may_be_null: bool
    may_be_absent: bool = False
    is_wanted: bool = True

    @property
    def has_to_be_there(self) -> bool:
        """Whether null is a value, and another one than none."""
        return self.may_be_null and not self.may_be_absent

    @property
    def parsed_type(self) -> pa.DataType:
        """Dates and timestamps are looked at as texts: Arrow reads forms of them that Spark does not."""
        return pa.string() if pa.types.is_temporal(self.type) else self.type

    @property
    def field(self) -> pa.Field:
        """What is looked for. A text that is not wanted need only be there."""
        found = pa.field(self.name, self.parsed_type)
        return found if self.is_wanted or self.type != pa.string() else only_there(found)


def typed(
    found: pa.ChunkedArray, column: PlainColumn
) -> tuple[pa.ChunkedArray, pa.ChunkedArray | None]:
    """The values of the column, of those that Arrow has found, and where they are beyond doubt; None:
    everywhere."""
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


def says_null(lines: pa.BinaryArray, name: str, within: str = "") -> pa.BooleanArray:
    """Where it is beyond doubt that an object has a field of that name, which is null; with `within`,
    that the object of that name in it has. There is no backslash, and no other object before or beside
    the one, so such a name with its colon stands for the field itself; unless it has a colon or a comma,
    and what stands between two texts could be taken for it."""
    field = rf'"{re.escape(name)}"\s*:\s*null'
    if within:
        opens = rf'"{re.escape(within)}"\s*:'
        is_one = pc.equal(pc.count_substring_regex(lines, opens.encode()), 1)
        field = rf"{opens}\s*\{{[^{{}}]*{field}"
    else:
        is_one = pc.equal(pc.count_substring(lines, b"{"), 1)
    is_clear = pc.and_not(is_one, pc.match_substring(lines, b"\\"))
    return pc.and_(pc.match_substring_regex(lines, field.encode()), is_clear)


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
