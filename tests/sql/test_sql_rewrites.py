"""Rewrites: each rule alone under a golden file, all of them under random plans."""

from __future__ import annotations

import os
from dataclasses import replace

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sql_builders import bag, check_golden, outline, plan_sql, raw_plan

from lockstep.sql.names import fresh_name
from lockstep.sql.plans import join_rewrites, rewrites
from lockstep.sql.plans.expressions import (
    comparison,
    conjuncts,
    equality,
    ordered,
    rejects_nulls,
    substitute,
    upper_bound,
)
from lockstep.sql.plans.nodes import (
    Aggregate,
    AggregateCall,
    AggregateFunction,
    Expression,
    Filter,
    Generate,
    Join,
    JoinKind,
    Node,
    Output,
    Project,
    Scan,
    SortKey,
    TimeWindow,
    UnionAll,
    Weigh,
    Window,
    WindowCall,
)
from lockstep.sql.plans.pruning import prune

T = Scan("t", ("a", "b"))
U = Project(
    Scan("u", ("a", "d")),
    (Output("x", Expression("`a`", ("a",))), Output("d", Expression("`d`", ("d",)))),
)

IS_LARGE = os.environ.get("LOCKSTEP_LAW") == "large"


def where(node: Node, text: str, *names: str) -> Filter:
    return Filter(node, Expression(text, names))


def select(node: Node, **outputs: str) -> Project:
    names = node.columns
    return Project(
        node,
        tuple(
            Output(name, Expression(text, tuple(n for n in names if f"`{n}`" in text)))
            for name, text in outputs.items()
        ),
    )


AB = Join(T, U, (), ())
MIXED = "`a` > 1 AND `d` > 1 AND `b` > `d`"
LEFT = Join(T, U, ("a",), ("x",), kind=JoinKind.LEFT)
COUNT = AggregateCall("n", AggregateFunction.COUNT, None)
FIRST = WindowCall("r", Expression("row_number()"), (SortKey(Expression("`b`", ("b",))),))
RANKED = Window(T, ("a",), (FIRST,))
COUNTED = WindowCall("r", Expression("count(*)"), FIRST.order)

