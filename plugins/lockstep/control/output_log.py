"""The output log of a view: what becomes of a step's output, and what a replay that differs says (seed
000, "Output").

The log is the view's outbox; sinks are cursors over it, and never hear of a step twice. Its steps are
first..last, without `last`, which is the next to be produced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from lockstep.control.job import ComparedTable, CompareJob, CompareResult, IntervalJob
from lockstep.control.model import Interval, Version
from lockstep.errors import StateDiverged

__all__ = ["OutputLog", "Write", "compare_job", "require_equal", "write", "writes"]


class Write(Enum):
    """What becomes of a step's output."""

    DISCARD = "it was produced before, and is discarded or deleted since"
    COMPARE = "it was produced before: compared with what the log holds, then discarded"
    APPEND = "it is new: appended to the log"


@dataclass(frozen=True)
class OutputLog:
    """The outboxes as a version holds them: the steps from `first` on, up to the version's last."""

    version: Version
    first: int


def write(step: int, first: int, last: int) -> Write:
    """`write(step)` on a log of the steps first..last: 0..first is discarded, first..last compared and
    discarded, `last` appended. Raises StateDiverged for a step beyond: what comes before it is missing.
    """
    if step < first:
        return Write.DISCARD
    if step < last:
        return Write.COMPARE
    if step == last:
        return Write.APPEND
    raise StateDiverged(
        f"step {step} cannot be written to an output log that ends before step {last}",
        expected=f"step {last} next",
        found=f"step {step}",
        next_step="lockstep versions, and roll back to one that can be opened",
    )


def writes(interval: Interval, first: int, last: int) -> Mapping[int, Write]:
    """What becomes of each step of an interval, in turn: a step appended is the log's from then on."""
    found: dict[int, Write] = {}
    for division in interval.divisions:
        found[division.step] = write(division.step, first, last)
        last += found[division.step] is Write.APPEND
    return found


def compare_job(
    replay: IntervalJob, outboxes: Mapping[str, str], log: OutputLog, found: Mapping[str, int]
) -> CompareJob:
    """What a replay's output is to be compared with: the steps that the log holds, of the views that it
    holds. `outboxes` maps views to tables, `found` tables to the snapshots that the replay made."""
    kinds = writes(replay.interval, log.first, log.version.last_step + 1)
    produced = [step for step, kind in kinds.items() if kind is Write.COMPARE]
    held = log.version.tables
    tables = tuple(
        ComparedTable(view, table, held[table], found[table])
        for view, table in sorted(outboxes.items())
        if table in held and produced
    )
    first, last = (produced[0], produced[-1]) if produced else (0, -1)
    return CompareJob(replay.pipeline, tables, first, last, replay.catalog, replay.session)


def require_equal(pipeline: str, result: CompareResult, next_step: str = "") -> None:
    """Raise StateDiverged where a replay gave other rows: it names the first step of each view that
    differs, and rows of it."""
    if not result.differences:
        return
    first = result.differences[0]
    raise StateDiverged(
        f"pipeline {pipeline}: step {first.step} of view {first.view} was replayed, and gives other "
        "rows than it gave before",
        expected=f"the {sum(result.rows.values()):,} rows of {_views(result.rows)} as they were",
        found="; ".join(str(difference) for difference in result.differences),
        next_step=next_step
        or f"lockstep verify {pipeline}, which says whether what is published is what its sources give",
    )


def _views(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
