"""The oracle: what a plan is on relations, over Z-sets in plain Python.

It shares no code with the engine: a relation goes in whole, a relation comes out, and nothing here
knows of steps or changes. Expressions are looked up by their text in a table of Python functions.
"""

from __future__ import annotations

import datetime as dt
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any, assert_never

from lockstep.sql.plans.nodes import (
    Aggregate,
    AggregateCall,
    AggregateFunction,
    Expression,
    Filter,
    Generate,
    Join,
    JoinKind,
    Node,
    Project,
    Recursive,
    Scan,
    Temporal,
    TimeWindow,
    UnionAll,
    Upsert,
    Values,
    Watermark,
    Weigh,
    Window,
)
from lockstep.zset import NAN, Row, ZSet

Named = Mapping[str, Any]
Meaning = Callable[[Named], Any]

COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Oracle:
    """`meanings` gives the value of an expression's text on a row; plain columns need no entry. `steps`
    gives the step of a recursion as it was before it was written out, over a Scan of its name. `now` is
    the time at which relations are looked at, `mark` the watermark; sources hold the rows that are on
    time, and of a keyed one the records, the last of a key at the greatest offset."""

    def __init__(
        self,
        meanings: Mapping[str, Meaning],
        steps: Mapping[str, Node] = MappingProxyType({}),
        now: dt.datetime = EPOCH,
        mark: dt.datetime = EPOCH,
    ) -> None:
        self._meanings = meanings
        self._steps = steps
        self._now = now
        self._mark = mark

    def evaluate(self, node: Node, sources: Mapping[str, tuple[tuple[str, ...], ZSet]]) -> ZSet:
        """The rows of `node`, over the columns and rows of each source."""
        # what stands beside a recursion is evaluated with its step
        read = node.inputs[:1] if isinstance(node, Recursive) else node.inputs
        inputs = [self.evaluate(below, sources) for below in read]
        result: ZSet
        match node:
            case Scan():
                columns, rows = sources[node.source]
                places = [columns.index(column) for column in node.columns]
                result = rows.map(lambda row: tuple(row[place] for place in places))
            case Project():
                result = inputs[0].map(lambda row: self._project(node, row))
            case Filter():
                result = inputs[0].filter(
                    lambda row: self._value(node.predicate, _named(node.input, row)) is True
                )
            case Temporal():
                now = self._mark if node.watermarks else self._now
                bound = self._value(node.bound, {"now": now})
                compare = COMPARISONS[node.comparison]
                place = node.columns.index(node.column)
                result = inputs[0].filter(
                    lambda row: row[place] is not None and compare(row[place], bound)
                )
            case Upsert() | Watermark():
                result = _last_records(node, inputs[0]) if isinstance(node, Upsert) else inputs[0]
            case TimeWindow():
                result = inputs[0].flat_map(lambda row: _windows(node, row))
            case UnionAll():
                result = sum(inputs, ZSet())
            case Values():
                rows_of = [[self._value(cell, {}) for cell in row] for row in node.rows]
                result = ZSet((tuple(row), 1) for row in rows_of)
            case Generate():
                result = inputs[0].flat_map(
                    lambda row: [
                        (*row, *made)
                        for made in self._value(node.generator, _named(node.input, row))
                    ]
                )
            case Weigh():
                result = ZSet(
                    (row, weight * self._value(node.weight, _named(node.input, row)))
                    for row, weight in inputs[0]
                )
            case Join():
                result = self._join(node, *inputs)
            case Aggregate():
                result = self._aggregate(node, inputs[0])
            case Window():
                result = self._window(node, inputs[0])
            case Recursive():
                result = self._recursive(node, inputs[0], sources)
            case _:
                assert_never(node)
        return result

    def _recursive(
        self,
        node: Recursive,
        level: ZSet,
        sources: Mapping[str, tuple[tuple[str, ...], ZSet]],
    ) -> ZSet:
        every = ZSet()
        while level != ZSet():
            every += level
            before = {node.name: (node.columns, level)}
            level = self.evaluate(self._steps[node.name], {**sources, **before})
        return every

    def _value(self, expression: Expression, row: Named) -> Any:
        if expression.is_column:
            return row[expression.references[0]]
        return self._meanings[expression.text](row)

    def _project(self, node: Project, row: Row) -> Row:
        named = _named(node.input, row)
        return tuple(self._value(output.expression, named) for output in node.outputs)

    def _join(self, node: Join, left: ZSet, right: ZSet) -> ZSet:
        pairs = [
            (one, other, weight * times)
            for one, weight in left
            for other, times in right
            if self._match(node, one, other)
        ]
        matched = {one for one, _, _ in pairs}
        if node.kind is JoinKind.SEMI:
            return left.filter(lambda row: row in matched)
        if node.kind is JoinKind.ANTI:
            return left.filter(lambda row: row not in matched)
        result = [((*one, *other), weight) for one, other, weight in pairs]
        if node.kind in (JoinKind.LEFT, JoinKind.FULL):
            nulls = (None,) * len(node.right.columns)
            result += [((*one, *nulls), weight) for one, weight in left if one not in matched]
        if node.kind is JoinKind.FULL:
            partners = {other for _, other, _ in pairs}
            nulls = (None,) * len(node.left.columns)
            result += [((*nulls, *one), weight) for one, weight in right if one not in partners]
        return ZSet(result)

    def _match(self, node: Join, left: Row, right: Row) -> bool:
        one, other = _named(node.left, left), _named(node.right, right)
        for a, b, null_safe in node.keys:
            if one[a] != other[b] or (one[a] is None and not null_safe):
                return False
        return node.condition is None or self._value(node.condition, {**one, **other}) is True

    def _aggregate(self, node: Aggregate, rows: ZSet) -> ZSet:
        places = [node.input.columns.index(key) for key in node.keys]
        groups = rows.group(lambda row: tuple(row[place] for place in places))
        if not node.keys:
            groups = {(): rows}
        return ZSet(
            ((*key, *(self._call(call, node.input, group) for call in node.aggregates)), 1)  # type: ignore[misc]
            for key, group in groups.items()
        )

    def _call(self, call: AggregateCall, node: Node, group: ZSet) -> Any:
        if call.expression is None:
            return _call(call, node, group)
        return self._meanings[call.expression.text]({"rows": _copies(node, group)})

    def _window(self, node: Window, rows: ZSet) -> ZSet:
        """Each call's meaning is given the rows of the partition and the row itself; of one that ranks
        rows the first may be wanted."""
        places = [node.input.columns.index(key) for key in node.partition]
        result = []
        for group in rows.group(lambda row: tuple(row[place] for place in places)).values():
            copies = _copies(node.input, group)
            for row, weight in group:
                here = {"rows": copies, "row": _named(node.input, row)}
                values = [self._meanings[f"{c.function.text} {c.over}"](here) for c in node.calls]
                if node.first is None or values[0] <= node.first:
                    result.append(((*row, *values), weight))
        return ZSet(result)


