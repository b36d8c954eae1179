"""Relations of two inputs: joins, lateral joins, unions, intersections and differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lockstep.frames.frame import AmbiguousColumn, Column, Frame, NoColumn, new_key, quoted
from lockstep.frames.translation import Kind, Translator
from lockstep.sql.names import fresh_names

__all__ = ["JOIN_KINDS"]

# By the numbers of Join.JoinType.
_INNER, _FULL, _LEFT, _RIGHT, _ANTI, _SEMI, _CROSS = range(1, 8)
_WORDS = {
    _INNER: "JOIN",
    _FULL: "FULL JOIN",
    _LEFT: "LEFT JOIN",
    _RIGHT: "RIGHT JOIN",
    _ANTI: "LEFT ANTI JOIN",
    _SEMI: "LEFT SEMI JOIN",
    _CROSS: "CROSS JOIN",
}


def join(translator: Translator, relation: Any) -> Frame:
    left = _left(translator, translator.frame(relation.left))
    right = left.beside(_right(translator, translator.frame(relation.right)))
    both = _both(left, right)
    pairs = [_pair(translator, left, right, name) for name in relation.using_columns]
    condition = " AND ".join(f"{a.text} = {b.text}" for a, b in pairs)
    if relation.HasField("join_condition"):
        condition = translator.over(both).text(relation.join_condition)
    source = _joined(left, right.source, relation.join_type, condition)
    if relation.join_type in (_SEMI, _ANTI):
        return replace(left, source=source, single=False)
    found = replace(both, source=source)
    return _merged(found, pairs, relation.join_type) if pairs else found


def _left(translator: Translator, frame: Frame) -> Frame:
    """A frame to the right of whose source a join can be written."""
    open_ = not (frame.closed or frame.computes or frame.where)
    return replace(frame if open_ else translator.derived(frame), order=())


def _right(translator: Translator, frame: Frame) -> Frame:
    open_ = frame.single and not (frame.closed or frame.computes or frame.where)
    return replace(frame if open_ else translator.derived(frame), order=())


def _both(left: Frame, right: Frame) -> Frame:
    nodes = {
        plan_id: (*left.nodes.get(plan_id, ()), *right.nodes.get(plan_id, ()))
        for plan_id in {**left.nodes, **right.nodes}
    }
    return Frame("", (*left.columns, *right.columns), nodes, single=False)


def _joined(left: Frame, right: str, kind: int, condition: str) -> str:
    if not condition and kind in (_INNER, _CROSS):
        return f"{left.source} CROSS JOIN {right}"
    words = _WORDS[_INNER if kind == _CROSS else kind]
    return f"{left.source} {words} {right} ON {condition or 'true'}"


def _pair(translator: Translator, left: Frame, right: Frame, name: str) -> tuple[Column, Column]:
    """The two columns of one name of a join by names."""
    sides = []
    for side, frame in (("left", left), ("right", right)):
        try:
            sides.append(frame.column([name])[0])
        except (NoColumn, AmbiguousColumn):
            raise translator.context.error(
                f"the {side} side of a join by {name!r} has no such column, or more than one",
                expected=f"one of {', '.join(one.name for one in frame.shown)}",
                found=name,
            ) from None
    return sides[0], sides[1]


def _merged(frame: Frame, pairs: Sequence[tuple[Column, Column]], kind: int) -> Frame:
    """The columns of a join by names: the keys once and first. Those of the other side are hidden."""
    keys: list[Column] = []
    for left, right in pairs:
        if kind == _FULL:
            either = f"coalesce({left.text}, {right.text})"
            keys.append(Column(left.name, either, new_key(), left.type, computed=True))
        else:
            keys.append(right if kind == _RIGHT else left)
    merged = {one.key for pair in pairs for one in pair}
    return frame.restore((*keys, *(one for one in frame.shown if one.key not in merged)))


def lateral_join(translator: Translator, relation: Any) -> Frame:
    left = _left(translator, translator.frame(relation.left))
    inner = replace(translator, outer=translator.over(left))
    right = left.beside(translator.derived(inner.frame(relation.right)))
    both = _both(left, right)
    condition = ""
    if relation.HasField("join_condition"):
        condition = translator.over(both).text(relation.join_condition)
    lateral = f"LATERAL {right.source}"
    words = "LEFT JOIN" if relation.join_type == _LEFT else "JOIN"
    source = f"{left.source} {words} {lateral}{f' ON {condition}' if condition else ''}"
    if relation.join_type == _LEFT and not condition:
        source += " ON true"
    return replace(both, source=source)


# ── sets ────────────────────────────────────────────────────────────────────────────────────────

_INTERSECT, _UNION, _EXCEPT = range(1, 4)


def set_operation(translator: Translator, relation: Any) -> Frame:
    left, right = (translator.frame(one) for one in (relation.left_input, relation.right_input))
    first, second = list(left.shown), list(right.shown)
    if relation.by_name:
        first, second = _by_name(translator, first, second, relation.allow_missing_columns)
    if len(first) != len(second):
        raise translator.context.error(
            "the two sides differ in their number of columns",
            expected=f"{len(first)} columns ({', '.join(one.name for one in first)})",
            found=f"{len(second)} ({', '.join(one.name for one in second)})",
        )
    names = fresh_names(one.name.lower().lstrip("_") or "column" for one in first)
    word = {_INTERSECT: "INTERSECT", _UNION: "UNION", _EXCEPT: "EXCEPT"}[relation.set_op_type]
    word += " ALL" if relation.is_all else ""
    # a chain of unions is one union
    goes_on = word == "UNION ALL" and left.branches and first == list(left.shown)
    before = left.branches if goes_on else (_branch(left, first, names),)
    branches = (*before, _branch(right, second, names))
    alias = translator.context.alias("q")
    columns = tuple(
        replace(
            one,
            text=f"{alias}.{quoted(name)}",
            type=one.type if one.type == other.type else "",
            computed=False,
        )
        for one, other, name in zip(first, second, names, strict=True)
    )
    return Frame(
        f"({f' {word} '.join(branches)}) AS {alias}",
        columns,
        left.nodes,
        branches=branches if word == "UNION ALL" else (),
    )


def _branch(frame: Frame, columns: Sequence[Column], names: Sequence[str]) -> str:
    """One side of a union: an order or a limit behind it would be the whole union's."""
    text = frame.query(columns, names)
    return f"({text})" if frame.tail and not frame.tail.startswith("GROUP") else text


def _by_name(
    translator: Translator, left: list[Column], right: list[Column], missing: bool
) -> tuple[list[Column], list[Column]]:
    """The right columns in the left's order; of one that a side has not, nulls where that may be."""
    theirs = {one.name.lower(): one for one in right}
    mine = {one.name.lower() for one in left}
    beyond = [one for one in right if one.name.lower() not in mine]
    absent = [one for one in left if one.name.lower() not in theirs]
    if (beyond or absent) and not missing:
        raise translator.context.error(
            "the two sides of unionByName differ in their columns",
            expected=", ".join(one.name for one in left),
            found=", ".join(one.name for one in right),
            next_step="write unionByName(other, allowMissingColumns=True) for nulls there",
        )

    def null(one: Column) -> Column:
        return replace(one, text="NULL", key=new_key(), computed=True, qualifier=())

    first = [*left, *(null(one) for one in beyond)]
    second = [theirs.get(one.name.lower()) or null(one) for one in left]
    return first, [*second, *beyond]


JOIN_KINDS: Mapping[str, Kind] = {
    "join": join,
    "lateral_join": lateral_join,
    "set_op": set_operation,
}
