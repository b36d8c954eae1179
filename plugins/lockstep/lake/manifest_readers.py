"""How a manifest is read, worked out once for each form of file.

PyIceberg (0.12) parses the schema that an Avro file brings along, and works out how it is read, anew
for each file: nearly all of the time that it takes to read a manifest of few entries, and an interval
reads dozens.
"""

from __future__ import annotations

from collections.abc import Hashable
from threading import Lock
from typing import TypeVar

import pyiceberg.manifest
from cachetools import LRUCache
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import META_SCHEMA, AvroFile, AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.schema import Schema
from pyiceberg.typedef import StructProtocol

__all__ = ["ManifestReader", "install"]

FORMS = 200
"""Of so many a process keeps the reader: one for each list, and for each way to partition."""

_SCHEMA = "avro.schema"
_Row = TypeVar("_Row", bound=StructProtocol)
_HEADERS = construct_reader(META_SCHEMA, {-1: AvroFileHeader})
_LOCK = Lock()
_KEPT = LRUCache[Hashable, tuple[Schema, Schema, Reader]](FORMS)
"""By what a reader follows from: the schemas of the file and of what is read, and a reader. Readers have
no state: what they read from is handed to them."""


class ManifestReader(AvroFile[_Row]):
    """An Avro file, read as `AvroFile` reads it."""

    def __enter__(self) -> ManifestReader[_Row]:
        with self.input_file.open() as opened:
            self.decoder = new_decoder(opened.read())
        self.header = _HEADERS.read(self.decoder)
        kinds = tuple(self.read_types.items()), tuple(self.read_enums.items())
        # A schema that is asked for is kept, so that no other one can have its id.
        form = self.header.meta.get(_SCHEMA), id(self.read_schema), kinds
        with _LOCK:
            known = _KEPT.get(form)
        if known is None:
            schema = self.header.get_schema()
            wanted = self.read_schema or schema
            known = schema, wanted, resolve_reader(schema, wanted, self.read_types, self.read_enums)
            with _LOCK:
                _KEPT[form] = known
        self.schema, self.read_schema, self.reader = known
        return self


def install() -> None:
    """Have PyIceberg read manifests, and lists of them, by it."""
    pyiceberg.manifest.AvroFile = ManifestReader  # type: ignore[attr-defined]
