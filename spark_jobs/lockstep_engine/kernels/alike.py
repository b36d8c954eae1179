"""JSON objects that are written alike, thousands at a time.

Whoever writes records writes most of them the same way: the same names in the same order, with the same
spaces, and between these the values. Of a record that was parsed once, its shape, it is known which
bytes those are; another one of that shape has the same bytes between its values, which is seen for all
records at once, as are the digits of their numbers.

::

    {"id":1003,"name":"Ada"}        {"id":     between quotes and digits of any length
    {"id":7,"name":"Grace"}         ,"name":"
                                    "}

The law: an object that is taken is JSON, has no name twice and no escapes, and has the values that Arrow
finds in it, each of the type that is asked for or null.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate, chain, zip_longest

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lockstep_engine.kernels.groups import Integers

__all__ = ["Alike", "Objects", "read_alike"]

MOST_SHAPES, LEAST_PART = 6, 1 / 16
"""So many are looked for, as long as each is that of such a part of the objects; what is of none of them
is for a parser."""

_QUOTE, _BACKSLASH, _MINUS, _ZERO = b'"\\-0'
_WORD = 8
_ZEROS, _TO_HIGH_BIT, _HIGH_BITS = (
    np.uint64(int.from_bytes([byte] * _WORD)) for byte in (ord("0"), 0x80 - 10, 0x80)
)
_LOW_BYTE, _ALL_BITS = np.uint64(0xFF), np.uint64((1 << 64) - 1)
_STEPS = [
    (np.uint64(10 ** (bits // 8)), np.uint64(bits), np.uint64(mask))
    for bits, mask in ((8, 0x00FF00FF00FF00FF), (16, 0x0000FFFF0000FFFF), (32, 0xFFFFFFFF))
]
"""Digits that stand side by side become numbers of two, these numbers of four, these of eight."""
_POWERS = 10 ** np.arange(_WORD + 1)
_MOST_DIGITS, _MOST_BARE = 18, 40
"""A number of more digits may be beyond 64 bits; of more bytes it is for a parser."""

_LONGEST = 1 << 15
"""Of what stands between two values."""

_NUMBER = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$"
_WHOLE, _OTHER, _LOGICAL, _NULL, _NOTHING = 1, 2, 4, 8, 0
"""What a value without quotes is: a number, of these a whole one of few digits; true or false; null."""

_TOKENS = re.compile(rb'"[^"]*"(\s*:)?|[{}\[\],]|[^\s"{}\[\],:]+')

_Flags = npt.NDArray[np.bool_]
_Words = npt.NDArray[np.uint64]
_Path = tuple[str | int, ...]


@dataclass(frozen=True)
class _Slot:
    """A value that is neither object nor array: where it is in a record, from which byte of it to which,
    and whether it stands in quotes."""

    path: _Path
    start: int
    end: int
    is_quoted: bool


@dataclass(frozen=True)
class _Shape:
    """What records have in common: pieces of text, each followed by a value but for the last; and where
    there are objects and arrays in them."""

    pieces: tuple[bytes, ...]
    slots: tuple[_Slot, ...]
    objects: frozenset[_Path]
    arrays: frozenset[_Path]

    @cached_property
    def pattern(self) -> re.Pattern[bytes]:
        """Of what may have the shape."""
        values = [rb'[^"]*' if one.is_quoted else rb'[^\s"{}\[\],]+' for one in self.slots]
        pieces = map(re.escape, self.pieces)
        return re.compile(b"".join(chain.from_iterable(zip_longest(pieces, values, fillvalue=b""))))

    @cached_property
    def sizes(self) -> Integers:
        """Of the pieces."""
        return np.array([len(piece) for piece in self.pieces])

    @cached_property
    def quotes(self) -> Integers:
        """How many quotes there are before each piece, and in all."""
        return np.array([0, *accumulate(piece.count(b'"') for piece in self.pieces)])

    @cached_property
    def first_quotes(self) -> Integers:
        """Where in each piece the first quote is: -1 is nowhere."""
        return np.array([piece.find(b'"') for piece in self.pieces])

    @cached_property
    def bare(self) -> Sequence[int]:
        """The slots without quotes."""
        return [place for place, one in enumerate(self.slots) if not one.is_quoted]

    @cached_property
    def words(self) -> _Words:
        """Eight bytes each, which together are the pieces: a row for each, of the number of the piece,
        where in it they are, the bytes, and a mask for where the piece has fewer."""
        rows = list[tuple[int, int, int, int]]()
        for number, piece in enumerate(self.pieces):
            for first in range(0, len(piece), _WORD):
                at = max(min(first, len(piece) - _WORD), 0)
                part = piece[at : at + _WORD]
                word = int.from_bytes(part, "little")
                rows.append((number, at, word, (1 << 8 * len(part)) - 1))
        return np.array(rows, np.uint64)

    @cached_property
    def places(self) -> Mapping[_Path, int]:
        """The slots by their paths."""
        return {slot.path: place for place, slot in enumerate(self.slots)}


@lru_cache(maxsize=64)
def _known(schema: pa.Schema) -> deque[_Shape]:  # noqa: ARG001 - there is one for each
    """Shapes that were found before, where such fields were looked for."""
    return deque(maxlen=MOST_SHAPES)


def _shape_like(text: bytes, known: deque[_Shape]) -> _Shape | None:
    """That of an object; see `_shape_of`."""
    for shape in list(known):
        if shape.pattern.fullmatch(text):
            return shape
    found = _shape_of(text)
    if found is not None:
        known.appendleft(found)
    return found


def _shape_of(text: bytes) -> _Shape | None:
    """None where it is no object, or has a name twice, or escapes, or values between which there is no
    quote."""
    try:
        if b"\\" in text or not isinstance(json.loads(text, object_pairs_hook=_once), dict):
            return None
    except (ValueError, RecursionError):
        return None
    slots, objects, arrays = _slots(text)
    bounds = [0, *(place for one in slots for place in (one.start, one.end)), len(text)]
    pieces = tuple(text[bounds[i] : bounds[i + 1]] for i in range(0, len(bounds), 2))
    has_quotes = all(b'"' in piece for piece in pieces[:-1])
    if not slots or not has_quotes or max(map(len, pieces)) > _LONGEST - 4 * _WORD:
        return None
    return _Shape(pieces, tuple(slots), frozenset(objects), frozenset(arrays))


def _once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Raises ValueError where a name stands twice."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name stands twice")
    return made


def _slots(text: bytes) -> tuple[list[_Slot], set[_Path], set[_Path]]:
    """The values of an object, in order, and where objects and arrays are; of JSON without escapes."""
    slots, objects, arrays = list[_Slot](), set[_Path](), set[_Path]()
    path: list[str | int] = []
    for token in _TOKENS.finditer(text):
        kind = token[0][:1]
        if token[1]:
            path[-1] = token[0][1 : token[0].rindex(b'"')].decode()
        elif kind == b"{":
            objects.add(tuple(path))
            path.append("")
        elif kind == b"[":
            arrays.add(tuple(path))
            path.append(0)
        elif kind in b"}]":
            path.pop()
        elif kind == b",":
            last = path[-1]
            path[-1] = last + 1 if isinstance(last, int) else last
        else:
            inner = int(kind == b'"')
            slots.append(_Slot(tuple(path), token.start() + inner, token.end() - inner, inner == 1))
    return slots, objects, arrays


class Objects:
    """Texts of objects, one after the other with a byte between: UTF-8 without control characters, from
    `starts` to `ends`."""

    def __init__(self, text: bytes, starts: Integers, ends: Integers) -> None:
        self.text = text
        # So that there is a word wherever it is looked for, if none of the text.
        self.data = text + bytes(_LONGEST)
        self.starts, self.ends = starts, ends
        self.words: _Words = np.ndarray((len(self.data) - _WORD + 1,), "<u8", self.data, 0, (1,))
        self.quotes = np.flatnonzero(np.frombuffer(text, np.uint8) == _QUOTE)

    @cached_property
    def escaped(self) -> Integers:
        """The numbers of those with a backslash."""
        if _BACKSLASH not in self.text:
            return np.zeros(0, np.int64)
        places = np.flatnonzero(np.frombuffer(self.text, np.uint8) == _BACKSLASH)
        return np.unique(np.searchsorted(self.starts, places, "right") - 1)

    @cached_property
    def first_quotes(self) -> Integers:
        """Of each the number of its first quote, and how many there are."""
        return np.append(np.searchsorted(self.quotes, self.starts), len(self.quotes))

    def of(self, number: int) -> bytes:
        """The text of one of them."""
        return self.text[self.starts[number] : self.ends[number]]

    def slices(self, starts: Integers, ends: Integers) -> pa.Array:
        """Pieces of the text, in order."""
        if not len(starts):
            return pa.array([], pa.string())
        bounds = np.empty(2 * len(starts), np.int32)
        bounds[0::2], bounds[1::2] = starts, ends
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self.data)]
        pieces = pa.Array.from_buffers(pa.string(), len(bounds) - 1, buffers)
        return pieces.take(pa.array(np.arange(0, len(bounds), 2)))


@dataclass(frozen=True)
class Alike:
    """Objects that are written alike: the numbers of them, in order, and a row for each."""

    numbers: Integers
    rows: pa.Table


def read_alike(objects: Objects, schema: pa.Schema) -> Iterator[Alike]:
    """Groups of the objects, no two of which have one in common. A field that an object does not have
    is null."""
    left = np.arange(len(objects.starts))
    if len(objects.escaped):
        left = np.setdiff1d(left, objects.escaped, assume_unique=True)
    least = len(left) * LEAST_PART
    for _ in range(MOST_SHAPES):
        if not len(left):
            return
        shape = _shape_like(objects.of(int(left[0])), _known(schema))
        found = None if shape is None else _of_shape(objects, left, shape, schema)
        if found is None:
            left = left[1:]
            continue
        yield found
        if not least <= len(found.numbers) < len(left):
            return
        left = np.setdiff1d(left, found.numbers, assume_unique=True)


@dataclass(frozen=True)
class _Located:
    """Objects of a shape, by their numbers, from where to where their values are, a row for each slot,
    and of those without quotes what they may be, and the numbers of those that are whole ones."""

    objects: Objects
    numbers: Integers
    starts: Integers
    ends: Integers
    kinds: Integers
    wholes: Integers

    def kept(self, fits: _Flags) -> _Located:
        """Some of them."""
        if fits.all():
            return self
        each = (self.starts, self.ends, self.kinds, self.wholes)
        return _Located(self.objects, self.numbers[fits], *(one[:, fits] for one in each))

    def texts(self, place: int) -> pa.Array:
        """Of a slot."""
        return self.objects.slices(self.starts[place], self.ends[place])


def _of_shape(
    objects: Objects, numbers: Integers, shape: _Shape, schema: pa.Schema
) -> Alike | None:
    """Those of the objects that have the shape; None where its values are of other types."""
    wanted = dict[int, pa.DataType]()
    if not _finds_types(shape, (), schema, wanted):
        return None
    found = _located(objects, numbers, shape)
    if shape.bare:
        may_be = np.array([_kinds_of(wanted.get(place)) for place in shape.bare])
        fits: _Flags = ((found.kinds & may_be[:, None]) != _NOTHING).all(axis=0)
        found = found.kept(fits)
    try:
        columns = [_column(found, shape, (one.name,), one.type) for one in schema]
    except pa.ArrowInvalid:
        return None
    return Alike(found.numbers, pa.table(columns, schema))


def _finds_types(
    shape: _Shape, path: _Path, fields: Iterable[pa.Field], wanted: dict[int, pa.DataType]
) -> bool:
    """Whether an object may have such fields, of which the slots are told."""
    for field in fields:
        own = (*path, field.name)
        place = shape.places.get(own)
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


def _located(objects: Objects, numbers: Integers, shape: _Shape) -> _Located:
    """Those of the objects that have the pieces of the shape where they should be."""
    numbers, quotes = _quotes_of(objects, numbers, shape)
    bounds = objects.ends[numbers]
    pieces = np.empty((len(shape.pieces), len(numbers)), np.int64)
    pieces[0] = objects.starts[numbers]
    if shape.first_quotes[-1] >= 0:
        pieces[1:] = quotes[shape.quotes[1:-1]] - shape.first_quotes[1:, None]
    else:
        pieces[1:-1] = quotes[shape.quotes[1:-2]] - shape.first_quotes[1:-1, None]
        pieces[-1] = bounds - shape.sizes[-1]
    fits = _holds(objects.words, pieces, shape) & (pieces[-1] + shape.sizes[-1] == bounds)
    starts, ends = pieces[:-1] + shape.sizes[:-1, None], pieces[1:]
    nothing = np.zeros((0, len(numbers)), np.int64)
    found = _Located(objects, numbers, starts, ends, nothing, nothing).kept(fits)
    if not shape.bare:
        return found
    wholes, kinds = _read_bare(objects, found.starts[shape.bare], found.ends[shape.bare])
    return replace(found, kinds=kinds, wholes=wholes)


def _quotes_of(
    objects: Objects, numbers: Integers, shape: _Shape
) -> tuple[Integers, npt.NDArray[np.int64]]:
    """Those of the objects with as many quotes as the shape has, and where these are, quote by quote."""
    each = int(shape.quotes[-1])
    if len(numbers) == len(objects.starts) and len(objects.quotes) == len(numbers) * each:
        quotes = objects.quotes.reshape(-1, each)
        if (quotes[:, 0] == objects.starts + shape.first_quotes[0]).all():
            return numbers, quotes.T
    has_as_many = np.diff(objects.first_quotes)[numbers] == each
    numbers = numbers[has_as_many]
    return numbers, objects.quotes[objects.first_quotes[numbers] + np.arange(each)[:, None]]


def _holds(words: _Words, places: Integers, shape: _Shape) -> _Flags:
    """Whether the pieces stand at their places. They have no control characters, and one follows each
    object, so they stand within that object."""
    pieces, first, expected, mask = shape.words.T[:, :, None]
    found = words[places[pieces[:, 0]] + first.astype(np.int64)]
    if (mask != _ALL_BITS).any():
        found &= mask
    holds: _Flags = (found == expected).all(axis=0)
    return holds


def _read_bare(objects: Objects, starts: Integers, ends: Integers) -> tuple[Integers, Integers]:
    """The numbers of values without quotes, and what these may be."""
    wholes, is_whole = _whole_numbers(objects.words, starts, ends)
    kinds = np.where(is_whole, _WHOLE, _NOTHING)
    for place in np.flatnonzero(~is_whole.all(axis=1)):
        others = np.flatnonzero(~is_whole[place] & (starts[place] < ends[place]))
        texts = objects.slices(starts[place, others], ends[place, others])
        is_number = pc.match_substring_regex(texts, _NUMBER)
        is_short = pc.less_equal(pc.binary_length(texts), _MOST_BARE)
        named = pc.fill_null(pc.index_in(texts, pa.array(["null", "true", "false"])), 3)
        kinds[place, others] = np.where(
            pc.and_(is_number, is_short).to_numpy(zero_copy_only=False),
            _OTHER,
            np.array([_NULL, _LOGICAL, _LOGICAL, _NOTHING])[named.to_numpy()],
        )
    return wholes, kinds


def _whole_numbers(words: _Words, starts: Integers, ends: Integers) -> tuple[Integers, _Flags]:
    """The numbers, and which of these are whole, of few digits; eight digits at a time, as all bytes of
    a word are multiplied at once."""
    first = words[starts] & _LOW_BYTE
    is_negative = first == _MINUS
    has_negative = is_negative.any()
    if has_negative:
        starts = starts + is_negative
        first = words[starts] & _LOW_BYTE
    digits = ends - starts
    is_whole = (digits >= 1) & (digits <= _MOST_DIGITS) & ((first != _ZERO) | (digits == 1))
    values = np.zeros(starts.shape, np.int64)
    for done in range(0, min(int(digits.max(initial=0)), _MOST_DIGITS), _WORD):
        count = np.clip(digits - done, 0, _WORD)
        word = words[done:][starts] ^ _ZEROS
        # What follows the number is moved out, and zeros come before it.
        word <<= (8 * (_WORD - count)).astype(np.uint64)
        is_whole &= ((word + _TO_HIGH_BIT | word) & _HIGH_BITS) == 0
        for factor, bits, mask in _STEPS:
            word = (word * factor + (word >> bits)) & mask
        values = values * _POWERS[count] + word.astype(np.int64) if done else word.astype(np.int64)
    if has_negative:
        values = np.where(is_negative, -values, values)
    return values, is_whole


def _kinds_of(type_: pa.DataType | None) -> int:
    """What a value without quotes may be; None: anything, as nobody asks for it."""
    if type_ is None:
        return _WHOLE | _OTHER | _LOGICAL | _NULL
    if pa.types.is_integer(type_):
        return _WHOLE | _NULL
    if pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return _WHOLE | _OTHER | _NULL
    return _LOGICAL | _NULL if pa.types.is_boolean(type_) else _NULL


def _column(found: _Located, shape: _Shape, path: _Path, type_: pa.DataType) -> pa.Array:
    """The field of that path. Raises ArrowInvalid where a value is too large for the type."""
    rows, place = len(found.numbers), shape.places.get(path)
    if path in shape.objects:
        inner = [_column(found, shape, (*path, one.name), one.type) for one in type_]
        return pa.StructArray.from_arrays(inner, fields=list(type_))
    if place is None:
        return pa.nulls(rows, type_)
    if shape.slots[place].is_quoted:
        return found.texts(place)
    row = shape.bare.index(place)
    is_null = found.kinds[row] == _NULL
    if pa.types.is_integer(type_):
        return pa.array(found.wholes[row], mask=is_null if is_null.any() else None).cast(type_)
    if pa.types.is_struct(type_):
        return pa.nulls(rows, type_)
    texts = pc.if_else(pa.array(is_null), None, found.texts(place))
    if pa.types.is_decimal(type_) and pc.any(pc.invert(_fit(texts, type_))).as_py():
        raise pa.ArrowInvalid("numbers that their type cannot hold, or with exponents")
    return texts.cast(type_)


def _fit(numbers: pa.StringArray, type_: pa.Decimal128Type) -> pa.BooleanArray:
    """Whether they have no more digits than their type, and no exponents."""
    digits = type_.precision - type_.scale
    whole = f"(?:0|[1-9][0-9]{{0,{digits - 1}}})" if digits else "0"
    part = rf"(?:\.[0-9]{{1,{type_.scale}}})?" if type_.scale else ""
    return pc.match_substring_regex(numbers, f"^-?{whole}{part}$")
