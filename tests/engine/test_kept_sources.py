"""Which sources' deltas need not be kept, as one action reads them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "sql"))
from sql_builders import project

from lockstep.sql.incremental import build_circuit
from lockstep_engine.evaluation import read_once

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
