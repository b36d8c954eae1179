"""A small change's messages, fetched by the driver: counted, ordered and dealt to shards here.

They are the same messages in the same order as those that tasks of a large change send: a transaction
that one way has begun, the other may end. Strings compare by their UTF-8 bytes, as Spark's do, and
nulls come first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lockstep_engine.deltas import STEP
from lockstep_engine.sinks.kafka_plan import Message, StepRows

__all__ = ["NO_ROWS", "FetchedRows"]

_UNSIGNED = (1 << 64) - 1


@dataclass(frozen=True)
class FetchedRows:
    """What `kafka_messages.messages` gives, of any steps in any order."""

    table: pa.Table
    partitions: int

    def after(self, step: int) -> FetchedRows:
        """Those of later steps."""
        return FetchedRows(self.table.filter(pc.field(STEP) > step), self.partitions)

    def counts(self, shards: int) -> Mapping[int, Mapping[int, StepRows]]:
        """What each step has in each shard."""
        found: dict[int, dict[int, list[Any]]] = defaultdict(dict)
        columns = (self.table.column(name).to_pylist() for name in _COUNTED)
        for place, step, digest, twice, key in zip(*columns, strict=True):
            one = found[place % shards].setdefault(step, [0, 0, None])
            one[0] += 1
            one[1] += digest & _UNSIGNED
            one[2] = max(one[2] or key, key) if twice else one[2]
        return {
            shard: {
                step: StepRows(rows, f"{total:x}", twice)
                for step, (rows, total, twice) in of.items()
            }
            for shard, of in found.items()
        }

    def of_shard(self, shard: int, shards: int) -> Iterator[Message]:
        """A shard's messages in the order in which they are sent."""
        columns = (self.table.column(name).to_pylist() for name in _SENT)
        rows = [
            (step, order, _sortable(key), _sortable(value), place)
            for place, step, order, key, value in zip(*columns, strict=True)
            if place % shards == shard
        ]
        rows.sort(key=lambda row: row[:4])
        for step, _, (has_key, key), (has_value, value), place in rows:
            partition = -1 if has_key else place % self.partitions
            yield Message(step, partition, key if has_key else None, value if has_value else None)


NO_ROWS = pa.table(
    {
        "_place": pa.array([], pa.int64()),
        STEP: pa.array([], pa.int64()),
        "_order": pa.array([], pa.int32()),
        "_key": pa.array([], pa.string()),
        "_value": pa.array([], pa.string()),
        "_twice": pa.array([], pa.bool_()),
        "_hash": pa.array([], pa.int64()),
    }
)
_COUNTED = ("_place", STEP, "_hash", "_twice", "_key")
_SENT = ("_place", STEP, "_order", "_key", "_value")


def _sortable(text: str | None) -> tuple[bool, bytes]:
    return (text is not None, b"" if text is None else text.encode())
