"""Expressions as trees: what is simple, and what is left to Spark."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest

from lockstep.sql.plans.expressions import from_text
from lockstep.sql.plans.formula_nodes import (
    Arithmetic,
    Call,
    Case,
    Column,
    Comparison,
    Constant,
    Field,
    Formula,
    In,
    IsNull,
    Like,
    Logic,
    Negation,
    Prefix,
    Remainder,
    Shift,
    Year,
)
from lockstep.sql.plans.formulas import formula

A, B = Column("a"), Column("b")
LONG = Decimal("-12345678901234567890.123456789")


def day(year: int, month: int, number: int) -> Constant:
    return Constant(datetime.date(year, month, number))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("`a`", A),
        ("((`a`)) > -1", Comparison(">", A, Constant(-1))),
        ("`a` > -12345678901234567890.123456789", Comparison(">", A, Constant(LONG))),
        ("(`a` = 1) = `b`", Comparison("=", Comparison("=", A, Constant(1)), B)),
        (
            "CAST((-5) AS INT) < CAST(7 AS int)",
            Comparison("<", Constant(-5, is_cast=True), Constant(7, is_cast=True)),
        ),
        ("`a` == .05", Comparison("=", A, Constant(Decimal("0.05")))),
        ('`a` != "it\'s"', Comparison("<>", A, Constant("it's"))),
        ("`a ``b` < TRUE", Comparison("<", Column("a `b"), Constant(True))),
        (
            "1 - `a` * `b`",
            Arithmetic("-", Constant(1), Arithmetic("*", A, B)),
        ),
        ("`a` / 7.0", Arithmetic("/", A, Constant(Decimal("7.0")))),
        (
            "100 * `a` / `b`",
            Arithmetic("/", Arithmetic("*", Constant(100), A), B),
        ),
        (
            "`a` BETWEEN 1 + 2 AND 3",
            Logic(
                "AND",
                Comparison(">=", A, Arithmetic("+", Constant(1), Constant(2))),
                Comparison("<=", A, Constant(3)),
            ),
        ),
        ("`a` NOT IN (1, 2)", Negation(In(A, (Constant(1), Constant(2))))),
        ("`a` IS NOT NULL OR NOT `b`", Logic("OR", Negation(IsNull(A)), Negation(B))),
        ("`a` = `b` IS NULL", IsNull(Comparison("=", A, B))),
        ("`a` NOT LIKE '%x_'", Negation(Like(A, "%x_"))),
        (
            "CASE WHEN `a` THEN 1 WHEN `b` THEN 2 END",
            Case(((A, Constant(1)), (B, Constant(2))), None),
        ),
        ("CASE WHEN `a` THEN `b` ELSE 0 END", Case(((A, B),), Constant(0))),
        ("year(`a`)", Year(A)),
        ("`a`.x = 1", Comparison("=", Field("a", "x"), Constant(1))),
        ("`a` % 2 > 1", Comparison(">", Remainder(A, 2), Constant(1))),
        ("`a` + INTERVAL 1 DAY", Shift(A, 86_400_000_000)),
        ("`a` - INTERVAL '10' SECONDS", Shift(A, -10_000_000)),
        ("hour(`a`) = 1", Comparison("=", Call("hour", A), Constant(1))),
        ("LENGTH(replace(`a`, 'c', ''))", Call("length", Call("replace", A, ("c", "")))),
        ("split_part(`a`, '/', 4)", Call("split_part", A, ("/", 4))),
        (
            "date_format(`a`, 'yyyy-MM-dd HH:mm:ss')",
            Call("date_format", A, ("yyyy-MM-dd HH:mm:ss",)),
        ),
        ("substring(`a`, 1, 2)", Prefix(A, 2)),
        ("date '1998-12-01' - INTERVAL '90' day", day(1998, 9, 2)),
        ("DATE '2024-02-29' + INTERVAL '1' YEAR", day(2025, 2, 28)),
        ("date '2026-01-31' + INTERVAL 1 MONTH", day(2026, 2, 28)),
        ("date '2026-01-31' - INTERVAL 2 MONTHS", day(2025, 11, 30)),
    ],
)
def test_simple_expressions_are_trees(text: str, tree: Formula) -> None:
    assert formula(from_text(text)) == tree


@pytest.mark.parametrize(
    "text",
    [
        "`a` = 1e3",
        "`a` = 1L",
        "`a` = 1.5BD",
        "`a` = 12345678901",
        "`a` = NULL",
        "`a` <=> 1",
        "a.x = 1",
        "`a`.x.y = 1",
        "`a`[0] = 1",
        "`a` DIV 2 > 1",
        "`a` % `b` > 1",
        "`a` % 0 > 1",
        "`a` % -2 > 1",
        "`a` % 2.0 > 1",
        "mod(`a`, 2) > 1",
        "`a` IS TRUE",
        "`a` = 'a' 'b'",
        r"`a` = 'a\n'",
        r"`a` LIKE 'a\\%'",
        "`a` LIKE 'x!_' ESCAPE '!'",
        "`a` LIKE ANY ('x', 'y')",
        "`a` LIKE `b`",
        "`a` ILIKE 'x'",
        "CASE `a` WHEN 1 THEN 2 END",
        "CAST(`a` AS date) = `b`",
        "CAST('2026-01-01' AS DATE) = `b`",
        "CAST(`a` AS INT) = `b`",
        "TRY_CAST(1 AS INT) = `b`",
        "CAST('1' AS INT) = `b`",
        "CAST(1.5 AS INT) = `b`",
        "CAST(1 AS BIGINT) = `b`",
        "date '2026-13-01'",
        "date '2026-1-1'",
        "date '9999-12-31' + INTERVAL 1 DAY",
        "`a` + INTERVAL 1 MONTH",
        "`a` + INTERVAL 1.5 DAY",
        "`a` + INTERVAL '1' WEEK",
        "`a` + INTERVAL '1 2' DAY TO HOUR",
        "INTERVAL 1 DAY + `a`",
        "hour(`a`, 1)",
        "hour()",
        "length(1 + `a`, 'x')",
        "replace(`a`, '', 'b')",
        "replace(`a`, 'b')",
        "replace(`a`, `b`, 'c')",
        "split_part(`a`, '/', 0)",
        "split_part(`a`, '/', -1)",
        "split_part(`a`, '', 1)",
        "split_part(`a`, '/', '1')",
        "date_format(`a`, 'E')",
        "date_format(`a`, 'yyyyy')",
        "date_format(`a`, 'yyyy-M-d')",
        "date_format(`a`, \"yyyy'x'\")",
        "date_format(`a`, 'HH[mm]')",
        "date_format(`a`, `b`)",
        "date '2026-01-01' + INTERVAL 1 HOUR",
        "year(`a`, `b`)",
        "month(`a`)",
        "substring(`a`, 2, 2)",
        "substring(`a`, 1)",
        "substring(`a`, 1, `b`)",
        "-`a`",
        "`a` = TIMESTAMP '2026-01-01 00:00:00'",
        "`a` > ALL (1, 2)",
        "`a` || `b`",
        "`a` = `b` < `c`",
        "`a` < `b` IN (1, 2)",
        "`a` = `b` BETWEEN 1 AND 2",
        "`a` BETWEEN 1 AND 2 = `b`",
        "`a` = `b` LIKE 'x'",
        "`a` = NOT `b`",
        "`a` * -(1)",
        "`a` * - -1",
        "`a` * +1",
        "+`a` = 'a'",
        "CASE WHEN TRUE THEN 1 END",
        "1 BETWEEN `a` AND 5",
        "`a` LIKE '\U0001f600%x'",
        "date '2026-01-01' * INTERVAL 1 DAY",
        "date '2026-01-01' + INTERVAL 3 D",
        "date '2026-01-01' + INTERVAL '1' YEAR TO MONTH",
        "date '2026-01-01' + INTERVAL '-3' MONTH",
        "substring(`a`, TRUE, 1)",
        "substring(`a`, 1.0, 2)",
        "`a` IS UNKNOWN",
        " OR ".join(["`a` = 1"] * 900),
    ],
)
def test_all_else_is_left_to_spark(text: str) -> None:
    assert formula(from_text(text)) is None
