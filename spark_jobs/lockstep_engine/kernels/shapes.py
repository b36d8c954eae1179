"""What JSON objects that are written alike have in common.

::

    {"id":1003,"name":"Ada"}        pieces  {"id":   ,"name":"   "}
    {"id":7,"name":"Grace"}         slots        id          name, in quotes
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from lockstep_engine.kernels.groups import Integers

__all__ = ["LONGEST_PIECE", "WORD", "Path", "Shape", "Slot", "Words", "mask_of", "shape_of"]

WORD = 8
"""So many bytes are compared at a time."""

LONGEST_PIECE = 1 << 15
"""No shape has longer ones, so that a look for one beyond the end of a text can be made room for."""

Path = tuple[str | int, ...]
Words = npt.NDArray[np.uint64]

_TOKENS = re.compile(rb'"[^"]*"(\s*:)?|[{}\[\],]|[^\s"{}\[\],:]+')


@dataclass(frozen=True)
class Slot:
    """A value that is neither object nor array: where it is in an object, and whether it stands in
    quotes."""

    path: Path
    is_quoted: bool


@dataclass(frozen=True)
class Checks:
    """What there is to compare of all pieces: words of a piece each, from one of its bytes on, with a
    mask where the piece has fewer bytes than a word."""

    pieces: Integers
    firsts: Integers
    words: Words
    masks: Words


@dataclass(frozen=True)
class Shape:
    """Pieces of text, each followed by a value but for the last; and where there are objects and arrays
    in them."""

    pieces: tuple[bytes, ...]
    slots: tuple[Slot, ...]
    objects: frozenset[Path]
    arrays: frozenset[Path]

    @cached_property
    def sizes(self) -> Integers:
        """Of the pieces."""
        return np.array([len(piece) for piece in self.pieces])

    @cached_property
    def quotes_before(self) -> Integers:
        """How many quotes there are before each piece, and in all."""
        return np.array([0, *accumulate(piece.count(b'"') for piece in self.pieces)])

    @cached_property
    def first_quotes(self) -> Integers:
        """Where in each piece the first quote is: -1 is nowhere."""
        return np.array([piece.find(b'"') for piece in self.pieces])

    @cached_property
    def bare(self) -> Sequence[int]:
        """The slots without quotes."""
        return [number for number, one in enumerate(self.slots) if not one.is_quoted]

    @cached_property
    def slot_at(self) -> Mapping[Path, int]:
        """The numbers of slots by their paths."""
        return {slot.path: number for number, slot in enumerate(self.slots)}

    @cached_property
    def checks(self) -> Checks:
        """All bytes of all pieces."""
        rows = list[tuple[int, int, int, int]]()
        for number, piece in enumerate(self.pieces):
            for first in range(0, len(piece), WORD):
                # The last word of a piece has some bytes of the one before.
                at = max(min(first, len(piece) - WORD), 0)
                part = piece[at : at + WORD]
                rows.append((number, at, int.from_bytes(part, "little"), int(mask_of(len(part)))))
        pieces, firsts, words, masks = zip(*rows, strict=True)
        return Checks(
            np.array(pieces), np.array(firsts), np.array(words, "u8"), np.array(masks, "u8")
        )


def mask_of(size: int) -> np.uint64:
    """The first bytes of a word."""
    return np.uint64((1 << 8 * size) - 1)


def shape_of(text: bytes) -> Shape | None:
    """That of an object. None where it is none, or has a name twice, or escapes, or two values between
    which there is no quote."""
    if b"\\" in text:
        return None
    try:
        found = json.loads(text, object_pairs_hook=_once, parse_constant=_none)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    pieces, slots, objects, arrays = [b""], list[Slot](), set[Path](), set[Path]()
    path, done = list[str | int](), 0
    for token in _TOKENS.finditer(text):
        kind = token[0][:1]
        if token[1]:
            path[-1] = token[0][1 : token[0].rindex(b'"')].decode()
        elif kind in b"{[":
            (objects if kind == b"{" else arrays).add(tuple(path))
            path.append("" if kind == b"{" else 0)
        elif kind in b"}]":
            path.pop()
        elif kind == b",":
            last = path[-1]
            path[-1] = last + 1 if isinstance(last, int) else last
        else:
            quote = int(kind == b'"')
            slots.append(Slot(tuple(path), quote == 1))
            pieces[-1] = text[done : token.start() + quote]
            done = token.end() - quote
            pieces.append(text[done:])
    has_quotes = all(b'"' in piece for piece in pieces[:-1])
    if not slots or not has_quotes or max(map(len, pieces)) > LONGEST_PIECE - 4 * WORD:
        return None
    return Shape(tuple(pieces), tuple(slots), frozenset(objects), frozenset(arrays))


def _once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Raises ValueError where a name stands twice."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name stands twice")
    return made


def _none(constant: str) -> object:
    """Raises ValueError: NaN and the like are no JSON."""
    raise ValueError(f"{constant} is no number")
