"""WITH RECURSIVE as a node: the plan of the step, cut at what does not read the level before.

Every operator in it is one that the circuit has anyway, whose rows carry the level that they are of:
groups, windows and joins of a level with itself have it as one more key. What stands beside them is
maintained as any other relation.
"""

from __future__ import annotations

from dataclasses import replace

from lockstep.sql.names import fresh_name
from lockstep.sql.plans.columns import as_they_are, only, renamed
from lockstep.sql.plans.expansion import expand
from lockstep.sql.plans.expressions import reads_clock
from lockstep.sql.plans.loops import leaf_beside, sources_read
from lockstep.sql.plans.nodes import (
    BEFORE,
    LEVEL,
    Aggregate,
    Expression,
    Filter,
    Generate,
    Join,
    JoinKind,
    MultiwayJoin,
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
from lockstep.sql.plans.same_groups import are_beside
from lockstep.sql.plans.sharing import fill_shared, with_inputs

__all__ = ["StepError", "is_linear", "level_of", "recursive"]


class StepError(Exception):
    """The step cannot be taken level by level, or has no end; `instead` says what to write."""

    def __init__(self, what: str, instead: str) -> None:
        self.what, self.instead = what, instead
        super().__init__(what)


def recursive(anchor: Node, step: Node, leaf: str, limit: int, name: str) -> Recursive:
    """The relation of an anchor and a step, plans of the same columns; in the step, the level before is
    a Scan of `leaf`. Raises StepError."""
    if not _reads(step, leaf):
        raise StepError("a recursion whose step does not read it", "leave RECURSIVE out")
    cut = _Cut(leaf)
    body = cut.at(rewrite(step))
    _check_joins(body)
    _check_totals(body)
    # What is written out here may read a relation beside in another form (its distinct keys), which is
    # then a relation beside itself; each of them is rewritten with the rest of the view.
    expanded = fill_shared(expand(body), cut.beside)
    cut = _Cut(BEFORE)
    body = cut.at(tidy(expanded))
    following = Output(LEVEL, Expression(f"`{LEVEL}` + 1L", (LEVEL,)))
    body = Project(_leveled(body), (*as_they_are(body.columns), following))
    return Recursive(anchor, tuple(cut.beside.values()), tidy(body), limit, name)


def _reads(node: Node, leaf: str) -> bool:
    return leaf in sources_read(node)


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
    if isinstance(node, Join) and node.kind in (JoinKind.LEFT, JoinKind.FULL):
        left, right = (_reads(side, BEFORE) for side in node.inputs)
        if (right and not left) or (left and not right and node.kind is JoinKind.FULL):
            raise _without_end("the side of an outer join that is shown in any case")
    for below in node.inputs:
        _check_joins(below)


def _check_totals(node: Node) -> None:
    """A step gives no more than what it has of a whole level where it filters that, or joins it."""
    is_beside = isinstance(node, Join) and are_beside(node)
    if is_beside or isinstance(node, Project | Generate | TimeWindow | UnionAll):
        for below in node.inputs:
            _check_totals(below)
    if isinstance(node, Aggregate) and not node.keys:
        raise StepError(
            "a row for each level, whatever that has, and so no end of WITH RECURSIVE (an aggregate "
            "without GROUP BY),",
            "write HAVING, or aggregate in what reads the recursion",
        )


def _without_end(which: str) -> StepError:
    return StepError(
        "what a step of WITH RECURSIVE gives whatever the level before has, and so has no end "
        f"({which}),",
        "move these rows to the anchor, or use JOIN",
    )


def _leveled(node: Node, is_compared: bool = False) -> Node:
    """The plan with the column LEVEL in every relation that reads the level before; `is_compared` says
    whether rows are compared above it, or others are taken from them, so that they may have an end."""
    match node:
        case Scan():
            return replace(node, columns=(*node.columns, LEVEL))
        case Project():
            level = Output(LEVEL, Expression.column(LEVEL))
            return Project(_leveled(node.input, is_compared), (*node.outputs, level))
        case Filter(predicate=Expression() as predicate) if reads_clock(predicate):
            raise _on_the_clock()
        case Filter() | Generate() | TimeWindow() | Weigh():
            return replace(node, input=_leveled(node.input, is_compared))
        case UnionAll():
            is_less = any(isinstance(branch, Weigh) for branch in node.branches)
            return UnionAll(tuple(_branch(one, is_compared or is_less) for one in node.branches))
        case Join():
            return _leveled_join(node, is_compared)
        case Aggregate():
            # how many there are of a row can be asked of groups only
            below = _leveled(node.input, is_compared or bool(node.aggregates))
            groups = replace(node, input=below, keys=(*node.keys, LEVEL))
            return groups if node.keys else _with_empty(groups)
        case Window():
            partition = (*node.partition, LEVEL)
            return replace(node, input=_leveled(node.input, True), partition=partition)
        case _:
            raise StepError(
                "a recursion inside the step of another one", "write it as a view of its own"
            )


def _on_the_clock() -> StepError:
    return StepError(
        "a condition on the clock on the rows of a level in WITH RECURSIVE",
        "write it in the anchor, in a relation that the step joins, or in what reads the recursion",
    )


def _branch(node: Node, is_compared: bool) -> Node:
    """A branch with the column LEVEL; one that does not read the level before is there for every level
    that has rows."""
    if _reads(node, BEFORE):
        return only(_leveled(node, is_compared), (*node.columns, LEVEL))
    if not is_compared:
        raise _without_end("a part of UNION ALL that does not read it")
    return Join(node, _levels(), (), ())


def _levels() -> Node:
    """The levels that have rows: of others there is nothing to make."""
    return Aggregate(Scan(BEFORE, (LEVEL,)), (LEVEL,), ())


def _with_empty(groups: Aggregate) -> Node:
    """Aggregates of whole levels, with those of levels of which no row has come so far."""
    without = UnionAll((_levels(), Weigh(only(groups, (LEVEL,)), Expression("-1"))))
    values = (Output(call.name, Expression(call.over_nothing)) for call in groups.aggregates)
    return UnionAll((groups, Project(without, (*as_they_are((LEVEL,)), *values))))


def _leveled_join(node: Join, is_compared: bool) -> Node:
    """Rows of one level meet."""
    if node.condition is not None and reads_clock(node.condition):
        raise _on_the_clock()
    left, right = (
        _leveled(side, is_compared) if _reads(side, BEFORE) else side for side in node.inputs
    )
    if not (LEVEL in left.columns and LEVEL in right.columns):
        return replace(node, left=left, right=right)
    level = fresh_name(LEVEL, {*left.columns, *right.columns})
    both = replace(
        node,
        left=left,
        right=renamed(right, {LEVEL: level}),
        left_keys=(*node.left_keys, LEVEL),
        right_keys=(*node.right_keys, level),
        null_safe=(*node.null_safe, False),
    )
    return only(both, (*node.columns, LEVEL))


def is_linear(step: Node) -> bool:
    """Whether the step makes of a sum of levels the sum of what it makes of each: it reads them once,
    row by row."""
    if isinstance(step, Aggregate | Window):
        return False
    is_join = isinstance(step, Join | MultiwayJoin)
    if is_join and sum(_reads(side, BEFORE) for side in step.inputs) > 1:
        return False
    return all(map(is_linear, step.inputs))


def level_of(node: Node) -> str | None:
    """The column of a node in a step that says of which level a row is; None where it is of none."""
    if isinstance(node, Scan):
        return LEVEL if node.source == BEFORE else None
    below = [name for name in map(level_of, node.inputs) if name is not None]
    if not below or not isinstance(node, Project):
        return below[0] if below else None
    is_level = (o.name for o in node.outputs if o.expression == Expression.column(below[0]))
    return next(is_level, None)
