"""Builders for the tests of the SQL front end: projects from text, rows, and plans run by DuckDB."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import duckdb

from lockstep.sql.circuit import Project, ProjectFiles
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
    Recursive,
    Scan,
    TimeWindow,
    UnionAll,
    Values,
    Weigh,
    Window,
)
from lockstep.sql.plans.nodes import Project as Projection
from lockstep.sql.project import parse_project
from lockstep.sql.queries.parse import Environment, lower_query
from lockstep.sql.queries.scope import Lowered
from lockstep.sql.reading.intervals import interval_microseconds
from lockstep.sql.reading.syntax import SourceText, parse_spark

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "sql"
SPEC = """\
name: shop
storage: file:///tmp/shop
catalog: lake
database: shop
libraries:
  - glob: {include: transformations/**}
configuration:
  broker: broker:9092
"""
_KAFKA = "USING kafka OPTIONS ('kafka.bootstrap.servers' = '${broker}', subscribe = '%s')"

COLUMNS: Mapping[str, Mapping[str, str]] = {
    "t": {"a": "INT", "b": "INT", "c": "STRING", "ts": "TIMESTAMP"},
    "u": {"a": "INT", "d": "INT", "e": "STRING"},
    "v": {"d": "INT", "f": "INT"},
}
SOURCES = "\n".join(
    f"CREATE TABLE {name} ({', '.join(f'{c} {t}' for c, t in columns.items())}) {_KAFKA % name};"
    for name, columns in COLUMNS.items()
)


def files(sql: str, *, spec: str = SPEC) -> ProjectFiles:
    """A project of one file, `views.sql`."""
    return ProjectFiles(spec=spec, files=(("views.sql", sql),))


def project(sql: str, *, sources: str = SOURCES) -> Project:
    """A project over the tables t, u and v (or other sources); `sql` follows them in a file."""
    pair = (("a_sources.sql", sources), ("views.sql", sql))
    return parse_project(ProjectFiles(spec=SPEC, files=pair), {})


def view_plan(query: str, *, sources: str = SOURCES) -> Node:
    """The plan of one view, after the rewrites."""
    return project(f"CREATE MATERIALIZED VIEW w AS {query}", sources=sources).views[0].plan


def raw_plan(query: str) -> Node:
    """The plan of a query over t, u and v before the rewrites."""
    relations = {
        name: Lowered(Scan(name, tuple(columns)), tuple(columns))
        for name, columns in COLUMNS.items()
    }
    source = SourceText("views.sql", query)
    return lower_query(source, source.parse(source.tokens, "it"), Environment(relations)).node


def check_golden(name: str, text: str) -> None:
    """Compare with tests/golden/sql/<name>; `GOLDEN_UPDATE=1 pytest tests/sql` writes it anew."""
    path = GOLDEN / name
    if os.environ.get("GOLDEN_UPDATE"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def outline(node: Node, depth: int = 0) -> str:
    """A plan as an indented tree, for golden files."""
    match node:
        case Scan():
            text = f"scan {node.source} [{', '.join(node.columns)}]"
        case Projection():
            text = f"project [{', '.join(f'{o.name} = {o.expression.text}' for o in node.outputs)}]"
        case Filter():
            text = f"filter {node.predicate.text}"
        case TimeWindow():
            text = f"time window {node.name} of {node.timestamp}, {node.size} every {node.slide}"
        case UnionAll():
            text = "union all"
        case Join():
            keys = ", ".join(f"{a} {'<=>' if same else '='} {b}" for a, b, same in node.keys)
            kind = "" if node.kind is JoinKind.INNER else f"{node.kind.value} "
            text = f"{kind}join [{keys}]"
            text += f" where {node.condition.text}" if node.condition else ""
        case Values():
            text = f"values [{', '.join(node.columns)}] of {len(node.rows)} rows"
        case Generate():
            text = f"generate [{', '.join(node.names)}] = {node.generator.text}"
        case Weigh():
            text = f"weigh by {node.weight.text}"
        case Window():
            calls = (f"{c.name} = {c.function.text} ({c.over})" for c in node.calls)
            first = "" if node.first is None else f" first {node.first}"
            text = f"window [{', '.join(node.partition)}] [{', '.join(calls)}]{first}"
        case Aggregate():
            calls = (f"{c.name} = {c.text}" for c in node.aggregates)
            text = f"aggregate [{', '.join(node.keys)}] [{', '.join(calls)}]"
        case Recursive():
            step = outline(node.step, depth + 2)
            text = f"recursive [{', '.join(node.columns)}] below level {node.limit}, by\n{step}"
    lines = ["  " * depth + text, *(outline(child, depth + 1) for child in node.inputs)]
    return "\n".join(lines)


# ── plans as SQL: another way from a plan to rows than the engine's ─────────────────────────────


@dataclass(frozen=True)
class Dialect:
    """How one engine writes what plans are made of."""

    quote: Callable[[str], str]
    expression: Callable[[Expression], str]
    window: Callable[[TimeWindow, str], str]
    null_safe: str
    levels: Callable[[int], str] = lambda _: ""


def plan_sql(node: Node, dialect: Dialect | None = None) -> str:
    """A plan as one query, for DuckDB if nothing else is said."""
    d = dialect or DUCKDB
    q = d.quote
    inputs = [f"({plan_sql(child, d)})" for child in node.inputs]
    match node:
        case Scan():
            text = f"SELECT {', '.join(map(q, node.columns))} FROM {q(node.source)}"
        case Projection():
            items = (f"{d.expression(o.expression)} AS {q(o.name)}" for o in node.outputs)
            text = f"SELECT {', '.join(items)} FROM {inputs[0]}"
        case Filter():
            text = f"SELECT * FROM {inputs[0]} WHERE {d.expression(node.predicate)}"
        case TimeWindow():
            text = d.window(node, inputs[0])
        case UnionAll():
            text = " UNION ALL ".join(f"SELECT * FROM {one}" for one in inputs)
        case Join():
            tests = [f"{q(a)} {d.null_safe if same else '='} {q(b)}" for a, b, same in node.keys]
            if node.condition is not None:
                tests.append(f"({d.expression(node.condition)})")
            join = f"{node.kind.value} JOIN {inputs[1]} ON {' AND '.join(tests) or 'true'}"
            text = f"SELECT * FROM {inputs[0]} {join}"
        case Values():
            rows = ", ".join(f"({', '.join(map(d.expression, row))})" for row in node.rows)
            text = f"SELECT * FROM (VALUES {rows}) AS w ({', '.join(map(q, node.columns))})"
        case Window():
            by = f"PARTITION BY {', '.join(map(q, node.partition))} " if node.partition else ""
            text = f"SELECT * FROM {inputs[0]}"
            for c in node.calls:
                # one at a time, as a call may read the one before it
                over = by + c.over.replace("`", q("").strip()[0])
                value = f"{d.expression(c.function)} OVER ({over}) AS {q(c.name)}"
                text = f"SELECT *, {value} FROM ({text})"
        case Generate() if d is SPARK:
            made = f"{d.expression(node.generator)} made AS {', '.join(map(q, node.names))}"
            text = f"SELECT * FROM {inputs[0]} LATERAL VIEW {made}"
        case Generate() | Weigh():
            raise NotImplementedError("DuckDB and Spark have no one text for these")
        case Aggregate():
            calls = (
                f"{c.function.value}({q(c.argument) if c.argument else '*'}) AS {q(c.name)}"
                for c in node.aggregates
            )
            keys = ", ".join(map(q, node.keys))
            tail = f" GROUP BY {keys}" if keys else ""
            text = f"SELECT {', '.join([*map(q, node.keys), *calls])} FROM {inputs[0]}{tail}"
        case Recursive():
            named = [f"{q(f'beside {n}')} AS {one}" for n, one in enumerate(inputs[1:])]
            columns = ", ".join(map(q, (*node.columns, LEVEL)))
            loop = (
                f"SELECT *, CAST(0 AS BIGINT) FROM {inputs[0]} UNION ALL {plan_sql(node.step, d)}"
            )
            named.append(f"{q(BEFORE)} ({columns}) {d.levels(node.limit)} AS ({loop})")
            shown = ", ".join(map(q, node.columns))
            text = f"WITH RECURSIVE {', '.join(named)} SELECT {shown} FROM {q(BEFORE)}"
    return text


def _duckdb_expression(expression: Expression) -> str:
    [tree] = parse_spark(f"SELECT {expression.text}").expressions
    return str(tree.sql("duckdb", identify=True))


def _duckdb_window(node: TimeWindow, below: str) -> str:
    size, slide = interval_microseconds(node.size), interval_microseconds(node.slide)
    start = f'make_timestamp((epoch_us("{node.timestamp}") // {slide} - k) * {slide})'
    end = f"{start} + to_microseconds({size})"
    return (
        f'SELECT * EXCLUDE (k), struct_pack("start" := {start}, "end" := {end}) AS "{node.name}" '
        f'FROM {below}, range({size // slide + 1}) AS r(k) WHERE "{node.timestamp}" < {end}'
    )


def _spark_window(node: TimeWindow, below: str) -> str:
    call = f"window(`{node.timestamp}`, '{node.size}', '{node.slide}')"
    return f"SELECT *, {call} AS `{node.name}` FROM {below}"


DUCKDB = Dialect('"{}"'.format, _duckdb_expression, _duckdb_window, "IS NOT DISTINCT FROM")
SPARK = Dialect(
    "`{}`".format,
    lambda expression: expression.text,
    _spark_window,
    "<=>",
    "MAX RECURSION LEVEL {}".format,
)


_TYPES = {"STRING": "VARCHAR"}


def database(seed: int, rows: int = 40) -> duckdb.DuckDBPyConnection:
    """t, u and v in memory with the rows of `random_rows`."""
    connection = duckdb.connect()
    tables = random_rows(seed, rows)
    for name, columns in COLUMNS.items():
        declared = ", ".join(f"{c} {_TYPES.get(t, t)}" for c, t in columns.items())
        connection.execute(f"CREATE TABLE {name} ({declared})")
        marks = ", ".join("?" * len(columns))
        for values in tables[name]:
            connection.execute(f"INSERT INTO {name} VALUES ({marks})", values)
    return connection


def random_rows(seed: int, rows: int = 40) -> dict[str, list[tuple[object, ...]]]:
    """Rows for t, u and v: some values null, some rows equal."""
    chance = random.Random(seed)
    return {
        name: [tuple(_value(chance, kind) for kind in columns.values()) for _ in range(rows)]
        for name, columns in COLUMNS.items()
    }


def _value(chance: random.Random, kind: str) -> object:
    if chance.random() < 0.15:
        return None
    if kind == "STRING":
        return chance.choice(["x", "y", "z z", "it's"])
    if kind == "TIMESTAMP":
        return datetime(2024, 1, 1) + timedelta(seconds=chance.randrange(60))
    return chance.randrange(-2, 5)


def bag(connection: duckdb.DuckDBPyConnection, sql: str) -> Counter[str]:
    """The rows of a query, each with its number; floats to 12 digits."""
    return Counter(_row_text(row) for row in connection.execute(sql).fetchall())


def _row_text(row: Iterable[object]) -> str:
    return repr([round(value, 12) if isinstance(value, float) else value for value in row])
