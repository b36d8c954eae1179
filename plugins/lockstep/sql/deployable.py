"""What is asked of a project's folder beyond that it can be read.

Law: what no stage could use is refused here, before a step is recorded, and what contradicts itself; and
nothing else is. That is asked of a folder, and never of what is recorded, which was deployed when nobody
looked, and has to be read to be run, and to be replaced.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lockstep.errors import ProjectError
from lockstep.sql.circuit import Project, SinkTable, SourceTable, View
from lockstep.sql.names import closest
from lockstep.sql.sources.options import wrong

__all__ = ["check_deployable"]

_STARTS: Mapping[str, str] = {
    "earliest": "the first record that the topic holds",
    "latest": "the first one that is sent after the first plan",
}
_ADDRESS = re.compile(r"https?://[^/]", re.IGNORECASE)


def check_deployable(project: Project) -> None:
    """Raise ProjectError, with the place, for a statement that could not be run as it is written."""
    views = {view.name.lower(): view for view in project.views}
    for view in project.views:
        _check_kind(view)
    for source in project.sources:
        _check_start(source)
        _check_registry(source)
    for sink in project.sinks:
        _check_shards(sink)
        _check_key(sink, views[sink.view.lower()])


def _check_kind(view: View) -> None:
    """Elsewhere it means a table that is kept up to date and that nobody else sees, which is not made
    here; as a view that is published it would surprise who wrote TEMPORARY."""
    if view.says_both:
        raise ProjectError(
            f"the view {view.name} is TEMPORARY and MATERIALIZED",
            position=view.position,
            expected=f"CREATE TEMPORARY VIEW {view.name}, for other views to read and without a table, "
            f"or CREATE MATERIALIZED VIEW {view.name}, which is published",
            found=f"CREATE TEMPORARY MATERIALIZED VIEW {view.name}",
            next_step="leave out one of the two words",
        )


def _check_start(source: SourceTable) -> None:
    found = source.options.get("startingoffsets", "earliest")
    if found.lower() not in _STARTS:
        raise wrong(
            source,
            "startingOffsets",
            " or ".join(f"{name!r} ({means})" for name, means in _STARTS.items()),
            found or "nothing",
            "write one of the two; to leave out others of its records, declare 'metadata' = 'offset AS "
            "o', and filter by that in a view",
        )


def _check_registry(source: SourceTable) -> None:
    found = source.options.get("schema.registry.url")
    if found is not None and not _ADDRESS.match(found):
        raise wrong(
            source,
            "schema.registry.url",
            "an address that begins with http:// or https://",
            found or "nothing",
            "write it as 'http://host:8081'",
        )


def _check_shards(sink: SinkTable) -> None:
    """How many partitions the topic has, only a publish can tell."""
    found = sink.options.get("shards", "1")
    if not found.isdecimal() or int(found) < 1:
        raise wrong(
            sink,
            "shards",
            "a whole number, from 1 to the partitions of the topic",
            found or "nothing",
            "write 'shards' = '2' for two producers, or leave it out for one",
        )


def _check_key(sink: SinkTable, view: View) -> None:
    names = [name.strip() for name in sink.options.get("key", "").split(",") if name.strip()]
    known = {column.lower() for column in view.columns}
    unknown = [name for name in names if name.lower() not in known]
    if unknown:
        columns = ", ".join(closest(unknown[0], view.columns))
        raise wrong(
            sink,
            "key",
            f"columns of {view.name}, with commas between: {columns}",
            unknown[0],
            f"correct the name, or have the view {view.name} give a column of that name",
        )
    if not names and sink.options.get("format", "changelog").lower() == "upsert":
        raise ProjectError(
            f"{sink.name} has 'format' = 'upsert', and no 'key' that tells its rows apart",
            position=sink.position,
            expected=f"'key' = '{view.columns[0]}', or more of {', '.join(view.columns)} with commas "
            "between",
            found=", ".join(sink.options),
            next_step="name the columns of the key, or write 'format' = 'changelog'",
        )
