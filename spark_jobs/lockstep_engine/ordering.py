"""The order in which many rows are written to a trace."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql import DataFrame

from lockstep.sql.circuit import Circuit, operators_above
from lockstep.sql.plans.nodes import Scan
from lockstep_engine.deltas import quoted
from lockstep_engine.local.rows import Rows

__all__ = ["in_order"]


def in_order(
    circuit: Circuit, appends: Mapping[str, DataFrame | Rows], tables: Collection[str]
) -> dict[str, DataFrame | Rows]:
    """The same rows, those of each file in the order of their trace's key, where all of a trace's come
    from `tables`, which are followed.

    Such a table is read as a whole once, and then come small changes: what these look up is few keys,
    often near one another, which stand in one place of each file then. Of a topic one large interval
    comes after another while it is caught up with, and to sort them takes up to a sixth of each.
    """
    read = {one.node.source for one in circuit.operators if isinstance(one.node, Scan)}
    of_others = operators_above(circuit, read.difference(tables))
    keys = {
        trace.table: trace.key
        for operator in circuit.operators
        for trace in operator.traces
        if trace.key and operator.ref not in of_others
    }
    return {
        table: rows.sortWithinPartitions(*map(quoted, keys[table]))
        if table in keys and not isinstance(rows, Rows)
        else rows
        for table, rows in appends.items()
    }
