"""A pipeline's recorded state from what its tables and sinks say, for when the control store is lost.

The law: nothing is published of a version that is not pinned on every table, so the
newest version pinned on all of them is at or beyond every sink. What was committed after it and not
pinned is divided anew: nobody has seen it. Divisions come from the step log beside the output.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from lockstep.control.changes import Restore
from lockstep.control.layout.records import FIRST, LayoutRecord
from lockstep.control.model import (
    Attempt,
    AttemptState,
    Division,
    Intent,
    PipelineState,
    SinkState,
    Version,
)
from lockstep.control.ports import State
from lockstep.control.positions import positions_logged
from lockstep.control.step_log import logged_divisions, logged_layouts
from lockstep.errors import StateDiverged
from lockstep.ids import LAYOUTS_TABLE, MAIN, STEPS_TABLE, TABLE_STEPS_TABLE
from lockstep.sql.circuit import ProjectFiles
from lockstep.threads import in_parallel

__all__ = ["Pinned", "newest_pinned", "restored", "said_by_tables"]

_TAG = re.compile(r"v(\d+)_(\w+)")


@dataclass(frozen=True)
class Pinned:
    """A version as tags pin it: its number, the attempt that made it, and the snapshot of each table."""

    number: int
    attempt: str
    tables: Mapping[str, int] = field(hash=False)


def newest_pinned(
    refs: Mapping[str, Mapping[str, int]],
    needed: Collection[str],
    pipeline: str,
    beside: Collection[str] = (),
) -> Pinned:
    """The newest version that is pinned on all of its tables; `refs` are those of every table there is.

    It has the tables `needed`, and those `beside` them that an older version had: a run that dies while
    it pins has pinned any of them. Raises StateDiverged where there is none.
    """
    found: dict[tuple[int, str], dict[str, int]] = {}
    for table, names in refs.items():
        for name, snapshot_id in names.items():
            if tag := _TAG.fullmatch(name):
                found.setdefault((int(tag[1]), tag[2]), {})[table] = snapshot_id
    first = {
        table: min(number for (number, _), tables in found.items() if table in tables)
        for table in {*beside} & {table for tables in found.values() for table in tables}
    }

    def is_whole(number: int, tables: Collection[str]) -> bool:
        held = (table for table, since in first.items() if since < number)
        return {*needed, *held} <= {*tables}

    whole = {key: tables for key, tables in found.items() if is_whole(key[0], tables)}
    if not whole:
        lacking = sorted(set(needed) - refs.keys())
        raise StateDiverged(
            f"pipeline {pipeline}: no version is pinned on all of its tables",
            expected="tags v<number>_<attempt> of one version",
            found=f"no table {', '.join(lacking)}" if lacking else f"{len(found)} versions in part",
            next_step="deploy the project as it was when the tables were written, or under another name",
        )

    (number, attempt), tables = max(whole.items())
    return Pinned(number, attempt, tables)


def restored(
    name: str,
    files: ProjectFiles,
    pinned: Pinned,
    summaries: Mapping[str, Mapping[str, str]],
    divisions: tuple[Division, ...],
    sinks: tuple[SinkState, ...],
    shown: Iterable[Mapping[str, str]] = (),
    layouts: tuple[LayoutRecord, ...] = (FIRST,),
) -> Restore:
    """What to record. `summaries` are those of the pinned snapshots by table, `divisions` and `layouts`
    all that are logged at them, `sinks` where each sink itself says that it is, `shown` the summaries
    of what `main` shows of tables where it is not at the version. Raises StateDiverged where a sink is
    beyond the version, or the log lacks its last step."""
    said = [summary for summary in summaries.values() if "lockstep.step" in summary]
    last_step = max(int(summary["lockstep.step"]) for summary in said)
    newest = max(said, key=lambda summary: int(summary["lockstep.step"]))
    ahead = [sink for sink in sinks if sink.published_step > last_step]
    if ahead:
        raise StateDiverged(
            f"sink {ahead[0].name} of pipeline {name} is beyond the newest version that is pinned",
            expected=f"a marker up to step {last_step}, where version {pinned.number} ends",
            found=f"step {ahead[0].published_step}",
            next_step="restore a newer backup of the catalog",
        )
    read = tuple(division for division in divisions if division.step <= last_step)
    if not read or read[-1].step != last_step:
        raise StateDiverged(
            f"pipeline {name}: the step log lacks step {last_step}",
            expected=f"the input of step {last_step}, where version {pinned.number} ends",
            found=f"steps up to {read[-1].step if read else -1}",
            next_step="restore a newer backup of the catalog",
        )
    sinks = tuple(_in_doubt(sink, last_step) for sink in sinks)
    # As the attempt of any version: maintenance finds by it what is to be dropped one day. From which
    # step and version it began nobody remembers.
    made = Attempt(pinned.attempt, last_step, last_step, "", AttemptState.COMMITTED)
    attempts = sorted((made, *_unpinned(pinned, last_step, shown)), key=lambda one: one.id)
    oldest = max(0, min([last_step, *(sink.published_step for sink in sinks)]))
    positions, counts = positions_logged(read)
    version = Version(
        pinned.number,
        pinned.attempt,
        last_step,
        layouts[-1].layout.epoch,
        dict(pinned.tables),
    )
    state = PipelineState(
        name=name,
        incarnation=newest["lockstep.incarnation"],
        revision=1,
        files=files,
        next_step=last_step + 1,
        last_time=read[-1].time,
        positions=positions,
        first_counts=counts,
        versions=(version,),
        sinks=sinks,
        attempts=tuple(attempts),
        oldest_step=oldest,
        # What versions before it hold may be another project's: nobody remembers.
        rebuilt_step=last_step,
        layouts=layouts,
    )
    return Restore(state, tuple(division for division in read if division.step >= oldest))


def _in_doubt(sink: SinkState, last_step: int) -> SinkState:
    """Rows of the steps that a topic's markers do not name may be out: nobody remembers the intents."""
    if sink.provider != "kafka" or sink.published_step >= last_step:
        return sink
    return replace(sink, intent=Intent(sink.published_step + 1, last_step))


