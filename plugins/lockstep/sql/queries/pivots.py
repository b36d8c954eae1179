"""PIVOT and UNPIVOT of a relation in FROM.

PIVOT is a GROUP BY of the columns that it does not name, with each aggregate once for each value.
As in Spark, an aggregate is null, also a count, where a group has no row with the value. UNPIVOT is a
row for each of the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from lockstep.errors import ProjectError
from lockstep.sql.names import fresh_name
from lockstep.sql.plans.expressions import all_of
from lockstep.sql.plans.nesting import shape_of
from lockstep.sql.plans.nodes import Expression, Filter, Node, Output, Project, UnionAll
from lockstep.sql.plans.shapes import StructShape
from lockstep.sql.plans.terms import text_literal
from lockstep.sql.queries.functions import aggregates_in, contains_aggregate, is_aggregate
from lockstep.sql.queries.grouping import Grouping
from lockstep.sql.queries.lowering import ExpressionLowering, with_fields
from lockstep.sql.queries.scope import Lowered, Scope
from lockstep.sql.queries.select_list import own_name
from lockstep.sql.reading.syntax import SourceText
from lockstep.sql.reading.trees import copy_with_words

__all__ = ["pivoted"]


def pivoted(source: SourceText, scope: Scope, pivot: Any) -> Scope:
    """The relation after PIVOT or UNPIVOT, under the alias behind it."""
    make = _unpivot if pivot.args.get("unpivot") else _pivot
    lowered = make(source, scope, pivot)
    return Scope.over(lowered, pivot.alias.lower() or None)


def _members(node: Any) -> list[Any]:
    """(a, b) or a."""
    return list(node.expressions) if isinstance(node, exp.Tuple) else [node]


def _named(node: Any) -> tuple[Any, str]:
    """A value or column of IN, and the name that AS gives it, '' for none."""
    return (node.this, node.alias) if isinstance(node, exp.PivotAlias | exp.Alias) else (node, "")


def _pivot(source: SourceText, scope: Scope, pivot: Any) -> Lowered:
    (field,) = pivot.args["fields"]
    columns = _members(field.this)
    conditions: dict[int, Expression] = {}
    grouping = Grouping(source, scope, lambda part: conditions.get(id(part)))
    lowering = ExpressionLowering(source, scope)
    named = {name for one in columns for name in lowering.lower(one).references}
    calls = [_named(one) for one in pivot.expressions]
    for call, _ in calls:
        if not contains_aggregate(call):
            raise ProjectError(
                "PIVOT has something that is no aggregate",
                position=source.position_of(call),
                expected="PIVOT (sum(x) AS name, ... FOR column IN (...))",
                found=source.words_of(call),
            )
        named |= {
            name
            for column in call.find_all(exp.Column)
            for name in lowering.lower(column).references
        }
    fields = [one for one in scope.star() or [] if one.column not in named]
    for one in fields:
        grouping.add_key(one.column)
    written = [one.written for one in fields]
    outputs = [grouping.output(None, one.column) for one in fields]
    for value, name in map(_named, field.expressions):
        members = _members(value)
        compared = list(map(lowering.lower, columns))
        is_struct = len(members) > 1 and len(columns) == 1
        struct = compared[0]
        if is_struct:
            compared = _fields(struct, scope)
        if len(members) != len(compared):
            raise ProjectError(
                "PIVOT has a value of another width than its columns",
                position=source.position_of(value),
                expected=f"{len(compared)} values",
                found=source.words_of(value),
            )
        tests = [
            Expression(f"{left.text} <=> {right.text}", left.references)
            for left, right in zip(compared, map(lowering.lower, members), strict=True)
        ]
        if is_struct:
            tests.append(Expression(f"{struct.text} IS NOT NULL", struct.references))
        condition = copy_with_words(exp.Boolean(this=True), value)
        conditions[id(condition)] = all_of(tests)
        there = copy_with_words(exp.Anonymous(this="count", expressions=[exp.Star()]), value)
        counted = grouping.output(_filtered(there, condition), "")
        for call, alias in calls:
            found = grouping.output(_where(call, condition), "")
            text = f"CASE WHEN {counted.text} > 0 THEN {found.text} END"
            outputs.append(Expression(text, (*counted.references, *found.references)))
            parts = [name or _name_of(source, value)]
            parts += [alias or own_name(call)] if len(calls) > 1 else []
            written.append("_".join(parts) if all(parts) else "")
    return _shown(grouping.build(), written, outputs)


def _name_of(source: SourceText, value: Any) -> str:
    """The name that Spark gives to a column of a value; '' where it has to be given one."""
    members = _members(value)
    if len(members) == 1:
        return source.words_of(value).strip("'")
    plain = all(isinstance(one, exp.Literal) for one in members)
    return f"{{{', '.join(one.name for one in members)}}}" if plain else ""


def _fields(column: Expression, scope: Scope) -> list[Expression]:
    """The fields of a struct, with which a value in parentheses is compared; what is none, as it is."""
    shape = shape_of(column, scope.node)
    if not isinstance(shape, StructShape):
        return [column]
    return [with_fields(column, [name]) for name in shape.names]


def _where(node: Any, condition: Any) -> Any:
    """An expression of aggregates, each of the rows under a condition."""
    copied = node.copy()
    if is_aggregate(copied):
        return _filtered(copied, condition)
    for call in list(aggregates_in(copied)):
        call.replace(copy_with_words(_filtered(call.copy(), condition), call))
    return copied


def _filtered(call: Any, condition: Any) -> Any:
    return exp.Filter(this=call, expression=exp.Where(this=condition))


def _unpivot(source: SourceText, scope: Scope, pivot: Any) -> Lowered:
    (field,) = pivot.args["fields"]
    values = [one.name for one in _members(pivot.expressions[0])]
    lowering = ExpressionLowering(source, scope)
    taken: list[tuple[str, list[Expression]]] = []
    for columns, name in map(_named, field.expressions):
        parts = _members(columns)
        label = name or "_".join(part.name for part in parts)
        taken.append((label, [lowering.lower(part) for part in parts]))
        if len(parts) != len(values):
            raise ProjectError(
                "UNPIVOT has another number of columns than of names for their values",
                position=source.position_of(columns),
                expected=f"{len(values)} ({', '.join(values)})",
                found=source.words_of(columns),
            )
    used = {name for _, parts in taken for part in parts for name in part.references}
    kept = [one for one in scope.star() or [] if one.column not in used]
    written = [*(one.written for one in kept), field.this.name, *values]
    branches = [
        _shown(
            scope.node,
            written,
            [
                *(Expression.column(one.column) for one in kept),
                Expression(text_literal(label)),
                *parts,
            ],
        )
        for label, parts in taken
    ]
    nodes = tuple(one.node for one in branches)
    node: Node = nodes[0] if len(nodes) == 1 else UnionAll(nodes)
    if not pivot.args.get("include_nulls"):
        own = node.columns[-len(values) :]
        test = " OR ".join(f"`{column}` IS NOT NULL" for column in own)
        node = Filter(node, Expression(test, own))
    return replace(branches[0], node=node)


def _shown(node: Node, written: Sequence[str], outputs: Sequence[Expression]) -> Lowered:
    names: list[str] = []
    for name in written:
        names.append(fresh_name(name.lower().lstrip("_") or "column", names))
    return Lowered(Project(node, tuple(map(Output, names, outputs))), tuple(written))
