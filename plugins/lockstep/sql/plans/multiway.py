"""Trees of inner joins as one operator each, and the order in which a change meets the other inputs.

With S the rows before an interval and Δ its change, the change of a ⋈ b ⋈ c is
Δa ⋈ S_b ⋈ S_c + (S_a + Δa) ⋈ Δb ⋈ S_c + (S_a + Δa) ⋈ (S_b + Δb) ⋈ Δc: no result of a part of the tree is
ever looked up, so none is remembered, as it would be by joins of two inputs each. (Materialize calls
this a delta join.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lockstep.sql.names import fresh_names
from lockstep.sql.plans.columns import as_they_are, renamed
from lockstep.sql.plans.expressions import conjuncts, substitute
from lockstep.sql.plans.nodes import (
    Equality,
    Expression,
    Filter,
    Join,
    JoinKind,
    MultiwayJoin,
    Node,
    Output,
    Project,
)
from lockstep.sql.plans.sharing import with_inputs

__all__ = ["Hop", "Routes", "equal_columns", "join_trees", "path", "routes"]


def join_trees(roots: Sequence[Node]) -> tuple[Node, ...]:
    """The plans with multiway joins in the place of joins.

    A join that more than one node reads stays a relation of its own, so that its change is computed
    once; and so does one behind an expression over several inputs that is equated above.
    """
    merging = _Merging()
    for root in roots:
        merging.count(root)
    return tuple(map(merging.visit, roots))


@dataclass(frozen=True)
class _Tree:
    """Inner joins of inputs, and what the columns of the tree are over those of the inputs."""

    inputs: tuple[Node, ...]
    outputs: Mapping[str, Expression]
    equalities: tuple[Equality, ...] = ()
    conditions: tuple[Expression, ...] = ()

    @property
    def columns(self) -> list[str]:
        """The columns of all inputs."""
        return [name for one in self.inputs for name in one.columns]


@dataclass
class _Merging:
    readers: dict[Node, int] = field(default_factory=dict)
    _done: dict[Node, Node] = field(default_factory=dict)

    def count(self, node: Node) -> None:
        """Count how many nodes read each node; a root is read by its view."""
        self.readers[node] = self.readers.get(node, 0) + 1
        if self.readers[node] == 1:
            for below in node.inputs:
                self.count(below)

    def visit(self, node: Node) -> Node:
        if node not in self._done:
            tree = self._tree(node)
            if tree is None:
                made = with_inputs(node, tuple(map(self.visit, node.inputs)))
            else:
                made = _joined(tree, node.columns)
            self._done[node] = made
        return self._done[node]

    def _tree(self, node: Node) -> _Tree | None:
        """The node as a tree; None where it is no join, nor a projection or filter of one."""
        match node:
            case Join():
                assert node.kind is JoinKind.INNER, "other kinds are written out before"
                return self._of_join(node)
            case Project() if (below := self._own_tree(node.input)) is not None:
                outputs = {o.name: substitute(o.expression, below.outputs) for o in node.outputs}
                found = {name: one for name, one in outputs.items() if one is not None}
                return replace(below, outputs=found) if len(found) == len(outputs) else None
            case Filter() if (below := self._own_tree(node.input)) is not None:
                predicate = substitute(node.predicate, below.outputs)
                return None if predicate is None else _with_condition(below, predicate)
            case _:
                return None

    def _own_tree(self, node: Node) -> _Tree | None:
        """The tree of a node that nobody else reads."""
        return self._tree(node) if self.readers[node] == 1 else None

    def _of_join(self, node: Join) -> _Tree:
        left = self._side(node.left, node.left_keys)
        right = _apart(self._side(node.right, node.right_keys), left.columns)
        tree = _Tree(
            (*left.inputs, *right.inputs),
            {**left.outputs, **right.outputs},
            (*left.equalities, *right.equalities),
            (*left.conditions, *right.conditions),
        )
        for a, b, null_safe in node.keys:
            names = []
            for key in (a, b):
                tree, name = _as_column(tree, tree.outputs[key])
                names.append(name)
            equality = Equality(names[0], names[1], null_safe)
            tree = replace(tree, equalities=(*tree.equalities, equality))
        if node.condition is None:
            return tree
        condition = substitute(node.condition, tree.outputs)
        if condition is not None:
            return _with_condition(tree, condition)
        # A lambda in it would capture a column of the inputs: the sides keep their own names.
        sides = [_leaf(self.visit(side)) for side in (node.left, node.right)]
        equalities = tuple(Equality(*key) for key in node.keys)
        outputs = {**sides[0].outputs, **sides[1].outputs}
        inputs = (*sides[0].inputs, *sides[1].inputs)
        return _with_condition(_Tree(inputs, outputs, equalities), node.condition)

    def _side(self, node: Node, keys: Iterable[str]) -> _Tree:
        """A side of a join, whose keys are columns of one input each."""
        tree = self._own_tree(node)
        if tree is None or not all(_is_of_one(tree, tree.outputs[key]) for key in keys):
            return _leaf(self.visit(node))
        return tree


def _leaf(node: Node) -> _Tree:
    return _Tree((node,), {name: Expression.column(name) for name in node.columns})


def _joined(tree: _Tree, columns: tuple[str, ...]) -> Node:
    node = MultiwayJoin(tree.inputs, tree.equalities, tree.conditions)
    outputs = tuple(Output(name, tree.outputs[name]) for name in columns)
    return node if outputs == as_they_are(node.columns) else Project(node, outputs)


def _with_condition(tree: _Tree, condition: Expression) -> _Tree:
    return replace(tree, conditions=(*tree.conditions, *conjuncts(condition)))


def _is_of_one(tree: _Tree, expression: Expression) -> bool:
    """True where the expression reads columns of one input, and at least one."""
    read = set(expression.references)
    return bool(read) and any(read <= set(one.columns) for one in tree.inputs)


def _as_column(tree: _Tree, expression: Expression) -> tuple[_Tree, str]:
    """The tree with an input that has the expression as a column, and the column's name."""
    if expression.is_column:
        return tree, expression.references[0]
    (name,) = fresh_names(["_equated"], tree.columns)
    read = set(expression.references)
    inputs = list(tree.inputs)
    place = next(n for n, one in enumerate(inputs) if read <= set(one.columns))
    outputs = (*as_they_are(inputs[place].columns), Output(name, expression))
    inputs[place] = Project(inputs[place], outputs)
    return replace(tree, inputs=tuple(inputs)), name


