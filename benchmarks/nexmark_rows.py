"""Whether two engines found the same rows, each written down as lines of JSON."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

__all__ = ["EQUAL", "Rows", "compared", "read_rows"]

EQUAL = "equal"
"""The verdict of the same rows."""

Rows = Counter[bytes]
"""How often each row is there, by its hash."""


def read_rows(path: Path) -> Rows:
    """The rows of a file. Numbers with a fraction count to ten digits, as engines print them unlike."""
    found: Rows = Counter()
    with path.open(encoding="utf-8") as file:
        for line in file:
            text = "\x1f".join(map(_text, json.loads(line)))
            found[hashlib.blake2b(text.encode(), digest_size=8).digest()] += 1
    return found


def compared(expected: Rows, found: Rows) -> str:
    """A verdict: `equal`, a part of the rows and no other, or how many are wrong."""
    missing, unexpected = (expected - found).total(), (found - expected).total()
    if unexpected:
        return f"WRONG: {missing} rows are missing, {unexpected} are unexpected"
    return f"part: {found.total()} of {expected.total()} rows" if missing else EQUAL


def _text(cell: Any) -> str:
    return f"{cell:.10g}" if isinstance(cell, float) else str(cell)