def _unpinned(
    pinned: Pinned, last_step: int, shown: Iterable[Mapping[str, str]]
) -> tuple[Attempt, ...]:
    """The makers of what `main` shows beyond the version, of tables that were reached before a run died,
    or beside it: after a replay a number is there twice, and a table that not every version writes to
    can show a step of long ago. Dropped, so that `main` leaves it."""
    steps = {
        summary["lockstep.attempt"]: int(summary["lockstep.step"])
        for summary in shown
        if "lockstep.attempt" in summary
    }
    return tuple(
        Attempt(attempt, min(last_step + 1, step), step, pinned.attempt, AttemptState.DROPPED)
        for attempt, step in sorted(steps.items())
        if attempt != pinned.attempt
    )


def said_by_tables(
    name: str,
    files: ProjectFiles,
    needed: Collection[str],
    beside: Collection[str],
    tables: State,
    published: Callable[[str], tuple[SinkState, ...]],
) -> Restore:
    """What to record, read from the tables that there are; `published` gives where each sink of an
    incarnation says that it is. Every version names the tables `needed`, and those `beside` from the
    first on that does. Raises StateDiverged, Unreachable."""
    names = tables.tables()
    refs = dict(zip(names, in_parallel(tables.refs, names), strict=True))
    pinned = newest_pinned(refs, needed, name, beside)
    held = sorted(pinned.tables)
    said = in_parallel(lambda table: tables.summary(table, pinned.tables[table]), held)
    summaries = dict(zip(held, said, strict=True))
    topics, followed, layouts = (
        tables.rows(table, pinned.tables[table]) if table in pinned.tables else ()
        for table in (STEPS_TABLE, TABLE_STEPS_TABLE, LAYOUTS_TABLE)
    )
    incarnation = next(
        summary["lockstep.incarnation"]
        for summary in summaries.values()
        if "lockstep.incarnation" in summary
    )
    heads = [(table, refs[table].get(MAIN, pinned.tables[table])) for table in held]
    shown = in_parallel(
        lambda head: tables.summary(*head),
        [(table, head) for table, head in heads if head != pinned.tables[table]],
    )
    sinks = published(incarnation)
    divisions = logged_divisions(topics, followed)
    return restored(
        name, files, pinned, summaries, divisions, sinks, shown, logged_layouts(layouts)
    )
