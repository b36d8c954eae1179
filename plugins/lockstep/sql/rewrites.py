"""Rewrites: the same meaning at a smaller cost, by small rules to a fixed point.

A rule takes a node whose inputs are done and gives a node of the same columns (or the node itself).
The order is PASSES; FINAL runs once after them. A published view that another view reads is a leaf
here (see `project`): its operators and traces are there anyway, and are shared as they are.

Why it matters: a join's trace holds the columns of its input, so a column that nobody reads, or a
row that a filter above drops, would be state kept for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

from lockstep.sql.expressions import (
    all_of,
    conjuncts,
    equality,
    is_trivial,
    occurrences,
    substitute,
)
from lockstep.sql.nodes import (
    Aggregate,
    Expression,
    Filter,
    Join,
    Node,
    Output,
    Project,
    Scan,
    TimeWindow,
    UnionAll,
)
from lockstep.sql.pruning import prune

__all__ = ["FINAL", "PASSES", "Rewrite", "everywhere", "rewrite", "with_inputs"]

Rewrite = Callable[[Node], Node]
_ROUNDS = 200


def rewrite(node: Node) -> Node:
    """The plan after all rules; its columns are those of `node`."""
    for _ in range(_ROUNDS):
        before = node
        for rule in PASSES:
            node = everywhere(rule, node)
        node = prune(node)
        if node == before:
            break
    else:
        raise AssertionError(f"the rewrites of a plan do not end: {node!r}")
    for rule in FINAL:
        node = everywhere(rule, node)
    return node


def with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    """The node over other inputs (of columns that fit)."""
    match node:
        case Scan():
            return node
        case UnionAll():
            return replace(node, branches=inputs)
        case Join():
            return replace(node, left=inputs[0], right=inputs[1])
        case _:
            return replace(node, input=inputs[0])


def everywhere(rule: Rewrite, node: Node) -> Node:
    """The rule applied to every node once, inputs first."""
    inputs = tuple(everywhere(rule, child) for child in node.inputs)
    return rule(node if inputs == node.inputs else with_inputs(node, inputs))


def split_filters(node: Node) -> Node:
    """Filter(x, a AND b) → Filter(Filter(x, a), b): each part can move on its own."""
    if isinstance(node, Filter):
        parts = conjuncts(node.predicate)
        if len(parts) > 1:
            result = node.input
            for part in parts:
                result = Filter(result, part)
            return result
    return node


def drop_true_filters(node: Node) -> Node:
    """Filter(x, TRUE) → x."""
    if isinstance(node, Filter) and node.predicate.text.upper() == "TRUE":
        return node.input
    return node


def filter_below_project(node: Node) -> Node:
    """Filter(Project(x)) → Project(Filter(x)), over the expressions that the columns stand for."""
    if isinstance(node, Filter) and isinstance(node.input, Project):
        project = node.input
        predicate = substitute(node.predicate, {o.name: o.expression for o in project.outputs})
        if predicate is not None:
            return replace(project, input=Filter(project.input, predicate))
    return node


def filter_below_union(node: Node) -> Node:
    """Filter(UnionAll(a, b)) → UnionAll(Filter(a), Filter(b))."""
    if isinstance(node, Filter) and isinstance(node.input, UnionAll):
        return UnionAll(tuple(Filter(branch, node.predicate) for branch in node.input.branches))
    return node


def filter_below_time_window(node: Node) -> Node:
    """Filter(TimeWindow(x)) → TimeWindow(Filter(x)) where the window's column is not read."""
    if isinstance(node, Filter) and isinstance(node.input, TimeWindow):
        window = node.input
        if window.name not in node.predicate.references:
            return replace(window, input=Filter(window.input, node.predicate))
    return node


def filter_below_aggregate(node: Node) -> Node:
    """Filter(Aggregate(x)) → Aggregate(Filter(x)) where only keys are read."""
    if isinstance(node, Filter) and isinstance(node.input, Aggregate):
        aggregate, references = node.input, node.predicate.references
        if references and set(references) <= set(aggregate.keys):
            return replace(aggregate, input=Filter(aggregate.input, node.predicate))
    return node


def filter_into_join_side(node: Node) -> Node:
    """Filter(Join(a, b)) → Join(Filter(a), b) or Join(a, Filter(b)), where one side has the columns."""
    if isinstance(node, Filter) and isinstance(node.input, Join):
        join, references = node.input, set(node.predicate.references)
        if references <= set(join.left.columns):
            return replace(join, left=Filter(join.left, node.predicate))
        if references <= set(join.right.columns):
            return replace(join, right=Filter(join.right, node.predicate))
    return node


