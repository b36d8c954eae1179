"""Relations that choose and compute columns: select, withColumn, drop, renamed, alias, filter, sort."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lockstep.frames.expressions import Expressions, Sql, direction_of, name_parts
from lockstep.frames.frame import AmbiguousColumn, Column, Frame, NoColumn, SortKey, new_key
from lockstep.frames.operators import Level
from lockstep.frames.translation import Kind, Translator, made

__all__ = ["COLUMN_KINDS"]

_STAR = re.compile(r"\s*(?:([^*]+)\.)?\*\s*")


def project(translator: Translator, relation: Any) -> Frame:
    def make(over: Expressions) -> tuple[Sequence[Column], bool]:
        found = [_listed(over, one) for one in relation.expressions]
        return [column for columns, _ in found for column in columns], any(c for _, c in found)

    return translator.project(translator.frame(relation.input), make)


def _listed(over: Expressions, expression: Any) -> tuple[Sequence[Column], bool]:
    """The columns of one item of a SELECT list; whether it makes or takes rows."""
    star = _star(over, expression)
    if star is not None:
        return star, False
    sql = over.sql(expression)
    if len(sql.names) == 1:
        return [made(sql)], sql.aggregates or sql.generates
    return _generated(over, sql), True


def _generated(over: Expressions, sql: Sql) -> Sequence[Column]:
    """The columns of a function that makes several: the first has its text."""
    if not sql.names:
        raise over.context.refuse(
            "a function whose columns have no names", 'name them: .alias("key", "value")'
        )
    texts = (sql.text, *("" for _ in sql.names[1:]))
    return [
        Column(name, text, new_key(), computed=True)
        for name, text in zip(sql.names, texts, strict=True)
    ]


def _star(over: Expressions, expression: Any) -> Sequence[Column] | None:
    """The columns that `*`, `x.*` or df["*"] mean; None for anything else."""
    kind = expression.WhichOneof("expr_type")
    if kind == "expression_string":
        match = _STAR.fullmatch(expression.expression_string.expression)
        if match is None:
            return None
        qualifier = name_parts(match.group(1) or "")
    elif kind == "unresolved_star":
        star = expression.unresolved_star
        if star.HasField("plan_id"):
            own = {key for one in over.frame.nodes.get(star.plan_id, ()) for _, key in one.columns}
            return [one for one in over.frame.shown if one.key in own]
        qualifier = name_parts(star.unparsed_target.removesuffix(".*"))
    else:
        return None
    if not qualifier:
        return over.frame.shown
    wanted = tuple(part.lower() for part in qualifier)
    found = [one for one in over.frame.shown if one.qualifier[-len(wanted) :] == wanted]
    if not found:
        name = ".".join(qualifier)
        raise over.context.refuse(
            f"{name}.*, where {name} is no alias of a DataFrame,", "name the columns"
        )
    return found


def with_columns(translator: Translator, relation: Any) -> Frame:
    def make(over: Expressions) -> tuple[Sequence[Column], bool]:
        columns, closed = list(over.frame.shown), False
        computed = []
        for alias in relation.aliases:
            sql = over.sql(alias.expr)
            computed.append(replace(made(sql), name=alias.name[0], key=new_key(), qualifier=()))
            closed |= sql.aggregates or sql.generates
        for one in computed:
            places = [at for at, column in enumerate(columns) if column.named(one.name)]
            for at in places:
                columns[at] = one
            if not places:
                columns.append(one)
        return columns, closed

    return translator.project(translator.frame(relation.input), make)


def renamed(translator: Translator, relation: Any) -> Frame:
    frame = translator.readable(translator.frame(relation.input))
    pairs = [(one.col_name, one.new_col_name) for one in relation.renames]
    columns = frame.shown
    for old, new in pairs or relation.rename_columns_map.items():
        columns = tuple(_renamed(one, new) if one.named(old) else one for one in columns)
    return frame.restore(columns)


def _renamed(column: Column, name: str) -> Column:
    return replace(column, name=name, key=new_key(), qualifier=())


def to_df(translator: Translator, relation: Any) -> Frame:
    frame = translator.readable(translator.frame(relation.input))
    names = list(relation.column_names)
    if len(names) != len(frame.shown):
        raise translator.context.error(
            "toDF has another number of names than the DataFrame has columns",
            expected=f"{len(frame.shown)} names ({', '.join(one.name for one in frame.shown)})",
            found=f"{len(names)} ({', '.join(names)})",
        )
    return frame.restore(tuple(map(_renamed, frame.shown, names)))


def drop(translator: Translator, relation: Any) -> Frame:
    frame = translator.readable(translator.frame(relation.input))
    gone = {one.key for name in relation.column_names for one in frame.shown if one.named(name)}
    over = translator.over(frame)
    for expression in relation.columns:
        attribute = expression.unresolved_attribute
        parts = name_parts(attribute.unparsed_identifier)
        try:
            if attribute.HasField("plan_id"):
                gone.add(frame.column_of(attribute.plan_id, parts)[0].key)
            elif parts:
                gone.add(frame.column(parts)[0].key)
        except NoColumn:
            continue  # as in Spark: what is not there need not be dropped
        except AmbiguousColumn:
            over.column(parts)
    return frame.restore(tuple(one for one in frame.shown if one.key not in gone))


def alias(translator: Translator, relation: Any) -> Frame:
    frame = translator.frame(relation.input)
    qualifier = (*(part.lower() for part in relation.qualifier), relation.alias.lower())
    columns = tuple(replace(one, qualifier=qualifier) for one in frame.columns)
    return replace(frame, columns=columns)


def filtered(translator: Translator, relation: Any) -> Frame:
    frame = translator.readable(translator.frame(relation.input))

    def condition() -> tuple[str, set[int]]:
        over = translator.over(frame, hidden=True)
        text = over.text(relation.condition, Level.AND)
        return text, {one.key for one in over.used}

    text, used = condition()
    if frame.computes:
        frame = translator.derived(frame, used)
        text, _ = condition()
    return replace(frame, where=(*frame.where, text), branches=())


def sorted_by(translator: Translator, relation: Any) -> Frame:
    keys: list[SortKey] = []

    def make(over: Expressions) -> tuple[Sequence[Column], bool]:
        columns = []
        keys.clear()
        for order in relation.order:
            sql = over.sql(order.child)
            columns.append(made(sql) if sql.column is None else sql.column)
            keys.append(SortKey(columns[-1].key, direction_of(order)))
        return columns, False

    frame = replace(translator.readable(translator.frame(relation.input)), order=())
    frame, columns, _ = translator.select(frame, make, hidden=True)
    known = {one.key for one in frame.columns}
    added = tuple(replace(one, shown=False) for one in columns if one.key not in known)
    return replace(frame, columns=(*frame.columns, *added), order=tuple(keys))


def unchanged(translator: Translator, relation: Any) -> Frame:
    """A hint, or where rows are placed: Spark's business, not what the rows are."""
    return translator.frame(relation.input)


COLUMN_KINDS: Mapping[str, Kind] = {
    "project": project,
    "with_columns": with_columns,
    "with_columns_renamed": renamed,
    "to_df": to_df,
    "drop": drop,
    "subquery_alias": alias,
    "filter": filtered,
    "sort": sorted_by,
    "hint": unchanged,
    "repartition": unchanged,
    "repartition_by_expression": unchanged,
}
