"""Small values for the tests of the control side: one pipeline `p`, times in seconds after T0."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from lockstep.control.changes import (
    BeginAttempt,
    Change,
    CommitVersion,
    Deploy,
    IntendPublish,
    RecordInterval,
    RecordPublished,
    TrimSteps,
    TrimVersions,
)
from lockstep.control.model import (
    Attempt,
    Division,
    Interval,
    OffsetRange,
    SinkState,
    TopicSlice,
    Version,
)
from lockstep.sql.circuit import ProjectFiles

T0 = datetime(2026, 1, 1, tzinfo=UTC)
FILES = ProjectFiles("name: p", (("a.sql", "SELECT 1"),), "/projects/p")
SINKS = (SinkState("v", "v", "iceberg"), SinkState("k", "v", "kafka"))


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def store_url(folder: Path) -> str:
    return f"sqlite:///{folder}/control.db"


def slice_of(source: str, *ranges: tuple[int, int, int], topic_id: str = "id1") -> TopicSlice:
    """Ranges are (partition, start, end)."""
    return TopicSlice(source, f"topic_{source}", topic_id, tuple(OffsetRange(*r) for r in ranges))


def interval(first: int, count: int, rows: int = 10, partitions: int = 2) -> Interval:
    """Steps first.. of source s, each with `rows` of every partition, one second a step."""
    return Interval(
        tuple(
            Division(
                step,
                at(step),
                (slice_of("s", *((p, step * rows, (step + 1) * rows) for p in range(partitions))),),
            )
            for step in range(first, first + count)
        )
    )


def deploy(incarnation: str = "i1") -> Deploy:
    return Deploy(FILES, incarnation, SINKS)


def attempt(name: str, first: int, last: int, base: str = "") -> Attempt:
    return Attempt(name, first, last, base, session=f"session_{name}")


def life(intervals: int, steps: int = 3, partitions: int = 2) -> list[Change]:
    """A pipeline's undisturbed life; every change of it raises the revision by one."""
    changes: list[Change] = [deploy()]
    base = ""
    for number in range(intervals):
        first, last = number * steps, (number + 1) * steps - 1
        name = f"a{number}"
        tables = {f"t{i}": number * 100 + i for i in range(3)}
        changes += [
            RecordInterval(interval(first, steps, partitions=partitions)),
            BeginAttempt(attempt(f"dead{number}", first, last, base)),
            BeginAttempt(attempt(name, first, last, base)),
            CommitVersion(Version(number + 1, name, last, 0, tables), base),
            *(IntendPublish(sink.name, first, last) for sink in SINKS),
            *(RecordPublished(sink.name, last) for sink in SINKS),
        ]
        if number >= 2:
            changes += [TrimVersions(2), TrimSteps(first)]
        base = name
    return changes
