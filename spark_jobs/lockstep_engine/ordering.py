"""The order in which many rows are written to a trace."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql import DataFrame

from lockstep.sql.circuit import Circuit
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
    followed, below = frozenset(tables), dict[int, frozenset[str]]()
    keys = dict[str, tuple[str, ...]]()
    for operator in circuit.operators:
        node, inputs = operator.node, (below[ref] for ref in operator.inputs)
        own = [node.source] if isinstance(node, Scan) else []
        below[operator.ref] = frozenset(own).union(*inputs)
        if below[operator.ref] <= followed:
            keys.update({trace.table: trace.key for trace in operator.traces if trace.key})
    return {
        table: rows.sortWithinPartitions(*map(quoted, keys[table]))
        if table in keys and not isinstance(rows, Rows)
        else rows
        for table, rows in appends.items()
    }
