"""WITH RECURSIVE as a node: the plan of the step, cut at what does not read the level before.

A step that is linear in the level before (it reads it once, its rows one by one) makes of a change of
a level the change of the next one. So every operator in it is one that the circuit has anyway, whose
rows carry the level they are of; what stands beside them is maintained as any other relation.
"""

from __future__ import annotations

from dataclasses import replace

from lockstep.sql.plans.columns import as_they_are, only
from lockstep.sql.plans.expansion import expand
from lockstep.sql.plans.expressions import reads_clock
from lockstep.sql.plans.loops import leaf_beside
from lockstep.sql.plans.nodes import (
    BEFORE,
    LEVEL,
    Aggregate,
    Expression,
    Filter,
    Generate,
    Join,
    JoinKind,
    Node,
    Output,
    Project,
    Recursive,
    Scan,
    TimeWindow,
    UnionAll,
    Weigh,
    Window,
)
from lockstep.sql.plans.rewrites import rewrite, tidy
from lockstep.sql.plans.sharing import fill_shared, with_inputs

__all__ = ["NotLinearError", "recursive"]


class NotLinearError(Exception):
    """The step does with the level before what is not done row by row; `instead` says what to write."""

    def __init__(self, what: str, instead: str) -> None:
        self.what, self.instead = what, instead
        super().__init__(what)


def recursive(anchor: Node, step: Node, leaf: str, limit: int, name: str) -> Recursive:
    """The relation of an anchor and a step, plans of the same columns; in the step, the level before is
    a Scan of `leaf`. Raises NotLinearError."""
    if not _reads(step, leaf):
        raise NotLinearError("a recursion whose step does not read it", "leave RECURSIVE out")
    cut = _Cut(leaf)
    body = cut.at(rewrite(step))
    _check_joins(body)
    # What is written out here may read a relation beside in another form (its distinct keys), which is
    # then a relation beside itself; each of them is rewritten with the rest of the view.
    expanded = fill_shared(expand(body), cut.beside)
    cut = _Cut(BEFORE)
    body = cut.at(tidy(expanded))
    following = Output(LEVEL, Expression(f"`{LEVEL}` + 1L", (LEVEL,)))
    body = Project(_leveled(body), (*as_they_are(body.columns), following))
    return Recursive(anchor, tuple(cut.beside.values()), tidy(body), limit, name)


def _reads(node: Node, leaf: str) -> bool:
    if isinstance(node, Scan):
        return node.source == leaf
    return any(_reads(below, leaf) for below in node.inputs)


class _Cut:
    """Puts leaves in the place of the greatest parts of a plan that do not read `leaf`."""

    def __init__(self, leaf: str) -> None:
        self._leaf = leaf
        self.beside: dict[str, Node] = {}

    def at(self, node: Node) -> Node:
        if isinstance(node, Scan) and node.source == self._leaf:
            return replace(node, source=BEFORE)
        if _reads(node, self._leaf):
            return with_inputs(node, tuple(map(self.at, node.inputs)))
        names = {known: name for name, known in self.beside.items()}
        name = names.get(node, leaf_beside(len(names)))
        self.beside[name] = node
        return Scan(name, node.columns)


def _check_joins(node: Node) -> None:
    if isinstance(node, Join) and node.kind is not JoinKind.INNER:
        if node.kind is JoinKind.FULL or _reads(node.right, BEFORE):
            raise NotLinearError(
                "a recursion on the side of an outer, semi or anti join that may be missing",
                "use JOIN, or put the recursion on the other side",
            )
        if node.condition is not None and _reads(node.left, BEFORE):
            raise NotLinearError(
                "an outer, semi or anti join of a recursion with more than equalities of both sides",
                "use JOIN, or put what is compared into keys",
            )
    for below in node.inputs:
        _check_joins(below)


def _leveled(node: Node) -> Node:
    """The plan with the column LEVEL in every relation that reads the level before."""
    match node:
        case Scan():
            return replace(node, columns=(*node.columns, LEVEL))
        case Project():
            level = Output(LEVEL, Expression.column(LEVEL))
            return Project(_leveled(node.input), (*node.outputs, level))
        case Filter(predicate=Expression() as predicate) if reads_clock(predicate):
            raise _on_the_clock()
        case Filter() | Generate() | TimeWindow() | Weigh():
            return replace(node, input=_leveled(node.input))
        case UnionAll():
            return UnionAll(tuple(_branch(branch) for branch in node.branches))
        case Join():
            return _leveled_join(node)
        case Aggregate():
            raise NotLinearError(
                "an aggregate, or DISTINCT, of the rows of a level in WITH RECURSIVE",
                "do it in a query that reads the recursion, or in one that it reads",
            )
        case Window():
            raise NotLinearError(
                "a window function, or LIMIT, over the rows of a level in WITH RECURSIVE",
                "apply it in a query that reads the recursion",
            )
        case _:
            raise NotLinearError(
                "a recursion inside the step of another one", "write it as a view of its own"
            )


def _on_the_clock() -> NotLinearError:
    return NotLinearError(
        "a condition on the clock on the rows of a level in WITH RECURSIVE",
        "write it in the anchor, in a relation that the step joins, or in what reads the recursion",
    )


def _branch(node: Node) -> Node:
    if not _reads(node, BEFORE):
        raise NotLinearError(
            "a part of a step of WITH RECURSIVE that does not read it, and so has no end,",
            "move that part of the UNION ALL to the anchor",
        )
    return only(_leveled(node), (*node.columns, LEVEL))


def _leveled_join(node: Join) -> Join:
    reads = [_reads(side, BEFORE) for side in node.inputs]
    if all(reads):
        raise NotLinearError(
            "a step of WITH RECURSIVE that reads it more than once",
            "read it once, and join with the tables that it is made of",
        )
    if node.condition is not None and reads_clock(node.condition):
        raise _on_the_clock()
    left, right = (
        _leveled(side) if here else side for side, here in zip(node.inputs, reads, strict=True)
    )
    return replace(node, left=left, right=right)
