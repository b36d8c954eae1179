"""Which expressions over groups may fail, and so are evaluated when they come."""

from __future__ import annotations

import pytest
from circuits import circuit_of

from lockstep.sql.plans.nodes import Project
from lockstep_engine.judging import may_fail

SQL = """\
CREATE TABLE t (s STRING, n BIGINT) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = 'h:1', subscribe = 't');
CREATE MATERIALIZED VIEW v AS
SELECT %s AS x FROM (SELECT s, count(n) AS c FROM t GROUP BY s);
"""


@pytest.mark.parametrize(
    ("expression", "may"),
    [
        ("s", False),
        ("c > 3 AND s LIKE 'a%%'", False),
        ("CASE WHEN c > 3 THEN s END", False),
        ("c + 1", True),
        ("upper(s)", True),
        # Of a text Spark makes a timestamp first.
        ("hour(s)", True),
        ("CASE WHEN c > 3 THEN hour(s) END", True),
        ("date_format(s, 'yyyy') = '2026'", True),
        ("c %% 7", True),
    ],
)
def test_expressions_that_may_fail(expression: str, may: bool) -> None:
    circuit = circuit_of(SQL % expression.replace("%%", "%"))
    operators = {one.ref: one for one in circuit.operators}
    [outbox] = circuit.outboxes
    assert isinstance(operators[outbox.ref].node, Project)
    assert may_fail(operators, outbox.ref) is may
