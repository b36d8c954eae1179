"""The views of a project as DuckDB SQL: for verification by an engine that shares no code.

The text of each view is translated by sqlglot as a whole; of plans no more is read than which views
show windows only when they are over.
Sources are tables of their own names, with the columns as declared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

from sqlglot import exp
from sqlglot.errors import ParseError

from lockstep.sql.circuit import Project, View
from lockstep.sql.duckdb_windows import unfold_windows
from lockstep.sql.plans.nodes import Filter, Generate, Node, Temporal, UnionAll, Watermark, Window
from lockstep.sql.plans.nodes import Project as Projection
from lockstep.sql.reading.clocks import clock_text
from lockstep.sql.reading.syntax import parse_spark

__all__ = ["DuckDbView", "duckdb_statements", "duckdb_type", "to_duckdb"]


@dataclass(frozen=True)
class DuckDbView:
    """A view as DuckDB reads it; `sql` is the query, `columns` the names as the project has them.

    Where it can't be said in DuckDB's SQL there is a `reason` instead of the query.
    """

    name: str
    sql: str
    columns: tuple[str, ...]
    reason: str = ""

    @property
    def statement(self) -> str:
        """CREATE VIEW, to be executed after those of the views before it."""
        names = ", ".join(_quoted(column) for column in self.columns)
        return f"CREATE VIEW {_quoted(self.name)} ({names}) AS {self.sql}"


def duckdb_type(ddl: str) -> str:
    """A type of Spark's DDL in DuckDB's words."""
    return str(exp.DataType.build(ddl, dialect="spark").sql(dialect="duckdb"))


def duckdb_statements(
    project: Project,
    now: datetime | None = None,
    watermarks: Mapping[str, datetime | None] = MappingProxyType({}),
) -> tuple[DuckDbView, ...]:
    """Every view of the project, temporary ones too, each after the views that it reads; now() is
    the time that is given, where one is, and windows that come out when they are over are those up to
    the `watermarks` of their sources."""
    views = {view.name.lower(): view for view in project.views}
    done: dict[str, DuckDbView] = {}

    def add(view: View) -> None:
        if view.name.lower() in done:
            return
        try:
            tree = parse_spark(view.sql)
        except ParseError as error:
            why = str(error).partition("\n")[0]
            done[view.name.lower()] = DuckDbView(view.name, "", view.columns, why)
            return
        if now is not None:
            _tell_time(tree, now)
        for name in _tables(tree):
            if name in views and name != view.name.lower():
                add(views[name])
        done[view.name.lower()] = DuckDbView(
            view.name, _translate(tree, view.columns, _over(view.plan, watermarks)), view.columns
        )

    for view in project.views:
        add(view)
    return tuple(done.values())


def to_duckdb(sql: str, columns: tuple[str, ...] = ()) -> str:
    """One Spark query in DuckDB's SQL; `columns` are the names that Spark gives to its columns."""
    return _translate(parse_spark(sql), columns)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _tables(tree: Any) -> Iterator[str]:
    for table in tree.find_all(exp.Table):
        yield table.name.lower()


def _over(plan: Node, watermarks: Mapping[str, datetime | None]) -> str:
    """Up to which end windows come out, as a timestamp; '' where all do."""
    match plan:
        case Temporal() if plan.watermarks:
            found = [
                watermarks[one.source] for one in plan.watermarks if isinstance(one, Watermark)
            ]
            known = [mark for mark in found if mark is not None]
            until = min(known).isoformat() if len(known) == len(found) else "-infinity"
            return f"TIMESTAMPTZ '{until}'"
        case Projection() | Filter() | Window() | Generate() | Temporal():
            return _over(plan.input, watermarks)
        case UnionAll():
            return _over(plan.branches[0], watermarks)
        case _:
            return ""


def _translate(tree: Any, columns: tuple[str, ...], over: str = "") -> str:
    _name_star(tree, columns)
    for table in tree.find_all(exp.Table):
        table.set("db", None)
        table.set("catalog", None)
    for count in list(tree.find_all(exp.Count)):
        if count.expressions:
            # Spark counts the rows in which none is null; DuckDB's count takes one argument
            parts = [count.this, *count.expressions]
            test = exp.and_(*(part.is_(exp.null()).not_() for part in parts))
            count.replace(exp.Count(this=exp.case().when(test, exp.Literal.number(1))))
    for collected in list(tree.find_all(exp.ArrayAgg, exp.ArrayUniqueAgg)):
        _empty_where_null(collected)
    for select in list(tree.find_all(exp.Select)):
        _match_in_on(select)
        unfold_windows(select, over)
    return str(tree.sql(dialect="duckdb", identify=True))


def _empty_where_null(collected: Any) -> None:
    """Of no rows Spark's list is empty, and DuckDB's is null."""
    call = collected
    while isinstance(call.parent, exp.Filter | exp.Window) and call.parent.this is call:
        call = call.parent
    call.replace(exp.Coalesce(this=call.copy(), expressions=[exp.Array()]))


def _match_in_on(select: Any) -> None:
    """DuckDB has no MATCH_CONDITION: it stands in ON, and so does what is USING beside it."""
    for join in select.args.get("joins") or ():
        match = join.args.get("match_condition")
        if match is None:
            continue
        left, right = select.args["from_"].this.alias_or_name, join.this.alias_or_name
        names = {part.name for part in join.args.get("using") or ()}
        for column in list(select.find_all(exp.Column)):
            if column.name in names and not column.table and column.parent_select is select:
                column.set("table", exp.to_identifier(left))
        equal = (exp.column(one, left).eq(exp.column(one, right)) for one in sorted(names))
        join.set("match_condition", None)
        join.set("using", None)
        join.set("on", exp.and_(join.args.get("on"), *equal, match))


def _tell_time(tree: Any, now: datetime) -> None:
    """Put the time in the place of now()."""
    values = {
        "now()": exp.cast(exp.Literal.string(now.isoformat()), "TIMESTAMPTZ", dialect="duckdb"),
        "current_date()": exp.cast(exp.Literal.string(now.date().isoformat()), "DATE"),
    }
    for node in [node for node in tree.walk() if clock_text(node)]:
        node.replace(values[clock_text(node)].copy())


def _name_star(tree: Any, columns: tuple[str, ...]) -> None:
    """`SELECT *` by names where relations are joined by names: the two have another order then."""
    merging = any(
        join.args.get("using") or str(join.args.get("method") or "").upper() == "NATURAL"
        for join in tree.find_all(exp.Join)
    )
    if not (merging and columns and isinstance(tree, exp.Select)):
        return
    if len(tree.expressions) == 1 and isinstance(tree.expressions[0], exp.Star):
        tree.set("expressions", [exp.column(name) for name in columns])
