"""Relations that group, limit and turn: groupBy, pivot, distinct, dropDuplicates, limit, unpivot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lockstep.frames.expressions import Expressions
from lockstep.frames.frame import AmbiguousColumn, Column, Frame, NoColumn, new_key, quoted
from lockstep.frames.functions import is_of_a_group
from lockstep.frames.literals import literal_text
from lockstep.frames.translation import Kind, Translator, made
from lockstep.sql.names import fresh_name, fresh_names

__all__ = ["GROUP_KINDS"]

# By the numbers of Aggregate.GroupType.
_GROUP_BY, _ROLLUP, _CUBE, _PIVOT, _SETS = range(1, 6)


def aggregate(translator: Translator, relation: Any) -> Frame:
    frame = translator.frame(relation.input)
    if relation.group_type == _PIVOT:
        return _pivoted(translator, relation, frame)
    tail = ""

    def make(over: Expressions) -> tuple[Sequence[Column], bool]:
        nonlocal tail
        keys = [made(over.sql(one)) for one in relation.grouping_expressions]
        aggregates = [made(over.sql(one)) for one in relation.aggregate_expressions]
        sets = [
            f"({', '.join(over.text(one) for one in group.grouping_set)})"
            for group in relation.grouping_sets
        ]
        tail = _group_by(relation.group_type, [one.text for one in keys], sets)
        if not tail and any(map(_calls_python, relation.aggregate_expressions)):
            # Spark calls no Python function where there are no rows, and has no row then.
            tail = "HAVING count(*) > 0"
        return [*keys, *aggregates], True

    frame, columns, _ = translator.select(frame, make)
    # a key of grouping sets may be null where the column is not: it is another column
    if relation.group_type != _GROUP_BY:
        columns = [replace(one, key=new_key(), computed=True) for one in columns]
    return replace(frame, columns=tuple(columns), tail=tail, closed=True, order=())


def _calls_python(expression: Any) -> bool:
    """Whether an aggregate, under a name or not, is a Python function."""
    called = expression.alias.expr if expression.HasField("alias") else expression
    return is_of_a_group(called.common_inline_user_defined_function)


def _group_by(kind: int, keys: Sequence[str], sets: Sequence[str]) -> str:
    if kind == _SETS:
        return f"GROUP BY GROUPING SETS ({', '.join(sets)})"
    if not keys:
        return ""
    words = {_ROLLUP: "ROLLUP ({})", _CUBE: "CUBE ({})"}.get(kind, "{}")
    return "GROUP BY " + words.format(", ".join(keys))


def _pivoted(translator: Translator, relation: Any, frame: Frame) -> Frame:
    """PIVOT groups by the columns that it does not name: its input gets exactly those, and copies of
    the columns that the aggregates read."""
    if not relation.pivot.values:
        raise translator.context.refuse(
            "pivot without values", 'name the values: .pivot("column", ["a", "b"])'
        )
    count = len(relation.grouping_expressions)

    def make(over: Expressions) -> tuple[Sequence[Column], bool]:
        keys = [made(over.sql(one)) for one in relation.grouping_expressions]
        by = replace(made(over.sql(relation.pivot.col)), key=new_key())
        over.used.clear()
        for one in relation.aggregate_expressions:
            over.sql(one)
        read = {one.key: one for one in over.used}
        return [*keys, by, *read.values()], False

    frame, columns, _ = translator.select(frame, make)
    names = fresh_names(["pivoted", *(one.name.lower() or "value" for one in columns)])[1:]
    alias, outer = translator.context.alias("q"), translator.context.alias("q")
    source = frame.query(columns, names)
    copies = {
        one.key: quoted(name) for one, name in list(zip(columns, names, strict=True))[count + 1 :]
    }
    inside = tuple(
        replace(one, text=copies[one.key], computed=False)
        for one in frame.columns
        if one.key in copies
    )
    over = translator.over(Frame("", inside, frame.nodes))
    calls = [over.sql(one) for one in relation.aggregate_expressions]
    listed = ", ".join(f"{one.text} AS {quoted(f'agg{at}')}" for at, one in enumerate(calls))
    found = [
        replace(one, text=f"{outer}.{quoted(name)}", computed=False)
        for one, name in zip(columns[:count], names[:count], strict=True)
    ]
    values = []
    for at, value in enumerate(relation.pivot.values):
        text = literal_text(value)
        values.append(f"{text} AS {quoted(f'v{at}')}")
        for place, call in enumerate(calls):
            inner = f"v{at}_agg{place}" if len(calls) > 1 else f"v{at}"
            shown = text.strip("'").rstrip("L")
            name = f"{shown}_{call.name}" if len(calls) > 1 else shown
            found.append(Column(name, f"{outer}.{quoted(inner)}", new_key()))
    pivot = f"PIVOT ({listed} FOR {quoted(names[count])} IN ({', '.join(values)}))"
    whole = f"(SELECT * FROM ({source}) AS {alias} {pivot}) AS {outer}"
    return Frame(whole, tuple(found), frame.nodes)


def deduplicated(translator: Translator, relation: Any) -> Frame:
    if relation.within_watermark:
        raise translator.context.refuse("dropDuplicatesWithinWatermark", "write dropDuplicates")
    frame = translator.readable(translator.frame(relation.input))
    keys = [_own(translator, frame, name) for name in relation.column_names]
    if relation.all_columns_as_keys or {one.key for one in keys} == {c.key for c in frame.shown}:
        return replace(
            frame.restore(frame.shown, hide=False), head="DISTINCT ", closed=True, order=()
        )
    frame = replace(translator.plain(frame), order=())
    keys = [_own(translator, frame, name) for name in relation.column_names]
    listed = ", ".join(one.text for one in keys)
    name = fresh_name("place", [one.name.lower() for one in frame.columns])
    # which row is kept is not said by Spark; here the least one is, as every order is total
    number = f"row_number() OVER (PARTITION BY {listed} ORDER BY {listed})"
    place = Column(name, number, new_key(), computed=True, shown=False)
    found = translator.derived(replace(frame, columns=(*frame.columns, place)), [place.key])
    return replace(
        found,
        columns=tuple(one for one in found.columns if one.key != place.key),
        where=tuple(f"{one.text} = 1" for one in found.columns if one.key == place.key),
    )


def _own(translator: Translator, frame: Frame, name: str) -> Column:
    try:
        return frame.column([name])[0]
    except (NoColumn, AmbiguousColumn):
        return translator.over(frame).column([name])[0]


def limited(translator: Translator, relation: Any) -> Frame:
    below = relation.input
    if below.WhichOneof("rel_type") == "offset":
        rows = f"LIMIT {relation.limit} OFFSET {below.offset.offset}"
        return _cut(translator, below.offset.input, rows)
    return _cut(translator, below, f"LIMIT {relation.limit}")


def from_offset(translator: Translator, relation: Any) -> Frame:
    below = relation.input
    if below.WhichOneof("rel_type") == "limit":
        left = max(0, below.limit.limit - relation.offset)
        return _cut(translator, below.limit.input, f"LIMIT {left} OFFSET {relation.offset}")
    return _cut(translator, below, f"OFFSET {relation.offset}")


def _cut(translator: Translator, below: Any, rows: str) -> Frame:
    frame = translator.readable(translator.frame(below))
    there = {one.key: one for one in frame.columns}
    keys = ", ".join(f"{there[one.key].text}{one.direction}" for one in frame.order)
    return replace(frame, tail=f"ORDER BY {keys} {rows}" if keys else rows, closed=True)


def unpivoted(translator: Translator, relation: Any) -> Frame:
    frame = translator.readable(translator.frame(relation.input))
    over = translator.over(frame)
    ids = [over.sql(one) for one in relation.ids]
    if relation.HasField("values"):
        values = [over.sql(one) for one in relation.values.values]
    else:
        chosen = {one.column.key for one in ids if one.column is not None}
        values = [over.sql_of(one) for one in frame.shown if one.key not in chosen]
    if any(one.column is None for one in [*ids, *values]):
        raise translator.context.refuse(
            "unpivot of something computed", "compute it with withColumn before"
        )
    kept = [made(one) for one in [*ids, *values]]
    names = fresh_names(one.name.lower() or "column" for one in kept)
    inner, outer = translator.context.alias("q"), translator.context.alias("q")
    listed = ", ".join(
        f"{quoted(name)} AS {quoted(one.name)}"
        for one, name in list(zip(kept, names, strict=True))[len(ids) :]
    )
    variable, value = relation.variable_column_name, relation.value_column_name
    unpivot = f"UNPIVOT INCLUDE NULLS ({quoted(value)} FOR {quoted(variable)} IN ({listed}))"
    columns = [
        *(
            replace(one, text=f"{outer}.{quoted(name)}", computed=False)
            for one, name in zip(kept[: len(ids)], names, strict=False)
        ),
        *(Column(name, f"{outer}.{quoted(name)}", new_key()) for name in (variable, value)),
    ]
    source = f"({frame.query(kept, names)}) AS {inner} {unpivot} AS {outer}"
    return Frame(source, tuple(columns), frame.nodes, single=False)


GROUP_KINDS: Mapping[str, Kind] = {
    "aggregate": aggregate,
    "deduplicate": deduplicated,
    "limit": limited,
    "offset": from_offset,
    "unpivot": unpivoted,
}