RULES: dict[str, tuple[Node, ...]] = {
    "split_filters": (
        where(T, "`a` > 1 AND (`b` < 2 OR `b` = 3) AND (`a` > 2 AND `b` > 1)", "a", "b"),
    ),
    "factor_filters": (
        where(T, "(`a` = 1 AND `b` > 2) OR (`b` < 1 AND `a` = 1)", "a", "b"),
        where(T, "`a` = 1 OR (`a` = 1 AND `b` > 2)", "a", "b"),
        where(T, "`a` = 1 OR `b` = 1", "a", "b"),
    ),
    "drop_true_filters": (where(T, "true"),),
    "filter_below_project": (
        where(select(T, s="`a` + `b`", k="'it''s `s`'"), "`s` * 2 > 1 AND `k` = '`s`'", "s", "k"),
    ),
    "filter_below_union": (
        where(UnionAll((T, T)), "`a` > 1", "a"),
        where(UnionAll((T, T)), "NOT (`a` IN (1, 2 + 3) OR `b` IS NULL)", "a", "b"),
        where(UnionAll((T, T)), "`a` + INTERVAL 1 HOUR > now()", "a"),
        where(UnionAll((T, T)), "`a` * `b` > 1", "a", "b"),
        where(UnionAll((T, T)), "CAST(`a` AS STRING) = '1'", "a"),
    ),
    "filter_below_time_window": (
        where(TimeWindow(T, "w", "b", "10 seconds", "5 seconds"), "`a` > 1", "a"),
        where(TimeWindow(T, "w", "b", "10 seconds", "5 seconds"), "`w`.start > `b`", "w", "b"),
    ),
    "filter_below_generate": (
        where(Generate(T, Expression("explode(array(`a`))", ("a",)), ("e",)), "`b` > 1", "b"),
        where(Generate(T, Expression("explode(array(`a`))", ("a",)), ("e",)), "`e` > 1", "e"),
    ),
    "filter_below_weigh": (where(Weigh(T, Expression("-1")), "`a` > 1", "a"),),
    "filter_below_window": (
        where(Window(T, ("a",), (FIRST,)), "`a` > 1", "a"),
        where(Window(T, ("a",), (FIRST,)), "`b` > 1", "b"),
    ),
    "limit_ranks": (
        where(RANKED, "`a` > 1 AND `r` <= 3 AND 2 >= `r`", "a", "r"),
        where(RANKED, "`r` = 1", "r"),
        where(RANKED, "`r` BETWEEN 2 AND 4", "r"),
        where(RANKED, "`r` < 1", "r"),
        where(RANKED, "`r` <= `a`", "r", "a"),
        where(RANKED, "`r` > 3", "r"),
        where(Window(T, ("a",), (FIRST, replace(FIRST, name="s"))), "`r` <= 3", "r"),
        where(Window(T, ("a",), (COUNTED,)), "`r` <= 3", "r"),
    ),
    "filter_below_aggregate": (
        where(Aggregate(T, ("a",), (COUNT,)), "`a` > 1", "a"),
        where(Aggregate(T, ("a",), (COUNT,)), "`n` > 1", "n"),
        where(Aggregate(T, (), (COUNT,)), "1 = 0"),
        where(Aggregate(T, ("a",), (COUNT,)), "`a` > now()", "a"),
    ),
    "filter_into_join_side": (
        where(AB, "`a` > 1", "a"),
        where(AB, "`x` > 1", "x"),
        where(AB, "`a` > `x`", "a", "x"),
    ),
    "equality_to_join_key": (
        where(AB, "`a` = `x`", "a", "x"),
        where(AB, "`x` + 1 = `a` * 2", "a", "x"),
        where(AB, "(`x` = `a`)", "a", "x"),
        where(AB, "`a` + `x` = 3", "a", "x"),
        where(AB, "`a` = `b`", "a", "b"),
    ),
    "outer_to_inner": (
        where(LEFT, "`x` > 1", "x"),
        where(LEFT, "`x` IS NULL AND `a` > 1", "x", "a"),
        where(replace(LEFT, kind=JoinKind.FULL), "`x` > 1", "x"),
        where(replace(LEFT, kind=JoinKind.FULL), "`a` > 1", "a"),
        where(replace(LEFT, kind=JoinKind.FULL), "`a` > `x`", "a", "x"),
    ),
    "condition_into_side": tuple(
        replace(
            AB,
            kind=kind,
            condition=Expression("`a` > 1 AND `d` > 1 AND `b` > `d`", ("a", "d", "b")),
        )
        for kind in JoinKind
    ),
    "condition_to_join_keys": (
        replace(
            AB,
            kind=JoinKind.LEFT,
            condition=Expression("`b` > `d` AND `a` = `x`", ("b", "d", "a", "x")),
        ),
        replace(AB, kind=JoinKind.SEMI, condition=Expression("`a` + 1 <=> `x`", ("a", "x"))),
    ),
    "semi_below_project": (
        Join(select(T, k="`a`", s="`a` + `b`"), U, ("k",), ("x",), kind=JoinKind.ANTI),
        Join(select(T, k="`a`", s="`a` + `b`"), U, ("s",), ("x",), kind=JoinKind.SEMI),
    ),
    "semi_below_inner": (
        Join(AB, Scan("v", ("d_1", "f")), ("a",), ("f",), kind=JoinKind.SEMI),
        Join(AB, Scan("v", ("d_1", "f")), ("d",), ("f",), kind=JoinKind.ANTI),
        Join(LEFT, Scan("v", ("d_1", "f")), ("d",), ("f",), kind=JoinKind.ANTI),
    ),
    "distinct_below_semi": (
        Join(T, Aggregate(U, ("x", "d"), ()), ("a",), ("x",), kind=JoinKind.SEMI),
        Join(T, Aggregate(U, ("x",), ()), ("a",), ("x",), kind=JoinKind.SEMI),
    ),
    "connect_cross_joins": (
        Join(AB, Scan("v", ("d_1", "f")), ("a",), ("d_1",)),
        Join(AB, Scan("v", ("d_1", "f")), ("x",), ("d_1",)),
        Join(
            AB,
            Scan("v", ("d_1", "f")),
            ("a", "d"),
            ("f", "d_1"),
            Expression("`b` > `f`", ("b", "f")),
        ),
    ),
    "flatten_unions": (UnionAll((UnionAll((T, T)), T)),),
    "merge_projections": (
        select(select(T, s="`a` + `b`", c="`a`"), x="`s` * 2", y="`c` + `c`"),
        select(select(T, s="`a` + `b`"), x="`s` * `s`"),
        select(select(T, s="`a` + `b`"), x="`s`", y="`s`"),
        select(select(T, v="`a`", w="`b`"), x="transform(array(1), b -> b + `w`)"),
    ),
    "drop_identity_projections": (select(T, a="`a`", b="`b`"), select(T, b="`b`", a="`a`")),
    "filter_into_join_condition": (where(where(AB, "`a` > `x`", "a", "x"), "`b` < `d`", "b", "d"),),
    "merge_filters": (
        where(where(where(T, "`a` > 1", "a"), "`b` > 1 OR `a` > 2", "a", "b"), "`b` < 9", "b"),
    ),
}


