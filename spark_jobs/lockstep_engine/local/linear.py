"""Relations whose rows are made one by one of rows that this process has.

Columns are picked here, what is simple is computed (`formulas`), and windows are found; all else is
Spark's, in one request, and without a job, unless a row is put into several windows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from typing import NamedTuple

from lockstep.sql.circuit import Operator
from lockstep.sql.plans.nodes import Expression, Filter, Project, TimeWindow, Weigh
from lockstep.sql.reading.intervals import interval_microseconds
from lockstep.threads import in_parallel, shares
from lockstep_engine.context import Context
from lockstep_engine.local.formulas import projected, sifted, weighed
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.time_windows import in_windows, netted_by_pane
from lockstep_engine.operators import State, evaluate
from lockstep_engine.told import fetched

__all__ = ["MOST_ROWS", "Sifted", "base", "is_linear", "made_here", "rows_through", "windows_of"]

MOST_ROWS = 600_000
"""Up to so many rows are made here, also on the way."""
_MOST_TIMES = 3
"""Or so many times as many as there are, in windows of which there are many."""
_ROWS_OF_A_PART = 50_000
"""Of rows that are worked on at the same time."""


class Sifted(NamedTuple):
    """Those of the rows for which all conditions are true."""

    rows: Rows
    conditions: Sequence[Expression] = ()

    def part(self, rows: slice) -> Sifted:
        """The same of some of the rows."""
        return self._replace(rows=Rows(self.rows.table[rows], self.rows.schema))

    def without_those_left_out(self) -> Sifted:
        """The same rows, fewer of which are left for Spark to sift."""
        return Sifted(*sifted(self.rows, self.conditions)) if self.conditions else self


def is_linear(operator: Operator) -> bool:
    """Whether each row of its input makes rows of its own, whatever others there are."""
    return isinstance(operator.node, Project | Filter | Weigh | TimeWindow)


def base(
    operators: Mapping[int, Operator],
    ref: int,
    known: Callable[[int], Sifted | None],
    by_pane: Collection[int] = (),
) -> tuple[Sifted, Sequence[Operator]] | None:
    """What is `known` of a relation, or of one below of whose rows its own are made, and the operators
    that make them, first the one that comes first; None where nothing is, or they may be too many.
    Windows `by_pane` are of rows that are netted first."""
    above: list[Operator] = []
    while (found := known(ref)) is None:
        operator = operators[ref]
        if not is_linear(operator):
            return None
        above.append(operator)
        [ref] = operator.inputs
    windows = prod(windows_of(one) for one in above if one.ref not in by_pane)
    if windows > 1 and len(found.rows) * windows > MOST_ROWS:
        return None
    return found, above[::-1]


def rows_through(
    operators: Mapping[int, Operator],
    ref: int,
    known: Callable[[int], Sifted | None],
    context: Context,
    by_pane: Collection[int] = (),
) -> Rows | None:
    """The rows of a relation, with `_weight` and `_step`, by what is known; None where nothing is, or
    they are many and Spark has to make them: it does so where it reads them. Nobody reads the time of
    rows in windows `by_pane`."""
    found = base(operators, ref, known, by_pane)
    if found is None:
        return None
    (rows, conditions), above = made_here(*found, by_pane)
    if not conditions and not above:
        return rows
    if len(rows) * prod(map(windows_of, above)) > MOST_ROWS:
        return None
    frame = rows.along(context.spark)
    for condition in conditions:
        frame = frame.where(condition.text)
    for operator in above:
        frame = evaluate(operator, (frame,), State(), context).delta
    return Rows(*fetched(frame))


def made_here(
    found: Sifted, above: Sequence[Operator], by_pane: Collection[int] = ()
) -> tuple[Sifted, Sequence[Operator]]:
    """As far up as it goes without Spark, and the operators that are left."""
    # Of panes fewer rows come than there are, the more so the more are netted together.
    is_each = not any(isinstance(one.node, TimeWindow) for one in above)
    is_worked_on = is_each and (above or found.conditions)
    parts = shares(len(found.rows), _ROWS_OF_A_PART) if is_worked_on else []
    if len(parts) > 1:
        made = in_parallel(lambda part: _made_here(found.part(part), above), parts)
        if len({(tuple(one.conditions), len(left)) for one, left in made}) == 1:
            [(first, left), *_] = made
            return first._replace(rows=Rows.together([one.rows for one, _ in made])), left
        # What is left may be for the sake of a value.
    return _made_here(found, above, by_pane)


def _made_here(
    found: Sifted, above: Sequence[Operator], by_pane: Collection[int] = ()
) -> tuple[Sifted, Sequence[Operator]]:
    while True:
        found = found.without_those_left_out()
        node = above[0].node if above and not found.conditions else None
        made = None
        if isinstance(node, Filter):
            made = Sifted(found.rows, (node.predicate,))
        elif isinstance(node, Project):
            rows = projected(found.rows, node)
            made = None if rows is None else Sifted(rows)
        elif isinstance(node, Weigh):
            rows = weighed(found.rows, node)
            made = None if rows is None else Sifted(rows)
        elif isinstance(node, TimeWindow):
            rows, most = found.rows, max(MOST_ROWS, _MOST_TIMES * len(found.rows))
            given = netted_by_pane(rows, node) if above[0].ref in by_pane else rows
            rows = in_windows(given, node, most)
            made = None if rows is None else Sifted(rows)
        if made is None:
            return found, above
        found, above = made, above[1:]


def windows_of(operator: Operator) -> int:
    """How many rows it makes of one at most."""
    node = operator.node
    if not isinstance(node, TimeWindow):
        return 1
    size, slide = (interval_microseconds(text) for text in (node.size, node.slide))
    return -(-size // slide)
