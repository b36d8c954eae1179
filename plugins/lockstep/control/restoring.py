"""A pipeline's recorded state from what its tables and sinks say, for when the control store is lost.

The law: nothing is published of a version that is not pinned on every table (design, section 2), so the
newest version pinned on all of them is at or beyond every sink. What was committed after it and not
pinned is divided anew: nobody has seen it. Divisions come from the step log beside the output.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from lockstep.control.changes import Restore
from lockstep.control.model import Division, PipelineState, SinkState, Version
from lockstep.control.positions import positions_logged
from lockstep.errors import StateDiverged
from lockstep.sql.circuit import ProjectFiles

__all__ = ["Pinned", "newest_pinned", "restored"]

_TAG = re.compile(r"v(\d+)_(\w+)")


@dataclass(frozen=True)
class Pinned:
    """A version as tags pin it: its number, the attempt that made it, and the snapshot of each table."""

    number: int
    attempt: str
    tables: Mapping[str, int] = field(hash=False)


def newest_pinned(
    refs: Mapping[str, Mapping[str, int]], needed: Collection[str], pipeline: str
) -> Pinned:
    """The newest version that is pinned on all tables `needed`; `refs` are those of every table there
    is. Raises StateDiverged where there is none."""
    found: dict[tuple[int, str], dict[str, int]] = {}
    for table, names in refs.items():
        for name, snapshot_id in names.items():
            if tag := _TAG.fullmatch(name):
                found.setdefault((int(tag[1]), tag[2]), {})[table] = snapshot_id
    whole = {key: tables for key, tables in found.items() if set(needed) <= tables.keys()}
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
) -> Restore:
    """What to record. `summaries` are those of the pinned snapshots by table, `divisions` all that are
    logged at them, `sinks` where each sink itself says that it is. Raises StateDiverged where a sink is
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
    oldest = max(0, min([last_step, *(sink.published_step for sink in sinks)]))
    version = Version(
        pinned.number,
        pinned.attempt,
        last_step,
        int(newest.get("lockstep.layout", "0")),
        dict(pinned.tables),
    )
    state = PipelineState(
        name=name,
        incarnation=newest["lockstep.incarnation"],
        revision=1,
        files=files,
        next_step=last_step + 1,
        last_time=read[-1].time,
        positions=positions_logged(read),
        versions=(version,),
        sinks=sinks,
        oldest_step=oldest,
        # What versions before it hold may be another project's: nobody remembers.
        rebuilt_step=last_step,
    )
    return Restore(state, tuple(division for division in read if division.step >= oldest))
