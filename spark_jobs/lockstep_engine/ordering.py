"""The order in which rows are written to a trace."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from lockstep.sql.circuit import Circuit, TraceSpec, operators_above
from lockstep.sql.plans.nodes import Scan
from lockstep.threads import in_parallel, processors
from lockstep_engine.deltas import quoted
from lockstep_engine.local.room import has_room
from lockstep_engine.local.rows import Rows

__all__ = ["few_in_order", "files_of", "in_order", "spread"]

ROWS_PER_FILE = 4_000_000


def in_order(
    circuit: Circuit,
    appends: Mapping[str, DataFrame | Rows],
    tables: Collection[str],
    records: int,
) -> dict[str, DataFrame | Rows]:
    """The same rows of an interval of so many records: those of indexes in the order of the key as a
    whole, those of other traces within each file, where all of them come from `tables`, which are
    followed.

    Such a table is read as a whole once, and then come small changes: what these look up is few keys,
    often near one another, which stand in one place of each file then. Of a topic one large interval
    comes after another while it is caught up with, and to sort them takes up to a sixth of each.

    Raises what `NOT_HERE` names for rows that are here and that Arrow cannot sort: 2 GB of texts above
    all.
    """
    read = {one.node.source for one in circuit.operators if isinstance(one.node, Scan)}
    of_others = operators_above(circuit, read.difference(tables))
    traces = dict[str, TraceSpec]()
    for operator in circuit.operators:
        inputs = dict(zip(operator.rows, operator.inputs, strict=False))
        for trace in operator.traces:
            of_tables = inputs.get(trace, operator.ref) not in of_others
            if trace.is_index or (trace.key and of_tables):
                traces[trace.table] = trace

    def ordered(table: str) -> DataFrame | Rows:
        rows = appends[table]
        if table not in traces:
            return rows
        trace = traces[table]
        if isinstance(rows, Rows):
            return _sorted(rows, trace.key)
        if trace.is_index:
            # In one file it would be computed by one task.
            return spread(rows, trace.key, max(2, files_of(records)))
        return rows.sortWithinPartitions(*map(quoted, trace.key))

    held = sum(rows.table.nbytes for rows in appends.values() if isinstance(rows, Rows))
    at_once = processors() if has_room(2 * held) else 1
    return dict(zip(appends, in_parallel(ordered, appends, at_once), strict=True))


def few_in_order(
    circuit: Circuit, appends: Mapping[str, DataFrame | Rows]
) -> dict[str, DataFrame | Rows]:
    """The same few rows, those that this process has of a trace in the order of its key: what takes a
    row back stands beside what puts another in its place, and files are smaller by a seventh."""
    keys = {trace.table: trace.key for trace in circuit.traces}
    return {
        table: _sorted(rows, keys[table]) if isinstance(rows, Rows) and keys.get(table) else rows
        for table, rows in appends.items()
    }


def _sorted(rows: Rows, key: Sequence[str]) -> Rows:
    """In the order of a key: files that are written one after the other do not overlap."""
    # Windows are structs, which Arrow does not sort.
    columns = [rows.table[name] for name in key if not pa.types.is_nested(rows.table[name].type)]
    if not columns:
        return rows
    # Numbers for names: of one that begins with a point Arrow thinks that it leads to another column.
    names = [str(place) for place in range(len(columns))]
    order = [(name, "ascending") for name in names]
    places = pc.sort_indices(pa.table(columns, names), sort_keys=order)
    return Rows(rows.table.take(places), rows.schema)


def files_of(rows: int) -> int:
    """How many files of a trace hold so many rows."""
    return max(1, -(-rows // ROWS_PER_FILE))


def spread(rows: DataFrame, key: Sequence[str], files: int) -> DataFrame:
    """The rows in the order of a key, in files that do not overlap: a look-up skips most of them."""
    order = [quoted(name) for name in key]
    parts = rows.coalesce(1) if files == 1 else rows.repartitionByRange(files, *order)
    return parts.sortWithinPartitions(*order)
