"""The options of a source that follows an Iceberg table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lockstep.errors import NotSupported, ProjectError
from lockstep.sql.circuit import Project, SourceTable
from lockstep.sql.names import closest
from lockstep.sql.reading.spec import Spec
from lockstep.sql.sources.options import check_known, choice, need, wrong
from lockstep.sql.sources.source_layout import read_names
from lockstep.sql.sources.watermarks import WATERMARK_OPTIONS, checked_watermark

__all__ = ["check_not_own", "checked_table", "index_of"]

_INDEX = "index"
_OPTIONS = ("table", "append_only", _INDEX, *WATERMARK_OPTIONS)
_CHOICES: Mapping[str, Mapping[str, str]] = {
    "append_only": {
        "false": "rows may be changed and taken away",
        "true": "a snapshot that takes rows away ends the interval",
    }
}


def checked_table(source: SourceTable, spec: Spec) -> SourceTable:
    """The source with the table's full name, in the pipeline's own catalog.

    Raises ProjectError, NotSupported.
    """
    options = dict(source.options)
    need(source, "table", f"{spec.catalog}.database.table")
    check_known(source, _OPTIONS, client="")
    parts = options["table"].split(".")
    if len(parts) == 2:
        parts = [spec.catalog, *parts]
    if len(parts) != 3 or not all(parts):
        raise wrong(source, "table", f"{spec.catalog}.database.table, or database.table")
    if parts[0] != spec.catalog:
        raise NotSupported(
            f"{source.name} reads a table in another catalog than the pipeline's",
            position=source.position,
            expected=f"a table in {spec.catalog}, which `catalog:` in the spec names",
            found=options["table"],
            next_step=f"deploy the pipeline in catalog {parts[0]}, or have the table written to "
            f"{spec.catalog}",
        )
    for key, values in _CHOICES.items():
        options[key] = choice(source, key, values) if key in options else next(iter(values))
    options["table"] = ".".join(parts)
    if _INDEX in options:
        _check_index(source)
    options.update(checked_watermark(source))
    return replace(source, options=options)


def index_of(source: SourceTable) -> tuple[str, ...]:
    """The columns, in lower case, by which rows are looked up that the table has in another order."""
    return read_names(source.options.get(_INDEX, ""))


def _check_index(source: SourceTable) -> None:
    """Raise ProjectError where the option names what is no column, NotSupported beside a watermark."""
    names = [column.key for column in source.columns]
    try:
        unknown = set(index_of(source)).difference(names)
    except ValueError:
        unknown = {source.options[_INDEX]}
    if unknown or not index_of(source):
        known = ", ".join(closest(min(unknown, default=""), names))
        raise wrong(source, _INDEX, f"declared columns, with commas between: {known}")
    if WATERMARK_OPTIONS[0] in source.options:
        raise NotSupported(
            f"{source.name} has a watermark, and an index",
            position=source.position,
            expected="one of the two",
            found=f"'index' = '{source.options[_INDEX]}'",
            next_step="leave the index out: rows under a watermark are kept by what looks them up",
        )


def check_not_own(source: SourceTable, project: Project) -> None:
    """Raise ProjectError for a table that this pipeline writes: it would feed itself."""
    _, _, table = source.table.rpartition(".")
    own = {view.name.lower(): view for view in project.views if view.published}
    written_by = own.get(table.lower().removesuffix("_changes"))
    if (
        source.is_table
        and source.table == f"{project.catalog}.{project.database}.{table}"
        and (written_by is not None or table.startswith("_"))
    ):
        raise ProjectError(
            f"{source.name} reads a table that this pipeline writes",
            position=source.position,
            expected="a table that something else writes",
            found=source.table,
            next_step=f"read FROM {written_by.name} in the views instead"
            if written_by
            else "name another table",
        )
