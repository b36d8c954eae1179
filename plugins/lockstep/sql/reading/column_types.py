"""Column types of sources, as Spark DDL text."""

from __future__ import annotations

import re

__all__ = ["NotReadableError", "UnknownTypeError", "read_type"]

_SIMPLE = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "byte": "TINYINT",
    "smallint": "SMALLINT",
    "short": "SMALLINT",
    "int": "INT",
    "integer": "INT",
    "bigint": "BIGINT",
    "long": "BIGINT",
    "float": "FLOAT",
    "real": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamp_ltz": "TIMESTAMP",
    "timestamp_ntz": "TIMESTAMP_NTZ",
    "string": "STRING",
    "binary": "BINARY",
}
_DECIMAL = {"decimal", "dec", "numeric"}
_NOT_READABLE = {
    "char",
    "character",
    "varchar",
    "interval",
    "void",
    "variant",
    "geometry",
    "geography",
    "time",
}
_TOKEN = re.compile(r"\s*(?:(?P<word>\w+)|(?P<name>`(?:[^`]|``)+`)|(?P<sign>[<>(),:]))")
SIMPLE_TYPES = (
    *sorted({*_SIMPLE.values()}),
    "DECIMAL(p, s)",
    "ARRAY<t>",
    "MAP<k, v>",
    "STRUCT<a: t>",
)


class UnknownTypeError(Exception):
    """Spark has no such type; the argument is the text that was found."""


class NotReadableError(Exception):
    """A type that Spark has and that JSON values are not read into; the argument is its name."""


def read_type(text: str, start: int = 0) -> tuple[str, int]:
    """The type that begins at `start`, in one spelling, and the offset after it.

    Raises UnknownTypeError, NotReadableError.
    """
    reader = _Reader(text, start)
    return reader.type(), reader.at


class _Reader:
    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self.at = start

    def _next(self) -> str:
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            raise UnknownTypeError(self.text[self.at : self.at + 20].strip() or "nothing")
        self.at = match.end()
        return match.group().strip()

    def _accept(self, sign: str) -> bool:
        match = _TOKEN.match(self.text, self.at)
        if match is None or match.group().strip() != sign:
            return False
        self.at = match.end()
        return True

    def _expect(self, sign: str) -> None:
        found = self._next()
        if found != sign:
            raise UnknownTypeError(f"{found} (where {sign} was expected)")

    def type(self) -> str:
        word = self._next()
        name = word.lower()
        if name in _SIMPLE:
            return _SIMPLE[name]
        if name in _DECIMAL:
            return self._decimal()
        if name == "array":
            self._expect("<")
            element = self.type()
            self._expect(">")
            return f"ARRAY<{element}>"
        if name == "map":
            self._expect("<")
            key = self.type()
            self._expect(",")
            value = self.type()
            self._expect(">")
            return f"MAP<{key}, {value}>"
        if name == "struct":
            return self._struct()
        if name in _NOT_READABLE:
            raise NotReadableError(word)
        raise UnknownTypeError(word)

    def _decimal(self) -> str:
        if not self._accept("("):
            return "DECIMAL(10, 0)"
        precision, scale = self._next(), "0"
        if self._accept(","):
            scale = self._next()
        self._expect(")")
        if not (precision.isdigit() and scale.isdigit()) or not (
            0 < int(precision) <= 38 and int(scale) <= int(precision)
        ):
            raise UnknownTypeError(f"DECIMAL({precision}, {scale})")
        return f"DECIMAL({precision}, {scale})"

    def _struct(self) -> str:
        self._expect("<")
        fields: list[str] = []
        while True:
            name = self._next()
            self._accept(":")
            fields.append(f"{name}: {self.type()}")
            if not self._accept(","):
                break
        self._expect(">")
        return f"STRUCT<{', '.join(fields)}>"