def test_every_rule_is_shown() -> None:
    assert {rule.__name__ for rule in (*rewrites.PASSES, *rewrites.FINAL)} == set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_rule(name: str) -> None:
    rule = getattr(rewrites, name, None) or getattr(join_rewrites, name)
    parts = []
    for node in RULES[name]:
        after = rewrites.everywhere(rule, node)
        assert after.columns == node.columns
        parts.append(f"{outline(node)}\n→\n{'(as it is)' if after == node else outline(after)}\n")
    check_golden(f"rules/{name}.txt", "\n".join(parts))


def test_pruning() -> None:
    plan = select(
        where(
            Join(Scan("t", ("a", "b", "c")), Scan("u", ("x", "d", "e")), ("a",), ("x",)),
            "`b` > `d`",
            "b",
            "d",
        ),
        c="`c`",
    )
    count = Aggregate(
        Scan("t", ("a", "b")), (), (COUNT, AggregateCall("s", AggregateFunction.SUM, "b"))
    )
    unions = select(UnionAll((T, T)), b="`b`")
    plans = (plan, select(count, n="`n`"), unions)
    check_golden(
        "rules/prune.txt",
        "\n\n".join(f"{outline(p)}\n→\n{outline(prune(p))}" for p in plans) + "\n",
    )


def test_conjuncts_are_those_of_the_top() -> None:
    texts = [
        part.text for part in conjuncts(Expression("`a` BETWEEN 1 AND 2 AND NOT (`b` AND `c`)"))
    ]
    assert texts == ["`a` BETWEEN 1 AND 2", "NOT (`b` AND `c`)"]


def test_equality_knows_null_safe_equality() -> None:
    sides = (Expression("`a`", ("a",)), Expression("`b`", ("b",)))
    assert equality(Expression("`a` <=> `b`")) == (*sides, True)
    assert equality(Expression("((`a` = `b`))")) == (*sides, False)
    assert equality(Expression("`a` < `b`")) is None


def test_a_bound_of_a_rank_is_also_told_by_a_column_of_a_constant() -> None:
    bound = substitute(
        Expression("`r` < `k`", ("r", "k")),
        {"r": Expression("`r`", ("r",)), "k": Expression("3")},
    )
    assert bound is not None
    assert upper_bound(bound, Expression("`r`", ("r",))) == 2


