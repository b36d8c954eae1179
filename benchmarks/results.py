"""`results.json`: what the benchmarks found, each the author of its own part.

    update("events_per_second/q4/flink_sql", 120_000)
    update("aims/small interval", {"target": "1.0 s", "measured": "2.4 s", "holds": False})

A part is named by the keys that lead to it, from the outermost, with `/` between them. What a benchmark
does not measure stays as it is, so that they can be run one by one, and for some queries only.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["PATH", "load", "natural_order", "update"]

PATH = Path(__file__).with_name("results.json")


def load(path: Path = PATH) -> dict[str, Any]:
    """All that was found; empty where nothing was."""
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def update(part: str, value: Any, path: Path = PATH) -> None:
    """Put `value`, which is of JSON's types, in place of the part. Not for two processes at once.

    Raises ValueError where the way to the part leads through something that has no parts.
    """
    found = load(path)
    *outer, last = part.split("/")
    place = found
    for key in outer:
        place = place.setdefault(key, {})
        if not isinstance(place, dict):
            raise ValueError(f"{part}: expected an object at {key!r}, found {place!r}")
    place[last] = value
    written = path.with_suffix(".new")
    written.write_text(json.dumps(_in_order(found), indent=1) + "\n", "utf-8")
    os.replace(written, path)


def natural_order(names: Iterable[str]) -> list[str]:
    """Sorted with numbers as numbers: q2 stands before q10."""
    return sorted(
        names, key=lambda name: [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", name)]
    )


def _in_order(value: Any) -> Any:
    """The same with the keys of every object in order, whoever wrote first."""
    match value:
        case Mapping():
            return {key: _in_order(value[key]) for key in natural_order(value)}
        case list():
            return [_in_order(one) for one in value]
        case _:
            return value
