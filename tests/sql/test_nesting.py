"""Names that a type has: `struct.*`, EXCEPT of fields, and the columns that inline() makes."""

from __future__ import annotations

import pytest
from sql_builders import project

from lockstep.errors import ProjectError
from lockstep.sql.plans.nesting import shape_of
from lockstep.sql.plans.nodes import Expression, Scan
from lockstep.sql.plans.shapes import ListShape, MapShape, Shape, StructShape, shape_of_type

SOURCES = """\
CREATE TABLE t (
  id INT, s STRUCT<a: INT, q: STRUCT<b: INT, c: STRING>>, xs ARRAY<STRUCT<k: INT, v: STRING>>,
  m MAP<STRING, STRUCT<e: INT>>, late STRING
) USING kafka OPTIONS ('kafka.bootstrap.servers' = 'b', subscribe = 't');
"""
ROW = Scan(
    "t",
    ("s", "xs", "m", "late"),
    {
        name: shape
        for name, ddl in (
            ("s", "STRUCT<a: INT, q: STRUCT<b: INT, c: STRING>>"),
            ("xs", "ARRAY<STRUCT<k: INT, v: STRING>>"),
            ("m", "MAP<STRING, STRUCT<e: INT>>"),
        )
        if (shape := shape_of_type(ddl)) is not None
    },
)


def columns(*views: str) -> tuple[str, ...]:
    """The columns of the last of some views, each of which is published."""
    made = (f"CREATE MATERIALIZED VIEW w{n} AS {query};" for n, query in enumerate(views))
    return project("\n".join(made), sources=SOURCES).views[-1].columns


def text_of(shape: Shape | None) -> str:
    match shape:
        case StructShape():
            inner = (f"{name} {text_of(of)}".strip() for name, of in shape.fields)
            return f"({', '.join(inner)})"
        case ListShape():
            return f"[{text_of(shape.element)}]"
        case MapShape():
            return f"{{{text_of(shape.key)}: {text_of(shape.value)}}}"
        case None:
            return ""


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT s.* FROM t", "a q"),
        ("SELECT S.q.* FROM t", "b c"),
        ("SELECT t.s.q.*, id FROM t", "b c id"),
        ("SELECT s.* EXCEPT (q) FROM t", "a"),
        ("SELECT s.* EXCEPT (q.c) FROM t", "a q"),
        ("SELECT * EXCEPT (t.id, xs, m, late, s.a) FROM t", "s"),
        ("SELECT shop.t.*, shop.t.id AS i, lake.shop.t.s.a AS j FROM shop.t", "id s xs m late i j"),
        ("SELECT * EXCEPT (s.id) FROM (SELECT id, s, late AS z FROM t) AS s", "s z"),
        ("SELECT * EXCEPT (p.id, q.s, q.z) FROM (SELECT id, s FROM t) p JOIN (SELECT id, s, late AS z "
         "FROM t) q ON p.id = q.id", "s id"),
        ("SELECT inline(xs) FROM t", "k v"),
        ("SELECT explode(str_to_map(late)) FROM t", "key value"),
        ("SELECT x.* FROM t LATERAL VIEW inline(xs) x", "k v"),
        ("SELECT q.* FROM t, LATERAL inline_outer(xs) q", "k v"),
        ("SELECT q.* FROM t, LATERAL (SELECT inline(t.xs)) q", "k v"),
        ("SELECT explode(m) FROM t", "key value"),
        ("SELECT p, k, v.* FROM t LATERAL VIEW posexplode(m) q AS p, k, v", "p k e"),
        ("SELECT x.* FROM (SELECT explode(xs) AS x FROM t)", "k v"),
        ("SELECT x.* FROM (SELECT max(s) AS x FROM t)", "a q"),
        ("SELECT x.* FROM (SELECT s AS x FROM t UNION ALL SELECT NULL FROM t)", "a q"),
        ("SELECT x.* FROM (SELECT lag(s) OVER (ORDER BY id) AS x FROM t)", "a q"),
        ("SELECT j.* FROM (SELECT from_json(late, 'g INT, h STRING') AS j FROM t)", "g h"),
        ("SELECT w.* FROM (SELECT window(current, '1 hour') AS w FROM (SELECT "
         "CAST(late AS TIMESTAMP) AS current FROM t))", "start end"),
    ],
)  # fmt: skip
def test_columns_that_a_type_names(query: str, expected: str) -> None:
    assert " ".join(columns(query)) == expected


