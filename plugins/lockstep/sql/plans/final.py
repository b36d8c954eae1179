"""Groups of time windows that are over: the watermark has passed the window's end.

No row on time can change them, as what the watermark is after a step is what the rows of all later
steps are judged by. So they can be shown once, by a filter `end <= watermark` above the groups; and
where nothing stands between the groups and the source that gives rows later than they came (a join, a
condition on the clock), what they are made of can be forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lockstep.sql.names import fresh_name
from lockstep.sql.plans.columns import as_they_are, only
from lockstep.sql.plans.nodes import (
    Aggregate,
    Expression,
    Filter,
    Generate,
    Join,
    JoinKind,
    Node,
    Output,
    Project,
    Scan,
    Temporal,
    TimeWindow,
    UnionAll,
    Watermark,
    Weigh,
    Window,
)
from lockstep.sql.plans.same_groups import are_beside

__all__ = [
    "NotFinalError",
    "emit_final",
    "prompt_window_end",
    "times_of",
    "watermarks_of",
]


class NotFinalError(ValueError):
    """The plan has no groups that become final; the text says what it has."""


def emit_final(node: Node, views: Mapping[str, Node]) -> Node:
    """The plan with its groups of windows as they become final; `views` are the plans behind leaves.

    Raises NotFinalError where the groups are not by a window over the watermark's column.
    """
    match node:
        case Aggregate():
            return _final_groups(node, _end(node.keys, node.input, views))
        case Join() if are_beside(node):
            return _final_groups(node, _end(node.left_keys, node.left, views))
        case Project() | Filter() | Window() | Generate():
            return replace(node, input=emit_final(node.input, views))
        case UnionAll():
            return UnionAll(tuple(emit_final(branch, views) for branch in node.branches))
        case _:
            raise NotFinalError("no groups")


End = tuple[Expression, tuple[Node, ...]]
"""The end of a window, over a column, and the watermarks that have to pass it."""


def prompt_window_end(node: Node, column: str) -> End | None:
    """The end of the window that the column is of, where rows change only in steps in which rows of that
    window pass the watermarks about it."""
    found = _window_end(node, column)
    if found is None or not _is_prompt(node, column):
        return None
    form, window = found
    watermarks = watermarks_of(window.input, window.timestamp, {})
    return (_end_of(form, column), watermarks) if watermarks else None


def _end_of(form: str, column: str) -> Expression:
    return Expression(form.format(f"`{column}`"), (column,))


def times_of(node: Node) -> Mapping[str, tuple[Node, ...]]:
    """The columns of which watermarks say how late they can be, with these: rows with a value of such a
    column change only in steps in which rows with that value pass the watermarks."""
    found = {name: watermarks_of(node, name, {}) for name in node.columns}
    return {name: of for name, of in found.items() if of and _is_prompt(node, name)}


def _is_prompt(node: Node, column: str) -> bool:
    if _is_plain(node):
        return True
    match node:
        case Project():
            return _is_prompt(node.input, _value(node, column).references[0])
        case Aggregate():
            return column in node.keys and _is_prompt(node.input, column)
        case Window():
            return column in node.partition and _is_prompt(node.input, column)
        case Filter() | TimeWindow() | Generate() | Weigh():
            return column in node.input.columns and _is_prompt(node.input, column)
        case _:
            return False


def _is_plain(node: Node) -> bool:
    """True where rows come from a watermark in the very step in which they passed it."""
    match node:
        case Watermark():
            return True
        case Project() | Filter() | TimeWindow() | Generate() | Weigh() | UnionAll():
            return all(map(_is_plain, node.inputs))
        case _:
            return False


def _value(node: Project, column: str) -> Expression:
    [value] = [output.expression for output in node.outputs if output.name == column]
    return value


def _end(keys: tuple[str, ...], below: Node, views: Mapping[str, Node]) -> End:
    """The end of the window that a group by these keys is of, and the watermarks that are about it."""
    for key in keys:
        found = _window_end(below, key)
        if found is not None:
            break
    else:
        raise NotFinalError(f"groups by {', '.join(keys) or 'nothing'}")
    form, window = found
    watermarks = watermarks_of(window.input, window.timestamp, views)
    if not watermarks:
        raise NotFinalError(f"windows of {window.timestamp}, which no watermark is about")
    return _end_of(form, key), watermarks


def _final_groups(node: Node, end: End) -> Node:
    due, watermarks = end
    name = fresh_name("_due", node.columns)
    ended = Project(node, (*as_they_are(node.columns), Output(name, due)))
    now = Expression.column("now")
    return only(Temporal(ended, name, "<=", now, watermarks), node.columns)


def _window_end(node: Node, column: str) -> tuple[str, TimeWindow] | None:
    """How a column, written `{}`, gives the end of the time window that it comes from; None for one
    that comes from none."""
    match node:
        case TimeWindow() if column == node.name:
            return "{}.end", node
        case Project():
            value = _value(node, column)
            if len(value.references) != 1:
                return None
            found = _window_end(node.input, value.references[0])
            if found is None or value.is_column:
                return found
            form, window = found
            field = value.text.removeprefix(f"`{value.references[0]}`").lower()
            if form != "{}.end" or field not in (".start", ".end"):
                return None
            return ("{}" if field == ".end" else f"{{}} + INTERVAL {window.size}"), window
        case Aggregate():
            return _window_end(node.input, column) if column in node.keys else None
        case Join() if are_beside(node):
            return _window_end(node.left if column in node.left.columns else node.right, column)
        case Filter() | TimeWindow() | Generate() | Weigh() | Temporal() | Window():
            return _window_end(node.input, column) if column in node.input.columns else None
        case _:
            return None


def watermarks_of(node: Node, column: str, views: Mapping[str, Node]) -> tuple[Node, ...]:
    """The watermarks that are about the column, as it is in a source; none where a value of it may
    come from elsewhere. `views` are the plans behind leaves."""
    match node:
        case Watermark():
            return (node,) if column == node.column else ()
        case Scan():
            plan = views.get(node.source)
            return () if plan is None else watermarks_of(plan, column, views)
        case Project():
            value = _value(node, column)
            return watermarks_of(node.input, value.references[0], views) if value.is_column else ()
        case UnionAll():
            every = [watermarks_of(branch, column, views) for branch in node.branches]
            return tuple(dict.fromkeys(one for of in every for one in of)) if all(every) else ()
        case Join() if column in node.left.columns and node.kind is not JoinKind.FULL:
            return watermarks_of(node.left, column, views)
        case Join() if node.kind is JoinKind.INNER:
            return watermarks_of(node.right, column, views)
        case Aggregate():
            return watermarks_of(node.input, column, views) if column in node.keys else ()
        case Filter() | TimeWindow() | Generate() | Weigh() | Temporal() | Window():
            is_of_input = column in node.input.columns
            return watermarks_of(node.input, column, views) if is_of_input else ()
        case _:
            return ()
