"""Spark's window() and session_window() in DuckDB, which has neither.

The column that a call stands for is made below the SELECT that the call is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlglot
from sqlglot import exp

from lockstep.sql.reading.intervals import interval_microseconds
from lockstep.sql.reading.trees import without_parentheses

__all__ = ["unfold_windows"]

_WINDOW = "_lockstep_window"
_TIME, _BEFORE, _SESSION = "_lockstep_time", "_lockstep_before", "_lockstep_session"


def unfold_windows(select: Any, over: str) -> None:
    """Change a SELECT with such calls into one without; `over`, where it is not empty, is the end, as
    SQL, up to which windows of a length come out."""
    calls = _calls(select, "window")
    if calls:
        _unfold_window(select, calls, over)
    calls = _calls(select, "session_window")
    if calls:
        _unfold_sessions(select, calls)


def _calls(select: Any, name: str) -> list[Any]:
    """The calls of a function that belong to this SELECT itself, not to one inside it."""
    return [
        call
        for call in select.find_all(exp.Anonymous)
        if call.name.lower() == name and call.find_ancestor(exp.Select) is select
    ]


def _unfold_window(select: Any, calls: Sequence[Any], over: str) -> None:
    """window(ts, size, slide) becomes a row per window, by a lateral join, as in Spark.

    Offsets are counted back from the timestamp, so that the result has the timestamp's own type.
    """
    arguments = calls[0].expressions
    timestamp = _text(arguments[0])
    size = interval_microseconds(arguments[1].name)
    slide = interval_microseconds(arguments[2].name) if len(arguments) > 2 else size
    offset = interval_microseconds(arguments[3].name) if len(arguments) > 3 else 0
    counted = f"(epoch_us({timestamp}) - {offset})" if offset else f"epoch_us({timestamp})"
    since = f"({counted} % {slide} + {slide}) % {slide} + _lockstep_i * {slide}"
    start = f"{timestamp} - to_microseconds({since})"
    lateral = (
        f'SELECT struct_pack("start" := {start}, "end" := {start} + to_microseconds({size})) '
        f"AS {_WINDOW} "
        f"FROM range({-(-size // slide)}) AS _lockstep_r(_lockstep_i) WHERE {since} < {size}"
        + (f" AND {start} + to_microseconds({size}) <= {over}" if over else "")
    )
    _show_window(select, calls, "window")
    join = exp.Join(
        this=exp.Lateral(
            this=exp.Subquery(this=_parsed(lateral)),
            alias=exp.TableAlias(this=exp.to_identifier("_lockstep_windows")),
        ),
        kind="CROSS",
    )
    select.append("joins", join)


def _unfold_sessions(select: Any, calls: Sequence[Any]) -> None:
    """session_window(ts, gap): the rows of each key in the order of time, numbered by how many of them
    came more than the gap after the one before; a session is the rows of a number. Of rows of the same
    time that one comes first that came after an earlier one.

    Only for a SELECT from one relation: its rows get the column under the relation's own name.
    """
    source = select.args["from_"]
    relation = source.this
    if select.args.get("joins") or not relation.alias_or_name:
        return
    name = relation.alias_or_name
    time, gap = _text(calls[0].expressions[0]), interval_microseconds(calls[0].expressions[1].name)
    keys = [_text(key) for key in _other_keys(select, calls)]
    by = f"PARTITION BY {', '.join(keys)} " if keys else ""
    within = f"PARTITION BY {', '.join([*keys, _SESSION])}"
    where = select.args.get("where")
    condition = f"({_text(where.this)}) AND " if where else ""
    begins = f"{_BEFORE} IS NULL OR {_TIME} > {_BEFORE} + to_microseconds({gap})"
    alias = _text(exp.to_identifier(name))
    rows = (
        f"SELECT *, {time} AS {_TIME}, lag({time}) OVER ({by}ORDER BY {time}) AS {_BEFORE} "
        f"FROM {_text(relation)} WHERE {condition}({time}) IS NOT NULL"
    )
    numbered = (
        f"SELECT *, sum(CASE WHEN {begins} THEN 1 ELSE 0 END) OVER ({by}ORDER BY {_TIME}, "
        f"{_BEFORE} NULLS FIRST ROWS UNBOUNDED PRECEDING) AS {_SESSION} FROM ({rows}) AS {alias}"
    )
    bounded = (
        f"SELECT * EXCLUDE ({_TIME}, {_BEFORE}, {_SESSION}), "
        f'struct_pack("start" := min({_TIME}) OVER ({within}), '
        f'"end" := max({_TIME}) OVER ({within}) + to_microseconds({gap})) AS {_WINDOW} '
        f"FROM ({numbered}) AS {alias}"
    )
    select.set("where", None)
    source.set("this", _parsed(bounded).subquery(name))
    _show_window(select, calls, "session_window")


def _other_keys(select: Any, calls: Sequence[Any]) -> list[Any]:
    """What a SELECT groups by beside its session, by position and by alias, too."""
    named = {item.alias.lower(): item.this for item in select.expressions if item.alias}
    group = select.args.get("group")

    def meant(key: Any) -> Any:
        if isinstance(key, exp.Literal) and not key.is_string:
            return select.expressions[int(key.name) - 1].unalias()
        if isinstance(key, exp.Column) and not key.table:
            return named.get(key.name.lower(), key)
        return key

    keys = (meant(without_parentheses(key)) for key in (group.expressions if group else ()))
    return [key for key in keys if key not in calls]


def _show_window(select: Any, calls: Sequence[Any], name: str) -> None:
    """Put the column that was made in the place of the calls, and of the name that they have."""
    for item in list(select.expressions):
        if item in calls:
            item.replace(exp.alias_(exp.column(_WINDOW), name))
        elif isinstance(item, exp.Star):
            item.set("except_", [*(item.args.get("except_") or []), exp.column(_WINDOW)])
    for call in _calls(select, name):
        call.replace(exp.column(_WINDOW))
    for column in list(select.find_all(exp.Column)):
        if column.find_ancestor(exp.Select) is not select:
            continue
        if column.table.lower() == name:
            column.set("table", exp.to_identifier(_WINDOW))
        elif column.name.lower() == name and not column.table:
            column.replace(exp.column(_WINDOW))


def _text(node: Any) -> str:
    return str(node.sql(dialect="duckdb", identify=True))


def _parsed(sql: str) -> Any:
    return sqlglot.parse_one(sql, read="duckdb")
