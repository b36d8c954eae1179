"""What is known of the nested columns of a plan, from the sources and functions that they come from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from lockstep.sql.plans.expressions import is_null, parsed
from lockstep.sql.plans.leaves import Scan, Values
from lockstep.sql.plans.nodes import (
    Aggregate,
    Expression,
    Generate,
    Node,
    Project,
    TimeWindow,
    UnionAll,
    Window,
)
from lockstep.sql.plans.shapes import (
    ListShape,
    MapShape,
    Shape,
    StructShape,
    element_of,
    field_of,
    shape_of_type,
)
from lockstep.sql.plans.time_nodes import SessionGroups
from lockstep.sql.reading.trees import function_name, identifier_parts, without_parentheses

__all__ = ["ShapesOf", "shape_of"]

_SPAN_OF_TIME = StructShape((("start", None), ("end", None)))
_AS_FIRST = frozenset(
    (
        *("coalesce", "nvl", "ifnull", "nullif", "greatest", "least", "filter", "sort_array"),
        *("array_sort", "array_distinct", "array_remove", "array_compact", "slice", "reverse"),
        *("array_union", "array_intersect", "array_except", "array_append", "array_prepend"),
        *("array_insert", "concat", "first", "first_value", "last", "last_value", "any_value"),
        *("min", "max", "min_by", "max_by", "mode", "lag", "lead", "nth_value"),
    )
)
"""Functions whose value has the shape of their first argument."""
_AS_SECOND = frozenset({"iff", "nvl2"})
_LISTS_OF_FIRST = frozenset({"collect_list", "collect_set", "array_agg", "array_repeat"})
_MAPS = frozenset({"str_to_map", "transform_keys", "transform_values"})
_ELEMENTS = frozenset({"element_at", "try_element_at", "get"})
_NAME = re.compile(r"^\w+\s*=>")
Columns = Callable[[str], Shape | None]


class ShapesOf(Mapping[str, Shape]):
    """The columns of a plan that are nested, with `prefix` before their names; looked for when asked."""

    def __init__(self, node: Node, prefix: str = "") -> None:
        self._node = node
        self._prefix = prefix

    def __getitem__(self, name: str) -> Shape:
        column = name.removeprefix(self._prefix)
        known = name.startswith(self._prefix) and column in self._node.columns
        shape = _of_column(self._node, column) if known else None
        if shape is None:
            raise KeyError(name)
        return shape

    def __iter__(self) -> Iterator[str]:
        shaped = (one for one in self._node.columns if _of_column(self._node, one) is not None)
        return (f"{self._prefix}{column}" for column in shaped)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def shape_of(expression: Expression, node: Node | None) -> Shape | None:
    """The shape of an expression over a node; over none, of one that reads no column. None where it is
    not nested, or not known. It can be an argument by name, `input => x`."""
    if node is not None and expression.is_column:
        return _of_column(node, expression.references[0])
    expression = replace(expression, text=_NAME.sub("", expression.text))
    return _of(parsed(expression)[1], lambda name: _of_column(node, name))


def _of_column(node: Node | None, column: str | None) -> Shape | None:
    if node is None or column is None or column not in node.columns:
        return None
    match node:
        case Scan():
            return node.shapes.get(column)
        case Project():
            value = next(one.expression for one in node.outputs if one.name == column)
            return shape_of(value, node.input)
        case Generate() if column in node.names:
            return _of_generated(node, node.names.index(column))
        case Aggregate() if column not in node.keys:
            call = next(one for one in node.aggregates if one.name == column)
            if call.expression is not None:
                return shape_of(call.expression, node.input)
            return _of_column(node.input, call.argument) if call.function.is_extreme else None
        case SessionGroups() | TimeWindow() if column not in node.input.columns:
            return _SPAN_OF_TIME
        case Window() if column not in node.input.columns:
            made = next(one for one in node.calls if one.name == column)
            return shape_of(made.function, node.input)
        case Values():
            place = node.columns.index(column)
            cells = (row[place] for row in node.rows if not is_null(row[place]))
            return next((shape_of(cell, None) for cell in cells), None)
        case UnionAll():
            return _of_column(node.branches[0], column)
        case _:
            below = (one for one in node.inputs if column in one.columns)
            return _of_column(next(below, None), column)


def _of_generated(node: Generate, place: int) -> Shape | None:
    call = parsed(node.generator)[1]
    if not call.expressions:
        return None
    argument = _of(call.expressions[0], lambda name: _of_column(node.input, name))
    match function_name(call).removesuffix("_outer"):
        case "inline":
            row = element_of(argument)
            shapes = [of for _, of in row.fields] if isinstance(row, StructShape) else []
            return shapes[place] if place < len(shapes) else None
        case "explode" | "posexplode" if isinstance(argument, MapShape):
            return (None, argument.key, argument.value)[place - len(node.names)]
        case "explode" | "posexplode":
            return element_of(argument) if place == len(node.names) - 1 else None
        case _:
            return None


def _first(nodes: Iterable[Any], columns: Columns) -> Shape | None:
    """The shape of the first of several that is not null, whose fields' names Spark takes."""
    for node in nodes:
        if node is not None and not isinstance(without_parentheses(node), exp.Null):
            return _of(node, columns)
    return None


