"""JSON objects that are written alike, thousands at a time.

Whoever writes records writes most of them the same way: the same names in the same order, with the same
spaces, and between these the values. Of an object that was parsed once, its shape, it is known which
bytes those are. Of others it is seen for all at once whether they have these bytes around their values.

The law: an object that is taken is JSON, has no name twice and no escapes, and has the values that Arrow
finds in it, each of the type that is asked for or null.

Why that is so: a piece of the shape is looked for at its first quote, and that is counted: if the shape
has five quotes before, it is the sixth of the object. A piece that is there accounts for as many quotes
as it has, so the next quote after it is that of the next piece, and between the two there is none: a
value in quotes, or one without, which is looked at by itself. The first piece is where the object
begins, the last one where it ends; so no byte of it is left that was not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lockstep_engine.kernels.groups import Integers
from lockstep_engine.kernels.shapes import (
    LONGEST_PIECE,
    WORD,
    Path,
    Shape,
    Words,
    mask_of,
    shape_of,
)

__all__ = ["ROOM", "Alike", "Objects", "only_there", "read_alike"]

ROOM = bytes(LONGEST_PIECE)
"""So that there is a word wherever it is looked for, if none of the text."""

LEAST_PART, REST = 0.95, 15
"""Where fewer of the objects than such a part are alike, all are for a parser, and so are those that are
asked about the next so many times."""

_QUOTE, _BACKSLASH, _MINUS, _ZERO = b'"\\-0'
_ZEROS, _TO_HIGH_BIT, _HIGH_BITS = (
    np.uint64(int.from_bytes([byte] * WORD)) for byte in (ord("0"), 0x80 - 10, 0x80)
)
_LOW_BYTE = np.uint64(0xFF)
_STEPS = [
    (np.uint64(10 ** (bits // 8)), np.uint64(bits), np.uint64(mask))
    for bits, mask in ((8, 0x00FF00FF00FF00FF), (16, 0x0000FFFF0000FFFF), (32, 0xFFFFFFFF))
]
"""Digits that stand side by side become numbers of two, these numbers of four, these of eight."""
_POWERS = 10 ** np.arange(WORD + 1)
_MOST_DIGITS = 18
"""A number of more digits may be beyond 64 bits."""

_NUMBER = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$"
_WHOLE, _OTHER, _LOGICAL, _NULL, _NOTHING = 1, 2, 4, 8, 0
"""What a value without quotes is: a number, of these a whole one of few digits; true or false; null."""

_Flags = npt.NDArray[np.bool_]


class Objects:
    """Texts of objects, one after the other with a byte after each: UTF-8 without control characters,
    from `starts` to `ends`; then comes ROOM, with which they were put together."""

    def __init__(self, data: bytes, starts: Integers, ends: Integers) -> None:
        self.data, self.starts, self.ends = data, starts, ends
        self.words: Words = np.ndarray((len(data) - WORD + 1,), "<u8", data, 0, (1,))
        self.quotes = np.flatnonzero(np.frombuffer(data, np.uint8, int(ends[-1])) == _QUOTE)

    @cached_property
    def escaped(self) -> Integers:
        """The numbers of those with a backslash."""
        if _BACKSLASH not in self.data:
            return np.zeros(0, np.int64)
        places = np.flatnonzero(np.frombuffer(self.data, np.uint8) == _BACKSLASH)
        return np.unique(np.searchsorted(self.starts, places, "right") - 1)

    @cached_property
    def first_quotes(self) -> Integers:
        """Of each the number of its first quote, and how many there are."""
        return np.append(np.searchsorted(self.quotes, self.starts), len(self.quotes))

    def of(self, number: int) -> bytes:
        """The text of one of them."""
        return self.data[self.starts[number] : self.ends[number]]

    def slices(self, starts: Integers, ends: Integers) -> pa.Array:
        """Pieces of the text, in order."""
        if not len(starts):
            return pa.array([], pa.string())
        bounds = np.empty(2 * len(starts), np.int32)
        bounds[0::2], bounds[1::2] = starts, ends
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self.data)]
        pieces = pa.Array.from_buffers(pa.string(), len(bounds) - 1, buffers)
        return pieces.take(pa.array(np.arange(0, len(bounds), 2)))


_ONLY_THERE = {b"lockstep.only_there": b""}


def only_there(field: pa.Field) -> pa.Field:
    """The same field of texts, of which it is only asked where there is one: what it says need not be
    found."""
    return field.with_metadata(_ONLY_THERE)


@dataclass(frozen=True)
class Alike:
    """Objects that are written alike: the numbers of them, in order, and a row for each."""

    numbers: Integers
    rows: pa.Table


def read_alike(objects: Objects, schema: pa.Schema) -> Alike | None:
    """Those of the objects that most are like; None where none is, or where few were lately. A field
    that an object does not have is null."""
    known = _known(schema)
    # Several threads may take one at the same time.
    if known.rest > 0:
        known.rest -= 1
        return None
    numbers = np.arange(len(objects.starts))
    if len(objects.escaped):
        numbers = np.setdiff1d(numbers, objects.escaped, assume_unique=True)
    least = len(objects.starts) * LEAST_PART
    if len(numbers) >= least:
        for shape in _likely_shapes(objects, known.shape):
            found = _of_shape(objects, numbers, shape, schema)
            if found is not None and len(found.numbers) >= least:
                known.shape = shape
                return found
    known.rest = REST
    return None


def _likely_shapes(objects: Objects, known: Shape | None) -> Iterator[Shape]:
    """That of the ones before, and those of some with as many quotes as most have."""
    if known is not None:
        yield known
    tried = {known}
    quotes = np.diff(objects.first_quotes)
    usual = np.flatnonzero(quotes == np.bincount(quotes).argmax())
    for place in (1 / 2, 1 / 4, 3 / 4):
        found = shape_of(objects.of(int(usual[int(len(usual) * place)])))
        if found is not None and found not in tried:
            tried.add(found)
            yield found


@dataclass
class _Known:
    """What was seen of the objects before: their shape, and how many times to look for none."""

    shape: Shape | None = None
    rest: int = 0


@lru_cache(maxsize=64)
def _known(schema: pa.Schema) -> _Known:  # noqa: ARG001 - there is one for each
    """Of objects where such fields were looked for. Whichever thread says what, it is only a guess."""
    return _Known()


@dataclass(frozen=True)
class _Located:
    """Objects of a shape, by their numbers, and from where to where their values are: a row for each
    slot."""

    objects: Objects
    numbers: Integers
    starts: Integers
    ends: Integers

    def kept(self, fits: _Flags) -> _Located:
        """Some of them."""
        if fits.all():
            return self
        return _Located(self.objects, self.numbers[fits], self.starts[:, fits], self.ends[:, fits])

    def texts(self, place: int, rows: Integers | slice = slice(None)) -> pa.Array:
        """Of a slot."""
        return self.objects.slices(self.starts[place, rows], self.ends[place, rows])


def _of_shape(objects: Objects, numbers: Integers, shape: Shape, schema: pa.Schema) -> Alike | None:
    """Those of the objects that have the shape; None where its values are of other types."""
    wanted = dict[int, pa.DataType]()
    if not _finds_types(shape, (), schema, wanted):
        return None
    found = _located(objects, numbers, shape)
    bare = _read_bare(found, [(place, wanted.get(place)) for place in shape.bare])
    fits: _Flags = (bare.kinds != _NOTHING).all(axis=0)
    if not fits.all():
        found, bare = found.kept(fits), _Bare(bare.wholes[:, fits], bare.kinds[:, fits])
    columns = [_column(found, bare, shape, (), field) for field in schema]
    return Alike(found.numbers, pa.table(columns, schema))


def _finds_types(
    shape: Shape, path: Path, fields: Iterable[pa.Field], wanted: dict[int, pa.DataType]
) -> bool:
    """Whether an object may have such fields, of which the slots are told."""
    for field in fields:
        own = (*path, field.name)
        place = shape.slot_at.get(own)
        if own in shape.arrays:
            return False
        if pa.types.is_struct(field.type) and own in shape.objects:
            if not _finds_types(shape, own, field.type, wanted):
                return False
        elif own in shape.objects:
            return False
        elif place is not None:
            if shape.slots[place].is_quoted and not pa.types.is_string(field.type):
                return False
            wanted[place] = field.type
    return True


def _located(objects: Objects, numbers: Integers, shape: Shape) -> _Located:
    """Those of the objects that have the pieces of the shape where they should be."""
    numbers, quotes = _quotes_of(objects, numbers, shape)
    bounds = objects.ends[numbers]
    begins = np.empty((len(shape.pieces), len(numbers)), np.int64)
    begins[0] = objects.starts[numbers]
    if shape.first_quotes[-1] >= 0:
        begins[1:] = quotes[shape.quotes_before[1:-1]] - shape.first_quotes[1:, None]
    else:
        begins[1:-1] = quotes[shape.quotes_before[1:-2]] - shape.first_quotes[1:-1, None]
        begins[-1] = bounds - shape.sizes[-1]
    fits = _holds(objects.words, begins, shape) & (begins[-1] + shape.sizes[-1] == bounds)
    starts, ends = begins[:-1] + shape.sizes[:-1, None], begins[1:]
    fits &= (starts <= ends).all(axis=0)
    return _Located(objects, numbers, starts, ends).kept(fits)


def _quotes_of(
    objects: Objects, numbers: Integers, shape: Shape
) -> tuple[Integers, npt.NDArray[np.int64]]:
    """Those of the objects with as many quotes as the shape has, and where these are, quote by quote."""
    each = int(shape.quotes_before[-1])
    if len(numbers) == len(objects.starts) and len(objects.quotes) == len(numbers) * each:
        quotes = objects.quotes.reshape(-1, each)
        # Else some have more, and others fewer. Where two of these make up for each other, objects
        # between them are not found here: their first piece is not where it is looked for.
        if (quotes[:, 0] == objects.starts + shape.first_quotes[0]).all():
            return numbers, quotes.T
    has_as_many = np.diff(objects.first_quotes)[numbers] == each
    numbers = numbers[has_as_many]
    return numbers, objects.quotes[objects.first_quotes[numbers] + np.arange(each)[:, None]]


def _holds(words: Words, begins: Integers, shape: Shape) -> _Flags:
    """Whether all pieces are where they should begin. They have no control characters, and one follows
    each object, so none goes on beyond its object."""
    checks = shape.checks
    found = words[begins[checks.pieces] + checks.firsts[:, None]]
    found &= checks.masks[:, None]
    holds: _Flags = (found == checks.words[:, None]).all(axis=0)
    return holds


@dataclass(frozen=True)
class _Bare:
    """Values without quotes, a row for each slot that has such: what they are, or _NOTHING where that is
    not what is asked for; and the numbers of those that are whole ones."""

    wholes: Integers
    kinds: Integers


def _read_bare(found: _Located, asked: Sequence[tuple[int, pa.DataType | None]]) -> _Bare:
    """Of slots, each with its type; None: nobody asks for it."""
    places = [place for place, _ in asked]
    starts, ends, words = found.starts[places], found.ends[places], found.objects.words
    wholes, is_whole = _whole_numbers(words, starts, ends)
    kinds = np.where(is_whole, _WHOLE, _NOTHING)
    for row, (place, type_) in enumerate(asked):
        if not is_whole[row].all():
            others = np.flatnonzero(~is_whole[row])
            kinds[row, others] = _named(words, starts[row, others], ends[row, others])
            pattern = _pattern(type_)
            if pattern:
                others = np.flatnonzero(kinds[row] == _NOTHING)
                fits = pc.match_substring_regex(found.texts(place, others), pattern)
                kinds[row, others[fits.to_numpy(zero_copy_only=False)]] = _OTHER
        is_large = np.abs(wholes[row]) > _largest(type_)
        kinds[row, is_large & is_whole[row]] = _NOTHING
        kinds[row] &= _kinds_of(type_)
    return _Bare(wholes, kinds)


def _named(words: Words, starts: Integers, ends: Integers) -> Integers:
    """Which of the values are null, true or false."""
    found, sizes = words[starts], ends - starts
    kinds = np.full(len(starts), _NOTHING)
    for name, kind in ((b"null", _NULL), (b"true", _LOGICAL), (b"false", _LOGICAL)):
        is_it = (found & mask_of(len(name))) == int.from_bytes(name, "little")
        kinds[is_it & (sizes == len(name))] = kind
    return kinds


def _pattern(type_: pa.DataType | None) -> str:
    """How numbers look that are not whole, or have many digits; nothing: as no value may."""
    if type_ is None or pa.types.is_floating(type_):
        return _NUMBER
    if not pa.types.is_decimal(type_):
        return ""
    # Arrow reads exponents wrongly (https://github.com/apache/arrow/issues/50964).
    digits = type_.precision - type_.scale
    whole = f"(?:0|[1-9][0-9]{{0,{digits - 1}}})" if digits else "0"
    part = rf"(?:\.[0-9]{{1,{type_.scale}}})?" if type_.scale else ""
    return f"^-?{whole}{part}$"


def _whole_numbers(words: Words, starts: Integers, ends: Integers) -> tuple[Integers, _Flags]:
    """The numbers, and which of these are whole, of few digits; eight digits at a time, as all bytes of
    a word are multiplied at once. Of 123, with the first byte to the left: 0 0 0 0 0 1 2 3, in pairs
    of bytes 0 0 1 23, in halves 0 123, in all 123."""
    first = words[starts] & _LOW_BYTE
    is_negative = first == _MINUS
    has_negative = is_negative.any()
    if has_negative:
        starts = starts + is_negative
        first = words[starts] & _LOW_BYTE
    digits = ends - starts
    is_whole = (digits >= 1) & (digits <= _MOST_DIGITS) & ((first != _ZERO) | (digits == 1))
    values = np.zeros(starts.shape, np.int64)
    for done in range(0, min(int(digits.max(initial=0)), _MOST_DIGITS), WORD):
        count = np.clip(digits - done, 0, WORD)
        word = words[done:][starts] ^ _ZEROS
        # What follows the number is moved out, and zeros come before it.
        word <<= (8 * (WORD - count)).astype(np.uint64)
        is_whole &= ((word + _TO_HIGH_BIT | word) & _HIGH_BITS) == 0
        for factor, bits, mask in _STEPS:
            word = (word * factor + (word >> bits)) & mask
        values = values * _POWERS[count] + word.astype(np.int64) if done else word.astype(np.int64)
    if has_negative:
        values = np.where(is_negative, -values, values)
    return values, is_whole


def _largest(type_: pa.DataType | None) -> int:
    """The largest whole number that a type holds for sure."""
    if type_ is not None and pa.types.is_decimal(type_):
        digits: int = type_.precision - type_.scale
        return int(10 ** min(digits, _MOST_DIGITS)) - 1
    if type_ is not None and pa.types.is_integer(type_):
        return int(2 ** (type_.bit_width - 1)) - 1
    return int(10**_MOST_DIGITS)


def _kinds_of(type_: pa.DataType | None) -> int:
    """What a value without quotes may be; None: anything, as nobody asks for it."""
    if type_ is None:
        return _WHOLE | _OTHER | _LOGICAL | _NULL
    if pa.types.is_integer(type_):
        return _WHOLE | _NULL
    if pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return _WHOLE | _OTHER | _NULL
    return _LOGICAL | _NULL if pa.types.is_boolean(type_) else _NULL


def _column(found: _Located, bare: _Bare, shape: Shape, within: Path, field: pa.Field) -> pa.Array:
    """A field of the object that has that path."""
    path, type_ = (*within, field.name), field.type
    rows, place = len(found.numbers), shape.slot_at.get(path)
    if path in shape.objects:
        inner = [_column(found, bare, shape, path, one) for one in type_]
        return pa.StructArray.from_arrays(inner, fields=list(type_))
    if place is None or pa.types.is_struct(type_):
        return pa.nulls(rows, type_)
    if shape.slots[place].is_quoted:
        return pa.repeat("", rows) if field.metadata == _ONLY_THERE else found.texts(place)
    row = shape.bare.index(place)
    is_null = bare.kinds[row] == _NULL
    mask = is_null if is_null.any() else None
    if pa.types.is_integer(type_):
        return pa.array(bare.wholes[row], mask=mask).cast(type_)
    if pa.types.is_boolean(type_):
        # What is neither null nor false has four letters.
        return pa.array(found.ends[place] - found.starts[place] == len("true"), mask=mask)
    texts = found.texts(place)
    return (texts if mask is None else pc.if_else(pa.array(mask), None, texts)).cast(type_)
