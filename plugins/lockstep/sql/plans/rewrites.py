"""Rewrites: the same meaning at a smaller cost, by small rules to a fixed point.

A rule takes a node whose inputs are done and gives a node of the same columns (or the node itself).
The order is PASSES; FINAL runs once after them. A published view that another view reads is a leaf
here (see `project`): its operators and traces are there anyway, and are shared as they are.

Why it matters: a join's trace holds the columns of its input, so a column that nobody reads, or a
row that a filter above drops, would be state kept for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce, wraps

from lockstep.sql.plans.columns import only
from lockstep.sql.plans.expressions import (
    all_of,
    common_part,
    compares_columns,
    conjuncts,
    is_trivial,
    occurrences,
    reads_clock,
    substitute,
    upper_bound,
)
from lockstep.sql.plans.join_rewrites import JOIN_PASSES, filter_into_join_condition
from lockstep.sql.plans.nodes import (
    Aggregate,
    Expression,
    Filter,
    Generate,
    Node,
    Output,
    Project,
    TimeWindow,
    UnionAll,
    Weigh,
    Window,
)
from lockstep.sql.plans.pruning import prune
from lockstep.sql.plans.sharing import cut_shared, fill_shared, read_columns, with_inputs

__all__ = ["FINAL", "PASSES", "Rewrite", "everywhere", "rewrite", "tidy"]

Rewrite = Callable[[Node], Node]
_ROUNDS = 200


def rewrite(node: Node) -> Node:
    """The plan after all rules; its columns are those of `node`.

    A relation with state that several others read is rewritten by itself: moved into each reader in
    another form, it would be kept several times.
    """
    top, shared = cut_shared(node)
    done: dict[str, Node] = {}
    pieces = [top]
    top = pieces[0] = _rewritten(top)
    for name, definition in reversed(shared.items()):
        wanted = read_columns(pieces, name)
        done[name] = _rewritten(only(definition, (c for c in definition.columns if c in wanted)))
        pieces.append(done[name])
    return tidy(fill_shared(top, done))


def tidy(node: Node) -> Node:
    """The plan without projections that do nothing, or that another could do as well."""
    return _to_end((merge_projections, drop_identity_projections), node)


def _rewritten(node: Node) -> Node:
    return _to_end(FINAL, _to_end((*PASSES, prune), node))


def past_filters(rule: Rewrite) -> Rewrite:
    """The rule also for a filter over others, with which it could do nothing: they stay above what it
    makes of the filter by itself."""

    @wraps(rule)
    def applied(node: Node) -> Node:
        if not (isinstance(node, Filter) and isinstance(node.input, Filter)):
            return rule(node)
        below: Node = node.input
        others = list[Expression]()
        while isinstance(below, Filter):
            others.append(below.predicate)
            below = below.input
        alone = Filter(below, node.predicate)
        found = rule(alone)
        if found == alone:
            return node
        for predicate in reversed(others):
            found = Filter(found, predicate)
        return found

    return applied


def _to_end(rules: Sequence[Rewrite], node: Node) -> Node:
    """The rules in turn, until none of them changes anything."""
    for _ in range(_ROUNDS):
        before = node
        for rule in rules:
            node = rule(node) if rule is prune else everywhere(rule, node)
        if node == before:
            return node
    raise AssertionError(f"the rewrites of a plan do not end: {node!r}")


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


def factor_filters(node: Node) -> Node:
    """Filter(x, (a AND b) OR (a AND c)) → Filter(Filter(x, a), b OR c): an equality that is in every
    part can become a key."""
    if isinstance(node, Filter):
        parts = common_part(node.predicate)
        if parts != (node.predicate,):
            return reduce(Filter, parts, node.input)
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
    """Filter(UnionAll(a, b)) → UnionAll(Filter(a), Filter(b)), where it means the same in a branch: its
    columns may have narrower types than those of the union."""
    if (
        isinstance(node, Filter)
        and isinstance(node.input, UnionAll)
        and compares_columns(node.predicate)
    ):
        return UnionAll(tuple(Filter(branch, node.predicate) for branch in node.input.branches))
    return node


def filter_below_time_window(node: Node) -> Node:
    """Filter(TimeWindow(x)) → TimeWindow(Filter(x)) where the window's column is not read."""
    if isinstance(node, Filter) and isinstance(node.input, TimeWindow):
        window = node.input
        if window.name not in node.predicate.references:
            return replace(window, input=Filter(window.input, node.predicate))
    return node


def filter_below_generate(node: Node) -> Node:
    """Filter(Generate(x)) → Generate(Filter(x)) where nothing that is generated is read."""
    if isinstance(node, Filter) and isinstance(node.input, Generate):
        made = node.input
        if not set(made.names) & set(node.predicate.references):
            return replace(made, input=Filter(made.input, node.predicate))
    return node


def filter_below_weigh(node: Node) -> Node:
    """Filter(Weigh(x)) → Weigh(Filter(x)): how often a row is there does not change what it is."""
    if isinstance(node, Filter) and isinstance(node.input, Weigh):
        return replace(node.input, input=Filter(node.input.input, node.predicate))
    return node


def filter_below_window(node: Node) -> Node:
    """Filter(Window(x)) → Window(Filter(x)) where only the partition is read."""
    if isinstance(node, Filter) and isinstance(node.input, Window):
        window, references = node.input, node.predicate.references
        if references and set(references) <= set(window.partition):
            return replace(window, input=Filter(window.input, node.predicate))
    return node


def limit_ranks(node: Node) -> Node:
    """Filter(Window(x), rank <= 3) → the same over a Window that gives no more than the first 3."""
    if isinstance(node, Filter) and isinstance(node.input, Window):
        window = node.input
        if len(window.calls) == 1 and window.calls[0].is_rank:
            rank = Expression.column(window.calls[0].name)
            bounds = (upper_bound(part, rank) for part in conjuncts(node.predicate))
            found = [bound for bound in (*bounds, window.first) if bound is not None]
            if found and min(found) > 0:
                return replace(node, input=replace(window, first=min(found)))
    return node


def filter_below_aggregate(node: Node) -> Node:
    """Filter(Aggregate(x)) → Aggregate(Filter(x)) where only keys are read.

    Not a condition on the clock, for which fewer groups than rows have to be remembered."""
    if (
        isinstance(node, Filter)
        and isinstance(node.input, Aggregate)
        and not reads_clock(node.predicate)
    ):
        aggregate, references = node.input, node.predicate.references
        if references and set(references) <= set(aggregate.keys):
            return replace(aggregate, input=Filter(aggregate.input, node.predicate))
    return node


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


def merge_filters(node: Node) -> Node:
    """Filter(Filter(x, a), b) → Filter(x, (a) AND (b)), in the order in which they were written."""
    if isinstance(node, Filter) and isinstance(node.input, Filter):
        inner = node.input
        return Filter(inner.input, all_of([*conjuncts(inner.predicate), node.predicate]))
    return node


PASSES: tuple[Rewrite, ...] = (
    split_filters,
    factor_filters,
    drop_true_filters,
    *map(
        past_filters,
        (
            filter_below_project,
            filter_below_union,
            filter_below_time_window,
            filter_below_generate,
            filter_below_weigh,
            filter_below_window,
            filter_below_aggregate,
            *JOIN_PASSES,
        ),
    ),
    flatten_unions,
    merge_projections,
    drop_identity_projections,
)
"""To a fixed point, with `pruning.prune` after each round."""

FINAL: tuple[Rewrite, ...] = (filter_into_join_condition, merge_filters, limit_ranks)
"""Once, when nothing moves any more."""
