"""Avro schemas: read, with all names written out in full, and which declared column fits which type.

A schema is kept as JSON values. A named type (record, enum, fixed) is an object where it first
occurs, with its full name, and from then on that name as a text; `AvroSchema.definition` gives the
object in both cases.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["AvroSchema", "UnreadableSchemaError", "fits_column", "read_avro_schema"]

_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAMED = ("record", "error", "enum", "fixed")
_DECIMAL = re.compile(r"DECIMAL\((\d+), (\d+)\)")
_PLAIN_FITS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "BOOLEAN": (("boolean", ""),),
    "TINYINT": (("int", ""),),
    "SMALLINT": (("int", ""),),
    "INT": (("int", ""),),
    "BIGINT": (("int", ""), ("long", "")),
    "FLOAT": (("float", ""),),
    "DOUBLE": (("float", ""), ("double", ""), ("int", "")),
    "STRING": (("string", ""), ("string", "uuid"), ("enum", "")),
    "BINARY": (("bytes", ""), ("fixed", "")),
    "DATE": (("int", "date"),),
    "TIMESTAMP": (("long", "timestamp-millis"), ("long", "timestamp-micros")),
    "TIMESTAMP_NTZ": (("long", "local-timestamp-millis"), ("long", "local-timestamp-micros")),
}


class UnreadableSchemaError(Exception):
    """The text is no Avro schema of a record; the argument says why."""


@dataclass(frozen=True)
class AvroSchema:
    """A record's schema, and the named types in it by full name."""

    root: Mapping[str, Any]
    names: Mapping[str, Mapping[str, Any]] = field(hash=False)

    def definition(self, type_: Any) -> Mapping[str, Any]:
        """The type as an object with `type`, which is a word; a union's is 'union'."""
        if isinstance(type_, list):
            return {"type": "union", "branches": type_}
        if isinstance(type_, str):
            return self.names.get(type_, {"type": type_})
        if isinstance(type_["type"], dict | list):
            return self.definition(type_["type"])
        if type_["type"] in self.names:
            return self.names[type_["type"]]
        found: Mapping[str, Any] = type_
        return found

    def value_type(self, type_: Any) -> tuple[Mapping[str, Any], bool]:
        """The type of values that are not null, and whether null is one, too."""
        found = self.definition(type_)
        if found["type"] != "union":
            return found, found["type"] == "null"
        others = [one for one in found["branches"] if self.definition(one)["type"] != "null"]
        if len(others) == 1:
            return self.definition(others[0]), len(found["branches"]) > 1
        return found, False

    def at(self, path: Sequence[str]) -> tuple[Mapping[str, Any], bool] | None:
        """The type of the field at a path through records, and whether it may be null; None where
        there is no such field."""
        found, is_nullable = self.value_type(self.root)
        for name in path:
            fields = {one["name"]: one["type"] for one in found.get("fields", ())}
            if name not in fields:
                return None
            found, is_null_here = self.value_type(fields[name])
            is_nullable = is_nullable or is_null_here
        return found, is_nullable

    def is_recursive(self, type_: Any, within: frozenset[str] = frozenset()) -> bool:
        """Whether values of the type may hold values of the same type."""
        found = self.definition(type_)
        name = found.get("name", "")
        if name in within:
            return True
        inner = within | {name} if name else within
        parts = [found[key] for key in ("items", "values") if key in found]
        parts += [*found.get("branches", ()), *(one["type"] for one in found.get("fields", ()))]
        return any(self.is_recursive(part, inner) for part in parts)

    def without_recursion(self) -> Mapping[str, Any]:
        """The record without the fields that a table has no type for; each named type is written out
        where it comes first."""
        own = frozenset({self.root["name"]})
        fields = [one for one in self.root["fields"] if not self.is_recursive(one["type"], own)]
        written = {self.root["name"]}
        kept = [{"name": f["name"], "type": self._written(f["type"], written)} for f in fields]
        return {"type": "record", "name": self.root["name"], "fields": kept}

    def _written(self, type_: Any, written: set[str]) -> Any:
        if isinstance(type_, list):
            return [self._written(branch, written) for branch in type_]
        if isinstance(type_, str) and type_ not in self.names:
            return type_
        found = dict(self.definition(type_))
        name = found.get("name")
        if name in written:
            return name
        if name is not None:
            written.add(name)
        for key in ("items", "values"):
            if key in found:
                found[key] = self._written(found[key], written)
        if "fields" in found:
            found["fields"] = [
                {"name": one["name"], "type": self._written(one["type"], written)}
                for one in found["fields"]
            ]
        return found