def test_of_comparisons_in_a_row_nothing_is_said() -> None:
    """Spark reads (a = b) < c, and a tree that says a = (b < c) would be another condition."""
    assert equality(Expression("`a` = `b` < `c`")) is None
    assert equality(Expression("(`a` = (`b` < `c`))")) is not None
    assert comparison(Expression("`a` < `b` IN (TRUE, FALSE)")) is None
    assert comparison(Expression("`a` < `b`")) is not None
    assert ordered(Expression("`a` BETWEEN 1 AND `b` = `c`")) == ()
    assert len(ordered(Expression("`a` BETWEEN 1 AND `b`"))) == 2


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("`a` + 1 > `b`", {"a", "b"}),
        ("coalesce(`a`, 0) > `b`", {"b"}),
        ("`a` IS NOT NULL", {"a"}),
        ("`a` IS NULL", set()),
        ("`a` <=> `b`", set()),
        ("`a` > 1 OR `b` > 1", set()),
        ("`a` BETWEEN 1 AND `b`", {"a", "b"}),
        ("NOT `a` = 1", set()),
    ],
)
def test_null_rejection(text: str, names: set[str]) -> None:
    assert rejects_nulls(Expression(text)) == names


def test_substitution_knows_literals_fields_and_signs() -> None:
    found = substitute(
        Expression("concat('`a`', `a`.`a`, -`b`, \"`b`\")", ("a", "b")),
        {"a": Expression("f(`x`)", ("x",)), "b": Expression("-1")},
    )
    assert found == Expression("concat('`a`', (f(`x`)).`a`, -CAST(-1 AS INT), \"`b`\")", ("x",))


@pytest.mark.parametrize(
    ("text", "put"),
    [
        ("7", "CAST(7 AS INT)"),
        ("((7))", "CAST(((7)) AS INT)"),
        ("(-2147483648)", "CAST((-2147483648) AS INT)"),
        ("2147483648", "CAST(2147483648 AS BIGINT)"),
        ("7l", "CAST(7l AS BIGINT)"),
        ("7S", "CAST(7S AS SMALLINT)"),
        ("7Y", "CAST(7Y AS TINYINT)"),
        ("9223372036854775808", "9223372036854775808"),
        ("7.0", "7.0"),
        ("7BD", "7BD"),
    ],
)
def test_a_whole_number_stands_for_a_column_with_its_type(text: str, put: str) -> None:
    """Beside a decimal Spark takes a literal to have as many digits as it is written with."""
    column = {"n": Expression(text)}
    assert substitute(
        Expression("`n` * `m`", ("n", "m")), column | {"m": Expression("`m`", ("m",))}
    ) == (Expression(f"{put} * `m`", ("m",)))
    assert substitute(Expression("`n`", ("n",)), column) == Expression(text)


# ── random plans ────────────────────────────────────────────────────────────────────────────────

_COMPARISONS = ("=", "<", ">", "<>")


@st.composite
def _predicate(draw: st.DrawFn, columns: tuple[str, ...]) -> Expression:
    parts, names = [], []
    for _ in range(draw(st.integers(1, 3))):
        left, right = draw(st.sampled_from(columns)), draw(st.sampled_from(columns))
        sign = draw(st.sampled_from(_COMPARISONS))
        if draw(st.booleans()):
            parts.append(
                f"`{left}` + 1 {sign} `{right}`"
                if draw(st.booleans())
                else f"`{left}` {sign} `{right}`"
            )
            names += [left, right]
        else:
            parts.append(f"`{left}` {sign} {draw(st.integers(0, 3))}")
            names.append(left)
    return Expression(" AND ".join(parts), tuple(dict.fromkeys(names)))