def test_fields_of_a_view_that_has_state() -> None:
    groups = (
        "SELECT id, max(s) AS top, collect_list(struct(id AS i, late)) AS every FROM t GROUP BY id"
    )
    assert columns(groups, "SELECT top.*, r.* FROM w0 LATERAL VIEW inline(every) r") == (
        *("a", "q"),
        *("i", "late"),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`s`", "(a, q (b, c))"),
        ("`s`.q", "(b, c)"),
        ("`xs`.k", "[]"),
        ("`xs`[0]", "(k, v)"),
        ("`m`['x']", "(e)"),
        ("element_at(`m`, 'x')", "(e)"),
        ("struct(1 AS a, `s`.q)", "(a, q (b, c))"),
        ("struct(1, `s`)", "(col1, s (a, q (b, c)))"),
        ("named_struct('x y', `s`.q)", "(x y (b, c))"),
        ("array(NULL, `s`)", "[(a, q (b, c))]"),
        ("map('k', `s`.q)", "{: (b, c)}"),
        ("map_entries(`m`)", "[(key, value (e))]"),
        ("map_values(`m`)", "[(e)]"),
        ("map_keys(`m`)", "[]"),
        ("flatten(array(`xs`))", "[(k, v)]"),
        ("filter(`xs`, x -> x.k > 1)", "[(k, v)]"),
        ("transform(`xs`, x -> struct(x.v AS w, x))", "[(w, x (k, v))]"),
        ("CASE WHEN `s`.a > 1 THEN NULL ELSE `s`.q END", "(b, c)"),
        ("if(`s`.a > 1, NULL, `s`.q)", "(b, c)"),
        ("coalesce(NULL, `s`)", "(a, q (b, c))"),
        ("CAST(`s` AS STRUCT<x: INT, y: STRUCT<z: INT>>)", "(x, y (z))"),
        ("from_json(`late`, 'a INT, b ARRAY<STRUCT<c: INT>>')", "(a, b [(c)])"),
        ("from_json(`late`, 'array<struct<c: int>>')", "[(c)]"),
        ("from_json(`late`, 'date DATE, `map` MAP<INT, ARRAY<STRUCT<not: INT>>> NOT NULL')",
         "(date, map {: [(not)]})"),
        ("CAST(NULL AS STRUCT<a DECIMAL(10, 2) COMMENT 'x, y', b: STRUCT<c: INT>>)", "(a, b (c))"),
        ("coalesce(zip_with(`xs`, `xs`, (x, y) -> struct(x.v AS w)), `xs`)", ""),
        ("upper(`late`)", ""),
        ("parse_json(`late`)", ""),
    ],
)  # fmt: skip
def test_shapes(text: str, expected: str) -> None:
    read = tuple(name for name in ROW.columns if f"`{name}`" in text)
    assert text_of(shape_of(Expression(text, read), ROW)) == expected


@pytest.mark.parametrize(
    ("query", "message", "found"),
    [
        ("SELECT late.* FROM t", "late is no struct whose fields are known", "late.*"),
        ("SELECT * EXCEPT (other.id) FROM t", "there is no column 'other.id' to leave out", "other.id"),
        ("SELECT inline(xs) AS (a, b, c) FROM t",
         "inline makes another number of columns than it has names for", "3 (a, b, c)"),
        ("SELECT p.* FROM (SELECT s AS p FROM t) x JOIN (SELECT s AS p FROM t) y",
         "the column 'p' is ambiguous", "p.*"),
        ("SELECT nothing.* FROM t", "there is no relation 'nothing' in FROM", "nothing.*"),
        ("SELECT other.t.* FROM t", "there is no relation 't' in FROM", "other.t.*"),
        ("SELECT * EXCEPT (s.z) FROM t", "there is no column 'z' to leave out", "z"),
        ("SELECT * EXCEPT (late.z) FROM t", "there is no column 'z' to leave out", "z"),
        ("SELECT inline(from_json(late, schema_of_json(late))) FROM t",
         "the columns of inline have no names", "inline(from_json(late, schema_of_json(late)))"),
        ("SELECT other.t.id FROM t", "there is no column 'other.t.id'", "other.t.id"),
    ],
)  # fmt: skip
def test_names_that_are_not_there(query: str, message: str, found: str) -> None:
    with pytest.raises(ProjectError) as raised:
        columns(query)
    assert message in raised.value.message
    assert raised.value.found == found
