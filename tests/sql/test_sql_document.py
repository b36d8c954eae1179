"""docs/sql.md, the table of what a view may say: made from the queries that are tested."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from forms import AROUND, FORMS, NESTED
from queries import (
    ASOF,
    GROUPS,
    JOINS,
    MORE,
    SETS,
    SUBQUERIES,
    TABLES,
    TIME,
    WINDOWS,
)
from recursions import LEVELS, RECURSION
from test_sql_errors import NOT_SUPPORTED

from lockstep.errors import NotSupported
from lockstep.sql.circuit import Cost, ProjectFiles
from lockstep.sql.incremental import build_circuit
from lockstep.sql.project import parse_project

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "sql.md"
SPEC = """\
name: document
storage: file:///tmp/document
libraries:
  - glob: {include: transformations/**}
"""
HEAD = """\
# What a view may say

A view means what Spark SQL says it means. Each query here is run as a view over streams of inserts and
deletes, and compared with Spark's own answer after every step (`tests/engine/test_queries.py`). This
page is made from those queries: `GOLDEN_UPDATE=1 pytest tests/sql/test_sql_document.py`.

*Work* is what an interval's work grows with: the *change*, that is the rows that came and went and
those that have a key with them; or the *state*, all rows of some operator's input, where there is no
key to look up by. `lockstep plan` says it of every operator of a project.

The tables are
"""
_KAFKA = "USING kafka OPTIONS ('kafka.bootstrap.servers' = 'b', {})"
STATEMENTS: Mapping[str, str] = {
    "CREATE MATERIALIZED VIEW w AS SELECT a, b FROM t": "a published view: a table, and a table of its "
    "changes. `CREATE VIEW` is the same",
    "CREATE TEMPORARY VIEW w AS SELECT a, b FROM t": "a view for other views to read, of which there is "
    "no table; `TEMP` is the same",
    "CREATE MATERIALIZED VIEW w (x, y) AS SELECT a, b FROM t": "a published view, its columns named",
    "CREATE AUDIT w AS SELECT a, b FROM t WHERE b < 0": "a view that has to be empty, or nothing is "
    "published ([operating.md](operating.md))",
    "CREATE TABLE s (a INT NOT NULL, b STRING) "
    + _KAFKA.format("subscribe = 's'"): "a source on Kafka ([sources.md](sources.md))",
    "CREATE TABLE s (a INT, b STRING) USING iceberg OPTIONS ('table' = 'lake.shop.s')": "a source "
    "that is an Iceberg table, and followed ([sources.md](sources.md))",
    "CREATE SINK s FROM shown "
    + _KAFKA.format("topic = 's'"): "a topic that is sent every change of a "
    "published view ([sinks.md](sinks.md))",
}
STATEMENTS_NOTE = """\
A file holds any number of statements with `;` between them; their order is free, and that of files.
After `CREATE` may stand `OR REPLACE` or `OR REFRESH`, and before a name `IF NOT EXISTS`: neither changes
anything, as a deploy records the whole project. A view that says `TEMPORARY` and `MATERIALIZED` is
refused by `plan` and `deploy`: it is published, or it is not. `TBLPROPERTIES ('emit' = 'final')` before
`AS` has a view's windows come out once, when they are over. `${name}` is filled in, as
[architecture.md](architecture.md) says under "Configuration".

A `COMMENT '...'` of a published view, and of a column in its list, is what the view's table says of
itself and of the column from the next publish on; nothing is computed anew for it. Where there is none,
what the table says stays. That of a source or its columns is read, and no table is given it.
"""
NUMBERS = """\
Spark's own answer depends here on the order in which it happens to add, or on rounding on the way. A
view's does not:

- A sum of DOUBLE is exact, and rounded once: 1e20 + 1 - 1e20 is 1, and 1e308 + 1e308 - 1e308 is 1e308.
  So are averages, and what is made of spreads ([decision 0028](decisions/0028-spreads.md)). Spark's
  answer may differ in its last digits, or be infinite.
- `avg` of BIGINT divides the exact sum, where Spark adds doubles: above 2^53 last digits may differ.
- Whether a sum of whole numbers or decimals is too great for its type is judged by what it is at the
  end of a step, not on the way there.
- -0.0 and 0.0 are one value, as for Spark's GROUP BY, and 0.0 is what comes out of windows, and of
  whatever takes rows back.
"""
PARTS: Mapping[str, Mapping[str, str]] = {
    "Joins": JOINS,
    "Subqueries": SUBQUERIES,
    "What a subquery reads of the query around": AROUND,
    "Sets and constants": SETS,
    "Groups and generated rows": GROUPS,
    "Window functions and LIMIT": WINDOWS,
    "Steps of a query, and other forms": {**FORMS, **MORE},
    "Fields of structs": NESTED,
    "Recursion": RECURSION,
    "Rows of a level beside each other": LEVELS,
    "ASOF JOIN, which Spark has not": ASOF,
    "Time": TIME,
}
NOTES: Mapping[str, str] = {
    "Fields of structs": "`struct.*`, and what `inline` makes, are names that only a type has: that of "
    "a source's column, or of\n`struct()`, `named_struct`, `array`, `map`, `transform`, `from_json`, "
    "CAST and what is taken out of them.\nWhere it is not known the message says so, and names are "
    "written out.",
    "Recursion": "As in Spark, rows at level 100 (the anchor is level 0), or at that of `MAX RECURSION "
    "LEVEL`, are an error,\nand the anchor's types rule. The work is that of the change, once for each "
    "level that it reaches: a Spark job\nor two ([decision 0011](decisions/0011-recursion.md)).",
    "Rows of a level beside each other": "DISTINCT, EXCEPT, a join of the recursion with itself, `[NOT] "
    "IN` and `[NOT] EXISTS` see the rows of the level\nbefore, as in Spark, and not those of all levels "
    "so far. Spark has no GROUP BY, window or LIMIT in a step; here they\nare of one level, too, judged "
    "by another query of the same meaning.",
    "ASOF JOIN, which Spark has not": "Each row beside the nearest one of the other side: ON has "
    "equalities and one of `>=`, `>`, `<=`, `<`, or\n`MATCH_CONDITION` has the latter. `USING` has "
    "equal columns, and without\n`MATCH_CONDITION` the time as the last of them, which is at or "
    "before. Of rows of equal time the last counts, in\nthe order of the columns that the view reads. "
    "An extension, judged by another query of the same meaning.",
}


def _sources() -> str:
    options = "USING kafka OPTIONS ('kafka.bootstrap.servers' = 'b', subscribe = 's')"
    return "".join(f"CREATE TABLE {t} ({columns}) {options};\n" for t, columns in TABLES.items())


def _cost(query: str) -> str:
    text = f"{_sources()}CREATE MATERIALIZED VIEW w AS {query}"
    circuit = build_circuit(parse_project(ProjectFiles(SPEC, (("views.sql", text),)), {}))
    return "state" if any(o.cost is Cost.STATE for o in circuit.operators) else "change"


def _cell(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _refusal(sql: str) -> tuple[str, str]:
    try:
        parse_project(ProjectFiles(SPEC, (("views.sql", f"{_sources()}{sql}"),)), {})
    except NotSupported as error:
        return error.message, error.next_step or f"expected: {error.expected}"
    raise AssertionError(f"not refused: {sql}")


def document() -> str:
    """The page."""
    lines = [HEAD.rstrip(), ""]
    lines += [f"- `{table} ({columns})`" for table, columns in TABLES.items()]
    lines += ["", "## Statements", "", "| statement | declares |", "|---|---|"]
    lines += [f"| {_cell(statement)} | {what} |" for statement, what in STATEMENTS.items()]
    lines += ["", STATEMENTS_NOTE.rstrip(), "", "## Numbers", "", NUMBERS.rstrip()]
    for title, queries in PARTS.items():
        lines += ["", f"## {title}", "", *([NOTES[title], ""] if title in NOTES else [])]
        lines += ["| what | query | work |", "|---|---|---|"]
        lines += [f"| {name} | {_cell(q)} | {_cost(q)} |" for name, q in queries.items()]
    lines += ["", "## Refused", "", "| statement | why | instead |", "|---|---|---|"]
    for sql in NOT_SUPPORTED.values():
        why, instead = _refusal(sql)
        words = " ".join(sql.removeprefix("CREATE MATERIALIZED VIEW w AS").split())
        lines.append(f"| {_cell(words)} | {why} | {instead} |".replace("\n", " "))
    return "\n".join(lines) + "\n"


def test_the_page_says_what_is_so() -> None:
    found = document()
    if os.environ.get("GOLDEN_UPDATE"):
        DOCUMENT.write_text(found, encoding="utf-8")
    assert found == DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize("more", ["OR REPLACE ", "OR REFRESH "])
def test_a_statement_may_say_that_it_replaces_and_means_the_same(statement: str, more: str) -> None:
    shown = f"{_sources()}CREATE VIEW shown AS SELECT a FROM t;\n"
    written = statement.replace("CREATE ", f"CREATE {more}", 1)
    for kind in ("VIEW ", "TABLE ", "SINK ", "AUDIT "):
        written = written.replace(kind, f"{kind}IF NOT EXISTS ", 1)
    one, other = (
        parse_project(ProjectFiles(SPEC, (("v.sql", shown + text),)), {})
        for text in (statement, written)
    )
    assert len(one.sources) + len(one.views) + len(one.sinks) == len(TABLES) + 2
    named = [[(v.name, v.published, v.columns) for v in p.views] for p in (one, other)]
    assert named[0] == named[1]
    assert [(s.name, s.options) for s in one.sources] == [
        (s.name, s.options) for s in other.sources
    ]
    assert [(s.name, s.options) for s in one.sinks] == [(s.name, s.options) for s in other.sinks]


def test_comments_are_read() -> None:
    text = (
        "CREATE TABLE s (a INT COMMENT 'x') COMMENT 'y' " + _KAFKA.format("subscribe = 's'") + ";\n"
        "CREATE VIEW w (b COMMENT 'x') COMMENT 'y' AS SELECT a FROM s;"
    )
    (view,) = parse_project(ProjectFiles(SPEC, (("v.sql", text),)), {}).views
    assert view.columns == ("b",)
    assert (view.comment, view.column_comments) == ("y", {"b": "x"})