def equality_to_join_key(node: Node) -> Node:
    """Filter(Join(a, b), x = y) → Join on x and y; sides that are expressions become columns."""
    if not (isinstance(node, Filter) and isinstance(node.input, Join)):
        return node
    join, sides = node.input, equality(node.predicate)
    if sides is None or not all(side.references for side in sides):
        return node
    left, right = sides
    if not set(left.references) <= set(join.left.columns):
        left, right = right, left
    if not (
        set(left.references) <= set(join.left.columns)
        and set(right.references) <= set(join.right.columns)
    ):
        return node
    taken = set(join.columns)
    left_input, left_key = _with_column(join.left, left, taken)
    right_input, right_key = _with_column(join.right, right, taken | {left_key})
    pairs = dict.fromkeys(zip(join.left_keys, join.right_keys, strict=True))
    pairs[left_key, right_key] = None
    keyed = replace(
        join,
        left=left_input,
        right=right_input,
        left_keys=tuple(pair[0] for pair in pairs),
        right_keys=tuple(pair[1] for pair in pairs),
    )
    return keyed if keyed.columns == join.columns else _columns_of(keyed, join.columns)


def connect_cross_joins(node: Node) -> Node:
    """(a x b) JOIN c on a's columns → (a JOIN c) x b: no product where keys would do."""
    if not (isinstance(node, Join) and node.left_keys and isinstance(node.left, Join)):
        return node
    outer, inner = node, node.left
    if inner.left_keys or inner.condition is not None:
        return node
    pairs = list(zip(outer.left_keys, outer.right_keys, strict=True))
    near = [pair for pair in pairs if pair[0] in inner.left.columns]
    far = [pair for pair in pairs if pair[0] in inner.right.columns]
    first, second = inner.left, inner.right
    if not near:
        near, far = far, near
        first, second = second, first
    joined = Join(first, outer.right, tuple(p[0] for p in near), tuple(p[1] for p in near))
    # those of `far` equate a column of `second` with one of c, which `joined` now has
    again = Join(
        joined, second, tuple(p[1] for p in far), tuple(p[0] for p in far), outer.condition
    )
    return _columns_of(again, node.columns)


def merge_projections(node: Node) -> Node:
    """Project(Project(x)) → Project(x), where no expression would be computed twice."""
    if not (isinstance(node, Project) and isinstance(node.input, Project)):
        return node
    values = {output.name: output.expression for output in node.input.outputs}
    uses: dict[str, int] = {}
    for output in node.outputs:
        for name, times in occurrences(output.expression).items():
            uses[name] = uses.get(name, 0) + times
    if any(times > 1 and not is_trivial(values[name]) for name, times in uses.items()):
        return node
    outputs: list[Output] = []
    for output in node.outputs:
        merged = substitute(output.expression, values)
        if merged is None:
            return node
        outputs.append(Output(output.name, merged))
    return Project(node.input.input, tuple(outputs))


def drop_identity_projections(node: Node) -> Node:
    """Project(x, all columns of x as they are) → x."""
    if (
        isinstance(node, Project)
        and node.columns == node.input.columns
        and all(output.expression == Expression.column(output.name) for output in node.outputs)
    ):
        return node.input
    return node


def flatten_unions(node: Node) -> Node:
    """UnionAll(UnionAll(a, b), c) → UnionAll(a, b, c)."""
    if isinstance(node, UnionAll) and any(isinstance(b, UnionAll) for b in node.branches):
        return UnionAll(
            tuple(
                inner
                for branch in node.branches
                for inner in (branch.branches if isinstance(branch, UnionAll) else (branch,))
            )
        )
    return node


def filter_into_join_condition(node: Node) -> Node:
    """Filter(Join) → Join with the predicate as its condition: what is left over both sides."""
    if isinstance(node, Filter) and isinstance(node.input, Join):
        join = node.input
        condition = [join.condition] if join.condition is not None else []
        return replace(join, condition=all_of([*condition, node.predicate]))
    return node


def merge_filters(node: Node) -> Node:
    """Filter(Filter(x, a), b) → Filter(x, (a) AND (b)), in the order in which they were written."""
    if isinstance(node, Filter) and isinstance(node.input, Filter):
        inner = node.input
        return Filter(inner.input, all_of([*conjuncts(inner.predicate), node.predicate]))
    return node


PASSES: tuple[Rewrite, ...] = (
    split_filters,
    drop_true_filters,
    filter_below_project,
    filter_below_union,
    filter_below_time_window,
    filter_below_aggregate,
    filter_into_join_side,
    equality_to_join_key,
    connect_cross_joins,
    flatten_unions,
    merge_projections,
    drop_identity_projections,
)
"""To a fixed point, with `pruning.prune` after each round."""

FINAL: tuple[Rewrite, ...] = (filter_into_join_condition, merge_filters)


def _columns_of(node: Node, columns: tuple[str, ...]) -> Project:
    return Project(node, tuple(Output(name, Expression.column(name)) for name in columns))


def _with_column(node: Node, expression: Expression, taken: set[str]) -> tuple[Node, str]:
    """The node with a column that holds the expression, and the column's name."""
    if expression.is_column:
        return node, expression.references[0]
    if isinstance(node, Project):
        # The same key expression twice is one column.
        for output in node.outputs:
            same = substitute(expression, {o.name: o.expression for o in node.outputs})
            if same is not None and same == output.expression:
                return node, output.name
    name = next(name for name in map("_key{}".format, count()) if name not in taken)
    kept = (Output(column, Expression.column(column)) for column in node.columns)
    return Project(node, (*kept, Output(name, expression))), name