def _of(node: Any, columns: Columns) -> Shape | None:
    node = without_parentheses(node)
    match node:
        case exp.Column():
            first, *fields = (part.name for part in identifier_parts(node))
            shape = columns(first)
            for name in fields:
                shape = field_of(shape, name)
            return shape
        case exp.Identifier():
            return columns(node.name)
        case exp.Dot():
            return field_of(_of(node.this, columns), node.expression.name)
        case exp.Bracket():
            return element_of(_of(node.this, columns))
        case exp.Cast():
            return shape_of_type(node.args["to"].sql("spark"))
        case exp.Case():
            branches = [*(one.args["true"] for one in node.args["ifs"]), node.args.get("default")]
            return _first(branches, columns)
        case exp.If():
            return _first((node.args.get("true"), node.args.get("false")), columns)
        case exp.Alias():
            return _of(node.this, columns)
        case exp.Anonymous():
            return _of_call(function_name(node), node.expressions, columns)
        case _:
            return None


def _of_call(name: str, arguments: Sequence[Any], columns: Columns) -> Shape | None:
    def at(place: int) -> Shape | None:
        return _of(arguments[place], columns) if place < len(arguments) else None

    match name:
        case "struct":
            fields = (_named(one, f"col{n}") for n, one in enumerate(arguments, start=1))
            return StructShape(tuple((field, _of(one, columns)) for field, one in fields))
        case "named_struct":
            pairs = zip(arguments[::2], arguments[1::2], strict=False)
            return StructShape(tuple((field.name, _of(one, columns)) for field, one in pairs))
        case "from_json" | "from_csv" if len(arguments) > 1:
            return shape_of_type(arguments[1].name)
        case "transform":
            return _of_transformed(arguments, columns)
        case "window" | "session_window":
            return _SPAN_OF_TIME
        case "array":
            return ListShape(_first(arguments, columns))
        case "flatten":
            return element_of(at(0))
        case _ if name.startswith("map") or name in _MAPS:
            return _of_map(name, at(0), at(1))
        case _ if name in _LISTS_OF_FIRST:
            return ListShape(at(0))
        case _ if name in _ELEMENTS:
            return element_of(at(0))
        case _ if name in _AS_SECOND:
            return _first(arguments[1:], columns)
        case _ if name in _AS_FIRST:
            return _first(arguments, columns)
        case _:
            return None


def _of_map(name: str, first: Shape | None, second: Shape | None) -> Shape | None:
    match name, first:
        case "map", _:
            return MapShape(first, second)
        case "map_from_arrays", _:
            return MapShape(element_of(first), element_of(second))
        case "map_entries", MapShape():
            return ListShape(StructShape((("key", first.key), ("value", first.value))))
        case "map_keys", MapShape():
            return ListShape(first.key)
        case "map_values", MapShape():
            return ListShape(first.value)
        case (("map_filter" | "map_concat"), MapShape()):
            return first
        case (("map_entries" | "map_keys" | "map_values" | "map_contains_key"), _):
            return None
        case _:
            return MapShape(None, None)


def _of_transformed(arguments: Sequence[Any], columns: Columns) -> Shape | None:
    if len(arguments) != 2 or not isinstance(arguments[1], exp.Lambda):
        return None
    row = element_of(_of(arguments[0], columns))
    parameter = arguments[1].expressions[0].name.lower()
    return ListShape(
        _of(arguments[1].this, lambda name: row if name.lower() == parameter else columns(name))
    )


def _named(node: Any, place: str) -> tuple[str, Any]:
    """The name of a field of struct(), and what it holds."""
    if isinstance(node, exp.Alias):
        return node.alias, node.this
    has_name = isinstance(node, exp.Column | exp.Dot | exp.Identifier)
    return (node.name if has_name else place), node
