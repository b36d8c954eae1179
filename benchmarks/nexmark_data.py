"""The events of the Nexmark benchmark in a file, for an engine that reads no Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["write_events"]


def write_events(generator: ModuleType, events: int, path: Path) -> None:
    """A line an event, in the order in which they happen: its kind, a tab, its JSON."""
    with path.open("w", encoding="utf-8") as file:
        for block in generator.blocks(events):
            file.writelines(_lines(generator, block))


def _lines(generator: ModuleType, block: Any) -> Iterator[str]:
    auctions = generator.AUCTIONS_IN_CYCLE
    in_cycle = {"person": 1, "auction": auctions, "bid": generator.CYCLE - 1 - auctions}
    records = {kind: iter(getattr(block, kind)) for kind in in_cycle}
    for _ in block.person:
        for kind, count in in_cycle.items():
            for record in islice(records[kind], count):
                yield f"{kind}\t{record}\n"
