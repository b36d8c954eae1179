"""What operators read of one another: sources of which nothing need be kept, times that nobody reads."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "sql"))
from sql_builders import project

from lockstep.sql.incremental import build_circuit
from lockstep.sql.plans.nodes import Aggregate, TimeWindow
from lockstep_engine.local.evaluation import sources_of_use
from lockstep_engine.reading import read_once, times_read, unread_times

ONCE = "CREATE MATERIALIZED VIEW one AS SELECT a + 1 AS x FROM t WHERE b > 0;"
LISTED = "CREATE MATERIALIZED VIEW two AS SELECT DISTINCT x FROM one;"


@pytest.mark.parametrize(
    ("sql", "sources"),
    [
        (ONCE, {"t"}),
        (ONCE + "CREATE MATERIALIZED VIEW two AS SELECT x FROM one WHERE x > 1;", set()),
        (ONCE + LISTED, set()),
        ("CREATE MATERIALIZED VIEW one AS SELECT a FROM t UNION ALL SELECT a FROM u", {"t", "u"}),
        ("CREATE MATERIALIZED VIEW one AS SELECT a FROM t UNION ALL SELECT b FROM t", set()),
        ("CREATE MATERIALIZED VIEW one AS SELECT a FROM t UNION SELECT a FROM u", set()),
        ("CREATE MATERIALIZED VIEW one AS SELECT a, count(*) AS n FROM t GROUP BY a", set()),
        ("CREATE MATERIALIZED VIEW one AS SELECT t.a FROM t JOIN u ON t.a = u.a", set()),
        ("CREATE MATERIALIZED VIEW one AS SELECT a FROM t WHERE ts > now()", set()),
    ],
)
def test_a_delta_is_read_once_where_nothing_keeps_state(sql: str, sources: set[str]) -> None:
    assert read_once(build_circuit(project(sql))) == sources


@pytest.mark.parametrize(
    ("query", "sources"),
    [
        ("SELECT a + 1 AS x FROM t WHERE b > 0", {"t"}),
        ("SELECT t.a, max(u.d) AS d FROM t JOIN u ON t.a = u.a GROUP BY t.a", {"t", "u"}),
        ("SELECT a FROM t UNION ALL SELECT a FROM u", {"t", "u"}),
        ("SELECT a FROM t WHERE ts > now()", set()),
        ("SELECT u.a FROM u JOIN (SELECT a FROM t WHERE ts > now()) AS t ON t.a = u.a", set()),
        ("SELECT a, median(b) AS b FROM t GROUP BY a", set()),
    ],
)
def test_rows_are_of_use_where_several_are_worked_out_or_shown(
    query: str, sources: set[str]
) -> None:
    circuit = build_circuit(project(f"CREATE MATERIALIZED VIEW one AS {query};"))
    assert sources_of_use(circuit) == sources


HOPPING = "window(ts, '10 seconds', '2 seconds')"


@pytest.mark.parametrize(
    ("sql", "is_unread"),
    [
        (f"SELECT a, count(*) AS n FROM t GROUP BY a, {HOPPING}", True),
        (f"SELECT count(*) AS n FROM t GROUP BY {HOPPING} HAVING min(b) > 1", True),
        ("SELECT count(*) AS n FROM t GROUP BY window(ts, '10 seconds')", False),
        (f"SELECT a, max(ts) AS last FROM t GROUP BY a, {HOPPING}", False),
        (f"SELECT a, max(w.start) AS n FROM (SELECT a, {HOPPING} AS w FROM t) GROUP BY a", True),
        (f"SELECT a, {HOPPING} AS w FROM t", False),
    ],
)
def test_a_time_is_unread_where_only_its_windows_are_aggregated(sql: str, is_unread: bool) -> None:
    circuit = build_circuit(project(f"CREATE MATERIALIZED VIEW one AS {sql};"))
    windows = {op.ref for op in circuit.operators if isinstance(op.node, TimeWindow)}
    assert len(windows) == 1
    assert unread_times(circuit) == (windows if is_unread else set())


def test_a_time_is_read_where_one_view_of_several_reads_it() -> None:
    many = (
        f"CREATE TEMPORARY VIEW w AS SELECT a, ts, {HOPPING} AS w FROM t;"
        "CREATE MATERIALIZED VIEW one AS SELECT w, count(*) AS n FROM w GROUP BY w;"
        "CREATE MATERIALIZED VIEW two AS SELECT w, max(ts) AS last FROM w GROUP BY w;"
    )
    assert unread_times(build_circuit(project(many))) == set()


GROUPED = "CREATE MATERIALIZED VIEW one AS SELECT a, {} FROM t JOIN u USING (a) GROUP BY a;"


@pytest.mark.parametrize(
    ("calls", "is_small", "times"),
    [
        ("count(*) AS n, max(b) AS most", False, 1),
        ("count(*) AS n, max(b) AS most", True, 3),
        ("sum(b) AS n", False, 3),
        ("collect_list(b) AS n", False, 3),
    ],
)
def test_an_aggregate_that_keeps_a_large_change_merged_reads_it_once(
    calls: str, is_small: bool, times: int
) -> None:
    circuit = build_circuit(project(GROUPED.format(calls)))
    [aggregate] = [op for op in circuit.operators if isinstance(op.node, Aggregate)]
    assert times_read(circuit, is_small=is_small)[aggregate.inputs[0]] == times
