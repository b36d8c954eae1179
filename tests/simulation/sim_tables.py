"""The simulated pipeline's tables: a view, its changes, one trace, and what every pipeline has."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.ids import LAYOUTS_TABLE, STEPS_TABLE

VIEW, OUTBOX, TRACE = "totals", "totals_changes", "_trace_totals"
COLUMNS: Mapping[str, tuple[str, ...]] = {
    VIEW: ("key", "count", "total", "chain"),
    OUTBOX: ("key", "count", "total", "chain", "_weight", "_step"),
    TRACE: ("key", "count", "total", "chain", "_weight"),
    STEPS_TABLE: (
        "step",
        "time",
        "source",
        "topic",
        "topic_id",
        "partition",
        "start_offset",
        "end_offset",
    ),
    LAYOUTS_TABLE: ("epoch", "from_step", "layout"),
}
