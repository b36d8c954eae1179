"""What a recursion says where it does not end, and that its change is no more than what changed."""

from __future__ import annotations

import pyarrow as pa
import pytest
from intervals import Runner, as_frame, changes_of
from pyspark.sql import SparkSession

from lockstep.errors import WrongUse
from lockstep.sql.circuit import Circuit, ProjectFiles
from lockstep.sql.incremental import build_circuit
from lockstep.sql.project import parse_project
from lockstep.zset import ZSet

pytestmark = pytest.mark.spark

SPEC = """\
name: recursion
storage: file:///tmp/recursion
libraries:
  - glob: {include: transformations/**}
"""
EDGES = (
    "CREATE TABLE e (x INT, y INT) USING iceberg OPTIONS (table = 'lake.shop.e');\n"
    "CREATE MATERIALIZED VIEW w AS\n"
)
REACHED = "SELECT y FROM e WHERE x = 0 UNION ALL SELECT e.y FROM r JOIN e ON e.x = r.y"

Edge = tuple[int, int, int, int]
"""x, y, weight, step."""


def circuit_of(query: str) -> Circuit:
    return build_circuit(parse_project(ProjectFiles(SPEC, (("views.sql", EDGES + query),)), {}))


def run(
    spark: SparkSession, runner: Runner, changes: list[Edge], interval: tuple[int, int]
) -> list[tuple[tuple[int, ...], int, int]]:
    names = {"x": pa.int32(), "y": pa.int32(), "_weight": pa.int64(), "_step": pa.int64()}
    columns = zip(*changes, strict=True)
    arrays = {n: pa.array(c, kind) for (n, kind), c in zip(names.items(), columns, strict=True)}
    delta = as_frame(spark, pa.table(arrays))
    return changes_of(runner.run({"e": delta}, interval, 100, False)["w"])


def test_a_cycle_that_goes_again_leaves_what_was(spark: SparkSession) -> None:
    """Two paths that become a cycle within an interval and are a path again at its end, and in the same
    step the cycle comes and what leads to it goes."""
    query = f"WITH RECURSIVE r AS ({REACHED}) SELECT y FROM r"
    runner = Runner(spark, circuit_of(query))
    path = [(0, 1, 1, 0), (1, 2, 1, 0), (2, 3, 1, 0)]
    first = run(spark, runner, path, (0, 0))
    assert ZSet((row, w) for row, w, _ in first) == ZSet([((1,), 1), ((2,), 1), ((3,), 1)])
    turned = [(0, 1, -1, 1), (3, 1, 1, 1), (3, 1, -1, 2), (0, 3, 1, 2), (3, 4, 1, 3)]
    second = run(spark, runner, turned, (1, 3))
    by_step = {s: ZSet((row, w) for row, w, at in second if at == s) for s in (1, 2, 3)}
    assert by_step[1] == ZSet([((1,), -1), ((2,), -1), ((3,), -1)])
    assert by_step[2] == ZSet([((3,), 1)])
    assert by_step[3] == ZSet([((4,), 1)])


def test_a_cycle_ends_at_the_limit(spark: SparkSession) -> None:
    query = f"WITH RECURSIVE r MAX RECURSION LEVEL 4 AS ({REACHED}) SELECT y FROM r"
    runner = Runner(spark, circuit_of(query))
    run(spark, runner, [(0, 1, 1, 0), (1, 2, 1, 0), (2, 3, 1, 0), (3, 4, 1, 0)], (0, 0))
    with pytest.raises(WrongUse) as caught:
        run(spark, runner, [(3, 1, 1, 1)], (1, 1))
    assert "the recursion r (views.sql:3:16) has rows beyond its limit of 4 levels" in str(
        caught.value
    )
    assert "MAX RECURSION LEVEL" in caught.value.next_step


def test_the_anchors_types_rule(spark: SparkSession) -> None:
    step = "SELECT x + 1L FROM r WHERE x < 3"
    query = f"WITH RECURSIVE r AS (SELECT x FROM e UNION ALL {step}) SELECT x FROM r"
    with pytest.raises(WrongUse) as caught:
        run(spark, Runner(spark, circuit_of(query)), [(0, 1, 1, 0)], (0, 0))
    assert "makes x of a type that its anchor cannot hold" in str(caught.value)
    assert caught.value.expected == "int, as in the anchor"
