"""Values of the control side as JSON and back: what crosses from one process to another.

One pair of functions serves every frozen dataclass of `job`, `model` and `reports`, driven by its
annotations. Reading is strict: a field that is not known, is missing, or has another type is
refused with its path, as a job that was half understood would compute something else.

=====================  =====================================================
value                  JSON
=====================  =====================================================
dataclass              object, a member per field
tuple, list            array
Mapping                object, where the keys are str or int
datetime               ISO 8601 text with an offset; times are aware
Fraction               text, as 1/10
Enum                   its value
str int float bool None  themselves
=====================  =====================================================
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from fractions import Fraction
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from lockstep.errors import WrongUse

__all__ = ["decode", "dumps", "encode", "loads"]

_Value = TypeVar("_Value")

_UNIONS = (Union, types.UnionType)


def dumps(value: object) -> str:
    """A value as JSON text; equal values give equal text."""
    return json.dumps(encode(value), sort_keys=True, ensure_ascii=False)


def loads(kind: type[_Value], text: str) -> _Value:
    """Read JSON text as a value of `kind`. Raises WrongUse, which names the field."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise WrongUse(
            f"what should hold a {kind.__name__} is not JSON",
            expected=f"one JSON object with the fields of {kind.__name__}",
            found=f"{error}",
            next_step="have it written again by the same version of Lockstep",
        ) from error
    return decode(kind, data)


def encode(value: object) -> Any:
    """A value as what `json` can write. Raises TypeError for a kind without a form in JSON."""
    match value:
        case None | bool() | int() | float() | str() if not isinstance(value, Enum):
            return value
        case Enum():
            return value.value
        case datetime():
            if value.tzinfo is None:
                raise TypeError(f"{value} has no time zone")
            return value.isoformat()
        case Fraction():
            return str(value)
        case Mapping():
            return {_encode_key(key): encode(member) for key, member in value.items()}
        case tuple() | list():
            return [encode(member) for member in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {f.name: encode(getattr(value, f.name)) for f in fields(value)}
        case _:
            raise TypeError(f"{type(value).__name__} has no form in JSON")


def decode(kind: type[_Value], data: object) -> _Value:
    """What `json` has read as a value of `kind`. Raises WrongUse, which names the field."""
    decoded: _Value = _decode(kind, data, kind.__name__)
    return decoded


def _encode_key(key: object) -> str:
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise TypeError(f"a mapping's key is str or int, not {type(key).__name__}")
    return str(key)


def _decode(kind: Any, data: object, path: str) -> Any:
    origin = get_origin(kind)
    if origin in _UNIONS:
        return _decode_union(kind, data, path)
    if origin is not None:
        return _decode_container(kind, origin, data, path)
    if isinstance(kind, type) and is_dataclass(kind):
        return _decode_dataclass(kind, data, path)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _decode_enum(kind, data, path)
    if kind is Fraction:
        return _decode_fraction(data, path)
    return _decode_time(data, path) if kind is datetime else _decode_scalar(kind, data, path)


def _decode_union(kind: Any, data: object, path: str) -> Any:
    """`X | None`, or dataclasses that differ in their fields: anything wider would have to guess."""
    members = [member for member in get_args(kind) if member is not type(None)]
    if len(members) < len(get_args(kind)) and data is None:
        return None
    if len(members) == 1:
        return _decode(members[0], data, path)
    by_fields = {
        frozenset(f.name for f in fields(member)): member
        for member in members
        if isinstance(member, type) and is_dataclass(member)
    }
    if len(by_fields) < len(members):
        raise TypeError(
            f"{path}: {kind} cannot be read from JSON, only a type or None, or dataclasses that differ "
            "in their fields"
        )
    found = by_fields.get(frozenset(data)) if isinstance(data, dict) else None
    if found is None:
        names = " or ".join(member.__name__ for member in members)
        raise _mismatch(path, f"an object with the fields of {names}", data)
    return _decode(found, data, path)


def _decode_container(kind: Any, origin: Any, data: object, path: str) -> Any:
    arguments = get_args(kind)
    if origin is tuple:
        if not isinstance(data, list):
            raise _mismatch(path, "an array", data)
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            arguments = (arguments[0],) * len(data)
        if len(data) != len(arguments):
            raise _mismatch(path, f"an array of {len(arguments)}", data)
        return tuple(
            _decode(member, item, f"{path}[{place}]")
            for place, (member, item) in enumerate(zip(arguments, data, strict=True))
        )
    if isinstance(origin, type) and issubclass(dict, origin):
        if not isinstance(data, dict):
            raise _mismatch(path, "an object", data)
        key_kind, member_kind = arguments
        return {
            _decode_key(key_kind, key, path): _decode(member_kind, member, f"{path}.{key}")
            for key, member in data.items()
        }
    raise TypeError(f"{path}: {kind} cannot be read from JSON")


def _decode_key(kind: Any, key: str, path: str) -> str | int:
    if kind is not int:
        return key
    try:
        return int(key)
    except ValueError as error:
        raise _mismatch(path, "an object whose names are whole numbers", key) from error


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _decode_dataclass(kind: Any, data: object, path: str) -> Any:
    if not isinstance(data, dict):
        raise _mismatch(path, f"an object with the fields of {kind.__name__}", data)
    known = {f.name for f in fields(kind)}
    if unknown := sorted(set(data) - known):
        raise _mismatch(path, f"only the fields {sorted(known)}", unknown)
    if missing := sorted(known - set(data)):
        raise _mismatch(path, f"all of the fields {sorted(known)}", f"no {missing}")
    hints = _hints(kind)
    values = {name: _decode(hints[name], data[name], f"{path}.{name}") for name in known}
    try:
        return kind(**values)
    except ValueError as error:
        raise _mismatch(path, f"a valid {kind.__name__}", str(error)) from error


def _decode_enum(kind: type[Enum], data: object, path: str) -> Enum:
    try:
        return kind(data)
    except ValueError as error:
        raise _mismatch(path, f"one of {[member.value for member in kind]}", data) from error


def _decode_scalar(kind: Any, data: object, path: str) -> Any:
    # A bool is an int to Python, but a count that reads True is a mistake.
    if kind is float and type(data) is int:
        return float(data)
    if kind in (str, int, float, bool) and type(data) is kind:
        return data
    raise _mismatch(path, getattr(kind, "__name__", str(kind)), data)


def _decode_time(data: object, path: str) -> datetime:
    try:
        time = datetime.fromisoformat(data) if isinstance(data, str) else None
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise _mismatch(path, "a time like 2013-01-01T00:00:00+00:00", data)
    return time


def _decode_fraction(data: object, path: str) -> Fraction:
    try:
        return Fraction(data if isinstance(data, str) else "")
    except (ValueError, ZeroDivisionError) as error:
        raise _mismatch(path, "a fraction like 1/10", data) from error


def _mismatch(path: str, expected: str, found: object) -> WrongUse:
    return WrongUse(
        f"{path} cannot be read",
        expected=expected,
        found=repr(found)[:200],
        next_step="have it written again by the same version of Lockstep",
    )