def _apart(tree: _Tree, taken: Iterable[str]) -> _Tree:
    """The tree with other names for those columns of its inputs that are taken."""
    taken = set(taken)
    mine = tree.columns
    clashing = [name for name in mine if name in taken]
    if not clashing:
        return tree
    new = dict(zip(clashing, fresh_names(clashing, [*taken, *mine]), strict=True))
    values = {name: Expression.column(new.get(name, name)) for name in mine}

    def moved(expression: Expression) -> Expression:
        found = substitute(expression, values)
        assert found is not None, "a fresh name is not the parameter of a lambda"
        return found

    return _Tree(
        tuple(
            renamed(one, new) if not new.keys().isdisjoint(one.columns) else one
            for one in tree.inputs
        ),
        {name: moved(value) for name, value in tree.outputs.items()},
        tuple(
            replace(e, left=new.get(e.left, e.left), right=new.get(e.right, e.right))
            for e in tree.equalities
        ),
        tuple(map(moved, tree.conditions)),
    )


@dataclass(frozen=True)
class Hop:
    """The next input that joined rows meet: by these equalities, the joined column first, and under
    these conditions, which could not be asked before."""

    input: int
    equalities: tuple[Equality, ...]
    conditions: tuple[Expression, ...]


@dataclass(frozen=True)
class Routes:
    """How changed inputs meet all others: first one another, each on a way of its own (`meetings`, by
    input) that ends at the same inputs; and from there on all of them the same way (`onward`)."""

    meetings: Mapping[int, tuple[Hop, ...]]
    onward: tuple[Hop, ...]


def routes(node: MultiwayJoin, changed: Sequence[int]) -> Routes:
    """The ways of some inputs. What has not changed is met once, by all that has, where it need not be
    passed on the way from one change to another."""
    first = _order(node, changed[0], changed)
    core = first[: 1 + max(map(first.index, changed))]
    meetings = {place: _hops(node, _order(node, place, changed, core)) for place in changed}
    return Routes(meetings, _hops(node, first)[len(core) :])


def path(node: MultiwayJoin, start: int) -> tuple[Hop, ...]:
    """All inputs in an order in which rows of the input `start` can meet them; that is the first hop."""
    return _hops(node, _order(node, start))


def _order(
    node: MultiwayJoin,
    start: int,
    preferred: Collection[int] = (),
    among: Collection[int] | None = None,
) -> list[int]:
    """An input that is equated with one that is joined comes before one that is not, what is preferred
    before what is not, and of several the one that stands nearest to it in the query: people write
    tables beside those that they belong to, and two that are only equated by way of a third
    (`c.nation = s.nation`) are far apart.
    """
    joined = [start]
    rest = {*(range(len(node.inputs)) if among is None else among)} - {start}
    while rest:
        place = min(rest, key=lambda one: _distance(node, joined, one, preferred))
        joined.append(place)
        rest.remove(place)
    return joined


def _hops(node: MultiwayJoin, order: Sequence[int]) -> tuple[Hop, ...]:
    return tuple(
        Hop(place, _equalities(node, order[:n], place), _conditions(node, order[:n], place))
        for n, place in enumerate(order)
    )


def _distance(
    node: MultiwayJoin, joined: Sequence[int], place: int, preferred: Collection[int]
) -> tuple[bool, bool, int, int]:
    near = [one for one in joined if _equalities(node, [one], place)]
    steps = min(abs(one - place) for one in near or joined)
    return not near, place not in preferred, steps, place


def _equalities(node: MultiwayJoin, joined: Sequence[int], place: int) -> tuple[Equality, ...]:
    """The equalities of a column that is joined with one of an input."""
    theirs = set(node.inputs[place].columns)
    ours = {name for one in joined for name in node.inputs[one].columns}
    both = (pair for e in node.equalities for pair in (e, e.mirrored))
    return tuple(e for e in both if e.left in ours and e.right in theirs)


def _conditions(node: MultiwayJoin, joined: Sequence[int], place: int) -> tuple[Expression, ...]:
    """The conditions that can be asked as soon as this input is joined, and not before."""
    before = {name for one in joined for name in node.inputs[one].columns}
    now = before | set(node.inputs[place].columns)
    return tuple(
        one
        for one in node.conditions
        if now.issuperset(one.references) and not (joined and before.issuperset(one.references))
    )


def equal_columns(node: MultiwayJoin) -> Mapping[str, set[str]]:
    """Each equated column with all that equal it, by way of others, too."""
    equal: dict[str, set[str]] = {}
    for equality in node.equalities:
        both = equal.get(equality.left, {equality.left}) | equal.get(
            equality.right, {equality.right}
        )
        for name in both:
            equal[name] = both
    return equal
