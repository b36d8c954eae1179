"""Reads a followed table as verification understands it: its rows at the snapshot recorded for a step,
by PyIceberg, which shares no code with the engine's way from snapshot to snapshot."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from lockstep.control.model import Division, TableSlice
from lockstep.errors import SourceChanged, StateDiverged, WrongUse
from lockstep.lake.following import load_followed
from lockstep.lake.opening import OpenCatalog
from lockstep.sql.circuit import SourceTable

__all__ = ["in_utc", "load_table"]


def load_table(
    connection: duckdb.DuckDBPyConnection,
    source: SourceTable,
    divisions: Sequence[Division],
    catalog: OpenCatalog,
) -> int:
    """Make a table of the source's declared columns at the end of the divisions; returns its rows.

    Raises StateDiverged where a step does not begin where the one before it ended, SourceChanged where
    the snapshot or the table is gone, WrongUse where PyIceberg cannot read the table.
    """
    end = _last_snapshot(source, divisions)
    table = load_followed(catalog, source)
    names = tuple(column.name for column in source.columns)
    rows = _rows(source, table, names, end)
    utc = rows.cast(pa.schema([in_utc(field) for field in rows.schema]))
    connection.register("_snapshot", utc.select(_places(utc, names)).rename_columns(names))
    connection.execute(f'CREATE TABLE "{source.name}" AS SELECT * FROM _snapshot')
    connection.unregister("_snapshot")
    return int(rows.num_rows)


def _last_snapshot(source: SourceTable, divisions: Sequence[Division]) -> int | None:
    end: int | None = None
    for division in divisions:
        for slice_ in division.slices:
            if slice_.source != source.name or not isinstance(slice_, TableSlice):
                continue
            if slice_.start != end:
                raise StateDiverged(
                    f"the recorded snapshots of {source.name} have a gap",
                    expected=f"step {division.step} from snapshot {end}",
                    found=f"from {slice_.start}",
                    next_step="lockstep doctor DIR",
                )
            end = slice_.end
    return end


def _rows(
    source: SourceTable, table: Table, names: tuple[str, ...], snapshot_id: int | None
) -> pa.Table:
    if snapshot_id is None:
        wanted = table.schema().select(*names, case_sensitive=False)
        return schema_to_pyarrow(wanted, include_field_ids=False).empty_table()
    if table.metadata.snapshot_by_id(snapshot_id) is None:
        raise SourceChanged(
            f"source {source.name}: snapshot {snapshot_id} of table {source.table} has expired",
            expected="the snapshot that the view rests on",
            found=f"{len(table.metadata.snapshots)} others",
            next_step="run an interval, which moves the view to a newer snapshot, then verify again",
        )
    scan = table.scan(snapshot_id=snapshot_id, selected_fields=names, case_sensitive=False)
    try:
        return scan.to_arrow()
    except (ValueError, NotImplementedError) as error:
        raise WrongUse(
            f"verify cannot read table {source.table} at snapshot {snapshot_id}",
            expected="data files in Parquet or ORC, and no equality deletes",
            found=str(error)[:300],
            next_step="CALL <catalog>.system.rewrite_data_files with 'delete-file-threshold' = '1', run "
            "an interval, then verify again",
        ) from error


def _places(rows: pa.Table, names: tuple[str, ...]) -> list[int]:
    """Where the declared columns stand: a scan keeps the order and the names of the table."""
    places = {name.lower(): place for place, name in enumerate(rows.column_names)}
    return [places[name.lower()] for name in names]


def in_utc(field: pa.Field) -> pa.Field:
    """The field with instants as plain timestamps in UTC, within structs too: DuckDB needs an
    extension, which may have to be downloaded, for timestamps with a time zone."""
    type_ = field.type
    if pa.types.is_timestamp(type_):
        type_ = pa.timestamp("us")
    elif pa.types.is_struct(type_):
        type_ = pa.struct([in_utc(type_.field(place)) for place in range(type_.num_fields)])
    return pa.field(field.name, type_, field.nullable)
