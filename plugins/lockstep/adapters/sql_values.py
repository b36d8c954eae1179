"""The values of a pipeline's state as columns, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Row

from lockstep.control.layout.records import LayoutRecord, layout_of, text_of
from lockstep.control.model import (
    Attempt,
    AttemptState,
    Intent,
    OffsetRange,
    PipelineState,
    Replaced,
    SinkState,
    SourceSlice,
    TableSlice,
    TopicSlice,
)
from lockstep.sql.circuit import ProjectFiles

__all__ = [
    "Values",
    "attempt_of",
    "attempt_values",
    "files_of",
    "files_text",
    "layout_rows",
    "milliseconds",
    "positions_of",
    "positions_text",
    "record_of",
    "replaced_of",
    "replaced_text",
    "sink_of",
    "sink_rows",
    "time_of",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

Values = dict[str, Any]


def attempt_of(row: Row[tuple[Any, ...]]) -> Attempt:
    return Attempt(
        row.id, row.first_step, row.last_step, row.base, AttemptState(row.state), row.session
    )


def attempt_values(attempt: Attempt) -> Values:
    return {
        "first_step": attempt.first_step,
        "last_step": attempt.last_step,
        "base": attempt.base,
        "state": attempt.state.value,
        "session": attempt.session,
    }


def sink_of(row: Row[tuple[Any, ...]]) -> SinkState:
    intent = None
    if row.intent_first_step is not None:
        intent = Intent(row.intent_first_step, row.intent_last_step)
    return SinkState(row.name, row.view, row.provider, row.published_step, intent)


def sink_rows(sinks: Iterable[SinkState]) -> dict[str, Values]:
    return {
        sink.name: {
            "ordinal": ordinal,
            "view": sink.view,
            "provider": sink.provider,
            "published_step": sink.published_step,
            "intent_first_step": sink.intent.first_step if sink.intent else None,
            "intent_last_step": sink.intent.last_step if sink.intent else None,
        }
        for ordinal, sink in enumerate(sinks)
    }


def files_of(text: str) -> ProjectFiles:
    return _files_held(json.loads(text))


def _files_held(held: dict[str, Any]) -> ProjectFiles:
    return ProjectFiles(
        held["spec"], tuple((path, content) for path, content in held["files"]), held["folder"]
    )


def files_text(files: ProjectFiles) -> str:
    return json.dumps(_held_files(files))


def _held_files(files: ProjectFiles) -> dict[str, Any]:
    return {"spec": files.spec, "files": files.files, "folder": files.folder}


def replaced_of(text: str) -> Replaced:
    held = json.loads(text)
    # A release that wrote no sinks: all of them wait for the next version then.
    sinks = tuple((name, view) for name, view in held.get("sinks", ()))
    return Replaced(_files_held(held["files"]), tuple(held["distrusted"]), sinks)


def replaced_text(replaced: Replaced) -> str:
    held = {
        "files": _held_files(replaced.files),
        "distrusted": replaced.distrusted,
        "sinks": replaced.sinks,
    }
    return json.dumps(held)


def positions_of(text: str) -> tuple[SourceSlice, ...]:
    return tuple(map(_position, json.loads(text)))


def _position(held: list[Any]) -> SourceSlice:
    """A topic's source, name, id and ranges; or a table's source, name, id and last snapshot."""
    source, name, id_, reached = held
    if isinstance(reached, list):
        return TopicSlice(source, name, id_, tuple(OffsetRange(*range_) for range_ in reached))
    return TableSlice(source, name, id_, None, reached, 0)


def positions_text(positions: tuple[SourceSlice, ...]) -> str:
    return json.dumps([_held(position) for position in positions])


def _held(position: SourceSlice) -> list[Any]:
    match position:
        case TopicSlice():
            ranges = [[r.partition, r.start, r.end] for r in position.ranges]
            return [position.source, position.topic, position.topic_id, ranges]
        case TableSlice():
            return [position.source, position.table, position.table_id, position.end]


def time_of(milliseconds: int) -> datetime:
    return _EPOCH + milliseconds * _MILLISECOND


def milliseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MILLISECOND


def record_of(row: Row[tuple[Any, ...]]) -> LayoutRecord:
    return LayoutRecord(layout_of(row.epoch, row.layout), row.from_step)


def layout_rows(state: PipelineState | None) -> dict[int, Values]:
    """By epoch; the first is every pipeline's, and not a row."""
    return {
        record.layout.epoch: {"from_step": record.from_step, "layout": text_of(record.layout)}
        for record in (state.layouts[1:] if state else ())
    }
