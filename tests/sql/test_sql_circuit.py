"""Circuits: sharing, traces with names that last, append-only marks, costs; and how they print."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from sql_builders import SOURCES, check_golden, project
from sql_projects import FLIGHT_SOURCES, FLIGHTS, NEXMARK, NEXMARK_SOURCES

from lockstep.sql.circuit import Circuit, Cost, Operator, TraceKind, TraceSpec
from lockstep.sql.explain import explain, explain_data
from lockstep.sql.incremental import build_circuit
from lockstep.sql.plans.nodes import Aggregate, MultiwayJoin, Recursive, Scan


def circuit(sql: str, *, sources: str = SOURCES) -> Circuit:
    return build_circuit(project(sql, sources=sources))


def only(found: Circuit, kind: type) -> Operator:
    [operator] = [one for one in found.operators if isinstance(one.node, kind)]
    return operator


@pytest.mark.parametrize("name", NEXMARK)
def test_nexmark(name: str) -> None:
    found = project(f"CREATE MATERIALIZED VIEW {name} AS {NEXMARK[name]}", sources=NEXMARK_SOURCES)
    check_golden(f"plans/nexmark_{name}.txt", explain(found, build_circuit(found)))


def test_flights() -> None:
    found = project(FLIGHTS, sources=FLIGHT_SOURCES)
    text = explain(found, build_circuit(found))
    check_golden("plans/flights.txt", text)
    data = explain_data(found, build_circuit(found))
    check_golden("plans/flights.json", json.dumps(data, indent=1) + "\n")


TEMPORAL = {
    "recent": "SELECT a, b FROM t WHERE ts > current_timestamp() - INTERVAL 1 HOUR AND b > 0",
    "between": "SELECT a FROM t WHERE ts BETWEEN now() - INTERVAL 1 HOUR AND now()",
    "turned": "SELECT a FROM t WHERE now() < ts + INTERVAL 1 MONTH",
    "days": "SELECT a FROM t WHERE CAST(ts AS DATE) >= current_date - 7",
    "joined": "SELECT t.a, u.d FROM t JOIN u ON t.a = u.a AND t.ts > now()",
    "both_sides": "SELECT p.a FROM t p JOIN t q ON p.a = q.a WHERE greatest(p.ts, q.ts) > now()",
    "outer_join": "SELECT u.d, t.b FROM u LEFT JOIN t ON t.a = u.a AND t.ts > now()",
    "having": "SELECT a, max(ts) AS last FROM t GROUP BY a HAVING max(ts) < now()",
    "exists": "SELECT d FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.a = u.a AND ts > now())",
    "of_a_cte": "WITH young AS (SELECT * FROM t WHERE ts > now()) "
    "SELECT p.b FROM young p JOIN young q ON p.a = q.b",
}


@pytest.mark.parametrize("name", TEMPORAL)
def test_conditions_on_now(name: str) -> None:
    found = project(f"CREATE MATERIALIZED VIEW {name} AS {TEMPORAL[name]}")
    built = build_circuit(found)
    assert built.reads_time
    check_golden(f"plans/temporal_{name}.txt", explain(found, built))


def test_inputs_stand_first_and_uses_are_counted() -> None:
    found = circuit(
        "CREATE MATERIALIZED VIEW x AS SELECT a, count(*) AS n FROM t GROUP BY a;"
        "CREATE MATERIALIZED VIEW y AS SELECT n, count(*) AS m FROM x GROUP BY n;"
        "CREATE MATERIALIZED VIEW z AS SELECT a, n FROM x"
    )
    for operator in found.operators:
        assert all(ref < operator.ref for ref in operator.inputs)
    readers = [ref for one in found.operators for ref in one.inputs] + [
        o.ref for o in found.outboxes
    ]
    assert [one.uses for one in found.operators] == [
        readers.count(one.ref) for one in found.operators
    ]
    outboxes = {outbox.view: outbox for outbox in found.outboxes}
    assert outboxes["x"].ref == outboxes["z"].ref  # z is x, so that both read one operator
    assert outboxes["y"].table == "y_changes"


def test_temporary_views_that_nobody_reads_are_left_out() -> None:
    found = circuit(
        "CREATE TEMPORARY VIEW unused AS SELECT d FROM u; CREATE MATERIALIZED VIEW w AS SELECT a FROM t"
    )
    assert [operator.node for operator in found.operators] == [Scan("t", ("a",))]


def test_append_only() -> None:
    found = circuit(
        "CREATE VIEW w AS SELECT n, count(*) AS m FROM (SELECT a, count(*) AS n "
        "FROM t GROUP BY a) GROUP BY n;"
        "CREATE VIEW d AS SELECT DISTINCT a FROM t;"
        "CREATE VIEW j AS SELECT t.a FROM t JOIN u ON t.a = u.a;"
        "CREATE VIEW k AS SELECT n FROM w JOIN d ON w.n = d.a"
    )
    marks = {outbox.view: found.operators[outbox.ref].append_only for outbox in found.outboxes}
    assert marks == {"w": False, "d": True, "j": True, "k": False}


@pytest.mark.parametrize(
    ("read", "aggregates", "joins"),
    [
        ("c, s, n", 3, 1),
        ("c, s", 1, 0),
        ("n, c", 2, 0),
        ("c AS k", 1, 0),
        ("c, s, n, f", 3, 1),
        ("n, f", 2, 0),
        ("c, n, s FROM groups WHERE c = 'x'", 3, 1),
        ("c, s FROM groups WHERE c = 'x'", 1, 0),
    ],
)
def test_aggregates_that_nobody_reads_are_left_out(read: str, aggregates: int, joins: int) -> None:
    asked = read if "FROM" in read else f"{read} FROM groups"
    found = circuit(
        "CREATE VIEW w AS WITH groups AS (SELECT c, sum(b) AS s, count(DISTINCT a) AS n, "
        f"count(DISTINCT a) FILTER (WHERE b > 1) AS f FROM t GROUP BY c) SELECT {asked}"
    )
    nodes = [type(operator.node) for operator in found.operators]
    assert (nodes.count(Aggregate), nodes.count(MultiwayJoin)) == (aggregates, joins)


@pytest.mark.parametrize(
    ("calls", "traces"),
    [
        ("count(DISTINCT a), count(DISTINCT a) FILTER (WHERE b > 1)", 2),
        # No other call reads all of its values, which would have to be kept.
        ("count(DISTINCT a) FILTER (WHERE b < 1), count(DISTINCT a) FILTER (WHERE b > 1)", 4),
        # It is not evaluated where the condition is false.
        ("count(DISTINCT a / b), count(DISTINCT a / b) FILTER (WHERE b > 1)", 4),
    ],
)
def test_distinct_values_are_kept_once_for_several_conditions(calls: str, traces: int) -> None:
    found = circuit(f"CREATE VIEW w (c, n, k) AS SELECT c, {calls} FROM t GROUP BY c")
    assert len(found.traces) == traces


def test_join_traces_hold_the_read_columns_by_key() -> None:
    join = only(
        circuit("CREATE VIEW w AS SELECT t.b, e FROM t JOIN u ON t.a = u.a AND t.b > u.d"),
        MultiwayJoin,
    )
    shapes = [(trace.kind, trace.key, trace.columns) for trace in join.traces]
    assert shapes == [
        (TraceKind.ROWS, ("a",), ("b",)),
        (TraceKind.ROWS, ("a_1",), ("d", "e")),
    ]


def test_a_column_that_is_equated_twice_is_one_key_of_the_trace() -> None:
    join = only(
        circuit("CREATE VIEW w AS SELECT e FROM t JOIN u ON t.a = u.a AND t.a = u.d"), MultiwayJoin
    )
    assert [trace.key for trace in join.traces] == [("a",), ("a_1", "d")]


def test_equal_sides_share_a_trace_and_other_keys_do_not() -> None:
    both = "CREATE VIEW w AS SELECT x.c, y.c AS d FROM t x JOIN t y ON x.a = y.a"
    left, right = only(circuit(both), MultiwayJoin).traces
    assert (left.key, right.key) == (("a",), ("a_1",))
    again = circuit(
        both
        + "; CREATE VIEW v2 AS SELECT x.c, y.c AS d FROM t x JOIN t y ON x.a = y.a AND x.c < y.c"
    )
    joins = [one for one in again.operators if isinstance(one.node, MultiwayJoin)]
    assert [join.traces for join in joins] == [(left, right), (left, right)]
    assert len(again.traces) == 2


def test_aggregate_traces() -> None:
    found = circuit(
        "CREATE VIEW w AS SELECT n % 2 AS k, min(a) AS lo, max(a) AS hi, max(n) AS top, sum(n) AS s"
        " FROM (SELECT a, count(*) AS n FROM t GROUP BY a) GROUP BY n % 2"
    )
    lower, upper = (one for one in found.operators if isinstance(one.node, Aggregate))
    assert [(t.kind, t.key, t.columns) for t in lower.traces] == [
        (TraceKind.ACCUMULATORS, ("a",), ())
    ]
    assert [(t.kind, t.key, t.columns) for t in upper.traces] == [
        (TraceKind.ACCUMULATORS, ("_key0",), ()),
        (TraceKind.VALUES, ("_key0",), ("a",)),
        (TraceKind.VALUES, ("_key0",), ("n",)),
    ]


KEYED = SOURCES.replace("subscribe = 't'", "subscribe = 't', format = 'upsert', key = 'a'")
WITH_A_MAP = SOURCES.replace("t (", "t (m MAP<STRING, INT>, ")


@pytest.mark.parametrize(
    ("calls", "sources", "kinds"),
    [
        ("max_by(c, ts) AS x", SOURCES, [TraceKind.ACCUMULATORS]),
        ("MIN_BY(b, struct(ts, a)) AS x, count(*) AS n", SOURCES, [TraceKind.ACCUMULATORS]),
        ("max_by(c, ts) AS x, median(b) AS m", SOURCES, [TraceKind.ACCUMULATORS, TraceKind.ROWS]),
        ("max_by(c, ts) FILTER (WHERE b > 1) AS x", SOURCES, [TraceKind.ACCUMULATORS]),
        ("max_by(b + 1, ts) AS x", SOURCES, [TraceKind.ACCUMULATORS, TraceKind.ROWS]),
        ("max_by(m, ts) AS x", WITH_A_MAP, [TraceKind.ACCUMULATORS, TraceKind.ROWS]),
        ("max_by(c, ts) AS x", KEYED, [TraceKind.ROWS, TraceKind.ACCUMULATORS, TraceKind.ROWS]),
    ],
)
def test_of_rows_that_stay_the_greatest_is_remembered(
    calls: str, sources: str, kinds: list[TraceKind]
) -> None:
    found = circuit(
        f"CREATE MATERIALIZED VIEW w AS SELECT a, {calls} FROM t GROUP BY a", sources=sources
    )
    assert [trace.kind for operator in found.operators for trace in operator.traces] == kinds


@pytest.mark.parametrize(
    ("calls", "kinds"),
    [
        ("stddev(b) AS s, var_pop(b) AS v", [TraceKind.ACCUMULATORS]),
        ("regr_slope(a, b) FILTER (WHERE b > 0) AS r, corr(a, b) AS k", [TraceKind.ACCUMULATORS]),
        ("STDDEV(b) AS s, median(b) AS m", [TraceKind.ACCUMULATORS, TraceKind.ROWS]),
        ("kurtosis(b) AS k", [TraceKind.ACCUMULATORS, TraceKind.ROWS]),
    ],
)
def test_of_a_spread_sums_are_remembered_and_no_rows(calls: str, kinds: list[TraceKind]) -> None:
    sources = SOURCES.replace("subscribe = 't'", "subscribe = 't', format = 'debezium'")
    found = circuit(f"CREATE MATERIALIZED VIEW w AS SELECT {calls} FROM t", sources=sources)
    last = [operator for operator in found.operators if isinstance(operator.node, Aggregate)][-1]
    assert [trace.kind for trace in last.traces] == kinds
    assert last.cost is (Cost.STATE if TraceKind.ROWS in kinds else Cost.CHANGE)


def test_products_cost_what_the_state_costs() -> None:
    product = only(circuit("CREATE VIEW w AS SELECT t.a FROM t JOIN u ON t.a < u.a"), MultiwayJoin)
    keyed = only(circuit("CREATE VIEW w AS SELECT t.a FROM t JOIN u ON t.a = u.a"), MultiwayJoin)
    assert (product.cost, keyed.cost) == (Cost.STATE, Cost.CHANGE)


FIXED = "CREATE VIEW w AS SELECT t.b, max(e) AS m FROM t JOIN u ON t.a = u.a GROUP BY t.b"
FIXED_TRACES = (
    "_trace_43c3b113b629b474",
    "_trace_677e448e85b16cdd",
    "_trace_cbcd236c43cb28b6",
)


def _tables(traces: tuple[TraceSpec, ...]) -> tuple[str, ...]:
    return tuple(trace.table for trace in traces)


def test_trace_names_are_these_for_ever() -> None:
    """A change of these names orphans the state of every pipeline that is deployed."""
    assert _tables(circuit(FIXED).traces) == FIXED_TRACES


def test_trace_names_are_the_same_in_another_process() -> None:
    code = (
        "from sql_builders import project; from lockstep.sql.incremental import build_circuit\n"
        f"print(*[t.table for t in build_circuit(project({FIXED!r})).traces])"
    )
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=here
    )
    assert tuple(done.stdout.split()) == FIXED_TRACES


@pytest.mark.parametrize(
    "changed",
    [
        SOURCES.replace("b INT", "b BIGINT"),
        SOURCES.replace("subscribe = 't'", "subscribe = 't2'"),
        SOURCES.replace("a INT, b INT", "a INT NOT NULL, b INT"),
    ],
)
def test_another_declaration_is_another_trace(changed: str) -> None:
    assert changed != SOURCES
    left, right, grouped = _tables(circuit(FIXED, sources=changed).traces)
    same = [a == b for a, b in zip((left, right, grouped), FIXED_TRACES, strict=True)]
    assert same == [False, True, False]


def test_spacing_comments_and_other_views_do_not_rename_traces() -> None:
    other = (
        "CREATE VIEW first AS SELECT c FROM t WHERE b > 3;\n"
        "create materialized view w as -- the same\n"
        "select T.b, MAX( e ) as m from t join u on T.A=u.a group by t . b"
    )
    assert set(FIXED_TRACES) <= set(_tables(circuit(other).traces))


REACHED = (
    "WITH RECURSIVE r (x, y, e, n) {limit} AS (SELECT a, d, e, 1 FROM u WHERE e <> '' UNION ALL "
    "SELECT r.x, u.d, u.e, n + 1 FROM r JOIN u ON r.y = u.a WHERE n < 9) "
)


def test_recursion() -> None:
    query = REACHED.format(limit="")
    found = project(
        f"CREATE VIEW reached AS {query} SELECT x, y FROM r;"
        f"CREATE VIEW nearest AS {query} SELECT x, min(n) AS n FROM r GROUP BY x;"
        "CREATE VIEW above AS WITH RECURSIVE r AS (SELECT d FROM v UNION ALL SELECT f FROM r "
        "LEFT JOIN v ON r.d = v.d) SELECT d FROM r"
    )
    text = explain(found, build_circuit(found))
    check_golden("plans/recursion.txt", text)
    data = explain_data(found, build_circuit(found))
    check_golden("plans/recursion.json", json.dumps(data, indent=1) + "\n")


def test_a_recursion_remembers_what_is_read_of_it() -> None:
    """Not the column e, which nobody reads."""
    query = REACHED.format(limit="")
    one = only(circuit(f"CREATE VIEW w AS {query} SELECT x, y FROM r"), Recursive)
    assert [(trace.key, trace.columns) for trace in one.traces] == [
        (("d",), ("a", "_col3", "_level")),
        (("a_1",), ("d_1",)),
    ]


def test_the_limit_of_a_recursion_is_no_part_of_its_state() -> None:
    first, second = (
        only(
            circuit(f"CREATE VIEW w AS {REACHED.format(limit=text)} SELECT x, y FROM r"), Recursive
        )
        for text in ("", "MAX RECURSION LEVEL 500")
    )
    assert first.traces == second.traces
    assert (first.node.limit, second.node.limit) == (100, 500)