def read_avro_schema(text: str) -> AvroSchema:
    """The schema of a record. Raises UnreadableSchemaError."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableSchemaError(f"it is no JSON: {error}") from None
    names: dict[str, Mapping[str, Any]] = {}
    root = _named_in_full(tree, "", names)
    if not isinstance(root, dict) or root.get("type") not in ("record", "error"):
        raise UnreadableSchemaError("it is no record")
    return AvroSchema(root, names)


def _named_in_full(type_: Any, namespace: str, names: dict[str, Mapping[str, Any]]) -> Any:
    if isinstance(type_, list):
        return [_named_in_full(branch, namespace, names) for branch in type_]
    if isinstance(type_, str):
        return type_ if type_ in _PRIMITIVES else _known(type_, namespace, names)
    if not isinstance(type_, dict) or "type" not in type_:
        raise UnreadableSchemaError(f"{json.dumps(type_)[:60]} is no type")
    kind = type_["type"]
    if not isinstance(kind, str):
        return _named_in_full(kind, namespace, names)
    if kind in _NAMED:
        return _definition(type_, namespace, names)
    logical = {key: type_[key] for key in ("logicalType", "precision", "scale") if key in type_}
    if kind in ("array", "map"):
        inner = "items" if kind == "array" else "values"
        if inner not in type_:
            raise UnreadableSchemaError(f"a type {kind} has no {inner!r}")
        return {"type": kind, inner: _named_in_full(type_[inner], namespace, names)}
    if kind in _PRIMITIVES:
        return {"type": kind, **logical} if logical else kind
    return _known(kind, namespace, names)


def _known(name: str, namespace: str, names: Mapping[str, Any]) -> str:
    for full in (f"{namespace}.{name}" if namespace and "." not in name else name, name):
        if full in names:
            return full
    raise UnreadableSchemaError(f"the type {name!r} is not defined before it is used")


def _definition(
    type_: Mapping[str, Any], namespace: str, names: dict[str, Mapping[str, Any]]
) -> dict[str, Any]:
    name = type_.get("name")
    if not isinstance(name, str) or not name:
        raise UnreadableSchemaError(f"a type {type_['type']} has no name")
    namespace = name.rpartition(".")[0] if "." in name else type_.get("namespace", namespace)
    full = name if "." in name or not namespace else f"{namespace}.{name}"
    found: dict[str, Any] = {"type": type_["type"], "name": full}
    # Known before its fields are read, as they may name it.
    names[full] = found
    for key in ("symbols", "size", "logicalType", "precision", "scale"):
        if key in type_:
            found[key] = type_[key]
    if type_["type"] in ("record", "error"):
        found["fields"] = list(_fields(type_, namespace, names))
    return found


def _fields(
    type_: Mapping[str, Any], namespace: str, names: dict[str, Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    for one in type_.get("fields", ()):
        if not isinstance(one, dict) or "name" not in one or "type" not in one:
            raise UnreadableSchemaError(f"{json.dumps(one)[:60]} is no field")
        yield {"name": one["name"], "type": _named_in_full(one["type"], namespace, names)}


def fits_column(schema: AvroSchema, type_: Any, declared: str) -> bool:
    """Whether every value of the type is null or one that a column declared so can hold (but for
    the range of small integers, which is a matter of each value)."""
    found, _ = schema.value_type(type_)
    kind, logical = str(found["type"]), str(found.get("logicalType", ""))
    if declared.startswith("ARRAY<"):
        return kind == "array" and fits_column(schema, found["items"], declared[6:-1])
    if declared.startswith("MAP<STRING, "):
        return kind == "map" and fits_column(schema, found["values"], declared[12:-1])
    decimal = _DECIMAL.fullmatch(declared)
    if decimal is not None:
        if kind not in ("bytes", "fixed") or logical != "decimal":
            return False
        precision, scale = int(decimal[1]), int(decimal[2])
        own_scale = int(found.get("scale", 0))
        return own_scale <= scale and int(found["precision"]) - own_scale <= precision - scale
    return (kind, logical) in _PLAIN_FITS.get(declared, ())
