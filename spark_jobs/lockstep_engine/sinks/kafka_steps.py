"""The side topic of a Kafka sink: a record a step, written once every shard has passed the step.

A shard's transaction says nothing of the others', so a reader of the sink's own topic cannot tell by it
that a step is complete. A record here says so, of steps without rows too, in order, on partition 0:

    key    the sink's name
    value  {"incarnation", "sink", "step", "time", "rows", "inputs": {source: ...}}
           of a topic  {"topic", "topic_id", "partitions": {number: [first offset, end]}}
           of a table  {"table", "table_id", "start", "end"}, snapshot ids

`end` of an offset range is exclusive, `start` of a table too; null is the table without rows. `time`
and `inputs` are null for a step that was trimmed from the step log before the sink was deployed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import assert_never

from lockstep.control.model import Division, SourceSlice, TableSlice, TopicSlice
from lockstep_engine.sinks.kafka_link import SinkAddress
from lockstep_engine.sinks.kafka_plan import Message

__all__ = ["step_messages"]

PARTITION = 0


def step_messages(
    address: SinkAddress,
    sink: str,
    after: int,
    last_step: int,
    rows: Mapping[int, int],
    divisions: Mapping[int, Division],
) -> Iterator[Message]:
    """The records of the steps after `after` up to `last_step`. `rows` counts messages by step, those
    without left out."""
    for step in range(after + 1, last_step + 1):
        value = {
            "incarnation": address.incarnation,
            "sink": sink,
            "step": step,
            "time": None,
            "rows": rows.get(step, 0),
            "inputs": None,
        }
        division = divisions.get(step)
        if division is not None:
            value["time"] = division.time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            value["inputs"] = {one.source: _input(one) for one in division.slices}
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        yield Message(step, PARTITION, sink.encode(), text.encode())


def _input(slice_: SourceSlice) -> Mapping[str, object]:
    match slice_:
        case TopicSlice():
            return {
                "topic": slice_.topic,
                "topic_id": slice_.topic_id,
                "partitions": {str(r.partition): [r.start, r.end] for r in slice_.ranges},
            }
        case TableSlice():
            return {
                "table": slice_.table,
                "table_id": slice_.table_id,
                "start": slice_.start,
                "end": slice_.end,
            }
        case _:
            assert_never(slice_)