def _last_records(node: Upsert, records: ZSet) -> ZSet:
    places = [node.columns.index(key) for key in node.keys]
    last: dict[Row, Row] = {}
    for *values, _, offset, is_deleted in (row for row, _ in records):
        key = tuple(values[place] for place in places)
        if key not in last or last[key][-2] < offset:
            last[key] = (*values, offset, is_deleted)
    return ZSet((row[:-2], 1) for row in last.values() if not row[-1])


def _copies(node: Node, rows: ZSet) -> list[Named]:
    """Every copy of every row, by column."""
    return [_named(node, row) for row, weight in rows for _ in range(weight)]


def _named(node: Node, row: Row) -> Named:
    return dict(zip(node.columns, row, strict=True))


def _windows(node: TimeWindow, row: Row) -> Iterator[Row]:
    time = row[node.input.columns.index(node.timestamp)]
    if time is None:
        return
    size, slide = _seconds(node.size), _seconds(node.slide)
    at = (time - EPOCH) / dt.timedelta(seconds=1)
    start = math.floor(at / slide) * slide
    while start + size > at:
        bounds = tuple(EPOCH + dt.timedelta(seconds=edge) for edge in (start, start + size))
        yield (*row, bounds)
        start -= slide


def _seconds(interval: str) -> int:
    number, unit = interval.split()
    assert unit == "seconds", interval
    return int(number)


def _call(call: AggregateCall, node: Node, group: ZSet) -> Any:
    if call.argument is None:
        values = list(group)
    else:
        place = node.columns.index(call.argument)
        values = [(row[place], weight) for row, weight in group if row[place] is not None]
    count = sum(weight for _, weight in values)
    if call.function is AggregateFunction.COUNT:
        return count
    if not count:
        return None
    match call.function:
        case AggregateFunction.MIN | AggregateFunction.MAX:
            choose = min if call.function is AggregateFunction.MIN else max
            return choose((value for value, _ in values), key=_order)
        case AggregateFunction.SUM:
            return _total(values)
        case AggregateFunction.AVG:
            return _mean(_total(values), count)


def _order(value: Any) -> Any:
    """NaN is the greatest, as in Spark."""
    return (value is NAN, 0.0 if value is NAN else value) if isinstance(value, float) else value


def _total(values: Sequence[tuple[Any, int]]) -> Any:
    if not isinstance(values[0][0], float):
        return sum(value * weight for value, weight in values)
    odd = {value for value, _ in values if not math.isfinite(value)}
    if odd:
        return odd.pop() if len(odd) == 1 else NAN
    total = sum((Fraction(value) * weight for value, weight in values), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def _mean(total: Any, count: int) -> Any:
    if not isinstance(total, Decimal):
        # Two roundings, as in Spark: to the double nearest to the sum, then the quotient's.
        return float(total) / count
    scale = -int(total.as_tuple().exponent) + 4
    exact = Fraction(total) / count * 10**scale
    return Decimal(math.floor(abs(exact) + Fraction(1, 2)) * (1 if exact >= 0 else -1)).scaleb(
        -scale
    )


__all__ = ["Meaning", "Oracle"]