@st.composite
def _outputs(draw: st.DrawFn, columns: tuple[str, ...], names: list[str]) -> tuple[Output, ...]:
    outputs = []
    for name in names:
        one, other = draw(st.sampled_from(columns)), draw(st.sampled_from(columns))
        expression = draw(
            st.sampled_from(
                [
                    Expression.column(one),
                    Expression(f"`{one}` + `{other}`", tuple(dict.fromkeys((one, other)))),
                    Expression(f"-`{one}`", (one,)),
                    Expression("2"),
                ]
            )
        )
        outputs.append(Output(name, expression))
    return tuple(outputs)


@st.composite
def _aggregates(draw: st.DrawFn, below: Node) -> Aggregate:
    keys = tuple(draw(st.lists(st.sampled_from(below.columns), max_size=2, unique=True)))
    argument = draw(st.sampled_from(below.columns))
    return Aggregate(
        below,
        keys,
        (
            AggregateCall("agg_n", AggregateFunction.COUNT, None),
            AggregateCall(
                "agg_m",
                draw(st.sampled_from([AggregateFunction.MAX, AggregateFunction.SUM])),
                argument,
            ),
        )
        if "agg_n" not in keys and "agg_m" not in keys
        else (AggregateCall(fresh_name("other", keys), AggregateFunction.COUNT, None),),
    )


@st.composite
def _plans(draw: st.DrawFn, depth: int = 3) -> Node:
    if depth == 0:
        return Scan("t", ("a", "b", "c"))
    below = draw(_plans(depth=depth - 1))
    kind = draw(
        st.sampled_from(["filter", "filter", "project", "join", "join", "union", "aggregate"])
    )
    if kind == "filter":
        return Filter(below, draw(_predicate(below.columns)))
    if kind == "project":
        names = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True))
        return Project(below, draw(_outputs(below.columns, names)))
    if kind == "join":
        return draw(_joins(below, depth))
    if kind == "union":
        return UnionAll((below, Project(below, draw(_outputs(below.columns, list(below.columns))))))
    return draw(_aggregates(below))


@st.composite
def _joins(draw: st.DrawFn, below: Node, depth: int) -> Node:
    """A product under a filter; where the names would clash, the input itself."""
    other = draw(_plans(depth=draw(st.integers(0, depth - 1))))
    renamed = Project(
        other,
        tuple(Output(f"{name}{depth}", Expression.column(name)) for name in other.columns),
    )
    if set(renamed.columns) & set(below.columns):
        return below
    columns = (*below.columns, *renamed.columns)
    kind = draw(st.sampled_from(JoinKind))
    predicate = draw(_predicate(columns))
    if kind is JoinKind.INNER:
        return Filter(Join(below, renamed, (), ()), predicate)
    join = Join(below, renamed, (), (), predicate, kind)
    return Filter(join, draw(_predicate(join.columns))) if draw(st.booleans()) else join


_ROWS = st.lists(st.tuples(*[st.one_of(st.none(), st.integers(0, 3))] * 3), min_size=0, max_size=6)


@settings(max_examples=5000 if IS_LARGE else 80)
@given(plan=_plans(), rows=_ROWS)
def test_random_plans_keep_their_meaning(
    plan: Node, rows: list[tuple[int | None, int | None, int | None]]
) -> None:
    after = rewrites.rewrite(plan)
    assert after.columns == plan.columns
    assert rewrites.rewrite(after).columns == plan.columns
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (a BIGINT, b BIGINT, c BIGINT)")
        for row in rows:
            connection.execute("INSERT INTO t VALUES (?, ?, ?)", row)
        assert bag(connection, plan_sql(after)) == bag(connection, plan_sql(plan))


def test_rewriting_is_the_same_every_time() -> None:
    query = "SELECT t.a, e FROM t, u, v WHERE t.a = u.a AND u.d + 1 = v.d AND b > 0 AND f > b"
    assert rewrites.rewrite(raw_plan(query)) == rewrites.rewrite(raw_plan(query))
    once = rewrites.rewrite(raw_plan(query))
    assert outline(rewrites.rewrite(once)) == outline(once)
