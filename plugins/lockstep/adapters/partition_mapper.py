"""The function that `lockstep.partition_mapper` names, imported where pipelines are planned."""

from __future__ import annotations

from importlib import import_module

from lockstep.control.layout.partitions import Mapper, by_modulo
from lockstep.errors import WrongUse
from lockstep.sql.circuit import PARTITION_MAPPER

__all__ = ["mapper_named"]

_BUILT_IN = {"modulo": by_modulo}


def mapper_named(name: str) -> Mapper:
    """`modulo`, or what `package.module:function` is. Raises WrongUse where it cannot be imported, or is
    no function of (partition, count now, count at first) that leaves partition 0 where it was."""
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    module, _, function = name.partition(":")
    try:
        found: Mapper = getattr(import_module(module), function)
    except Exception as error:  # whatever a module of somebody else's raises when it is imported
        raise _wrong(name, f"{type(error).__name__}: {error}") from error
    try:
        parent = found(0, 2, 1)
    except Exception as error:
        raise _wrong(name, f"of (0, 2, 1) {type(error).__name__}: {error}") from error
    if parent != 0:
        raise _wrong(name, f"of (0, 2, 1) {parent!r}")
    return found


def _wrong(name: str, found: str) -> WrongUse:
    return WrongUse(
        f"configuration key {PARTITION_MAPPER} names no mapper: {name}",
        expected="a function of three numbers (partition, count now, count at first) that gives the "
        "partition which had its keys at first, and can be imported where Lockstep runs",
        found=found,
        next_step=f"correct {PARTITION_MAPPER} under `configuration:` in spark-pipeline.yml, or put the "
        "module on the Python path",
    )
