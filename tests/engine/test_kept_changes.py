"""What is kept is computed once, wherever in a plan it stands: Spark looks it up by equal plans."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession

sys.path.insert(0, str(Path(__file__).parents[1] / "sql"))
from sql_builders import project

from lockstep.sql.incremental import build_circuit
from lockstep_engine.before import Before
from lockstep_engine.context import Context, configure_session
from lockstep_engine.evaluation import Evaluated, evaluate_circuit

pytestmark = pytest.mark.spark

Appended = Callable[[str, DataFrame], None]

NOTHING = Before(lambda _: None, lambda *_: pytest.fail("no tables"), lambda _: 0, lambda _: 0)
# As Nexmark's q5: what is most by a group's window, joined with the groups.
MOST = """
CREATE TEMPORARY VIEW n AS SELECT a, {by} AS w, count(*) AS num FROM t GROUP BY a, {by};
CREATE MATERIALIZED VIEW one AS SELECT n.a, n.num FROM n
JOIN (SELECT w, max(num) AS most FROM n GROUP BY w) AS m ON n.w = m.w AND n.num >= m.most;
"""
# As Nexmark's q18 and q19: of rows that stay only the first are remembered.
FIRST = """
CREATE MATERIALIZED VIEW one AS SELECT a, c FROM (
  SELECT *, row_number() OVER (PARTITION BY a ORDER BY ts, c) AS place FROM t
) WHERE place <= {};
"""


def source_rows(spark: SparkSession) -> DataFrame:
    """A change of all sources, which is kept. No other is equal to it: the server, which other processes
    ask at the same time, lets go of all equal plans with one of them."""
    return spark.range(50).where(f"'{uuid4()}' <> ''").selectExpr(
        "CAST(id % 7 AS int) a", "CAST(id % 3 AS string) c", "timestamp_seconds(id) ts",
        "1L _weight", "id % 3 _step",
    ).persist()  # fmt: skip


def computed_again(frame: DataFrame) -> list[str]:
    """The operators in a frame's plan that do not stand below something that is kept."""
    found, kept_at = [], None
    for line in frame._explain_string().splitlines():
        depth = len(line) - len(line.lstrip(" :+-"))
        if kept_at is not None and depth > kept_at:
            continue
        kept_at = depth if "InMemoryRelation" in line else None
        found += re.findall(r"FlatMapGroupsInArrow|Window(?= \[)|Generate|Expand", line)
    return found


@contextmanager
def evaluated(
    spark: SparkSession, query: str, records: int, on_append: Appended | None = None
) -> Iterator[Evaluated]:
    """The query's first interval, over three sources with one change."""
    context = Context(spark, records, is_first=True, times=(0, 1, 2))
    configure_session(context)
    source = source_rows(spark)
    sources = dict.fromkeys("tuv", source)
    circuit = build_circuit(project(query))
    found = evaluate_circuit(circuit, sources, (), NOTHING, context, on_append=on_append)
    try:
        yield found
    finally:
        found.release()
        source.unpersist()


@pytest.mark.parametrize("records", [10, 1_000_000])
@pytest.mark.parametrize(
    "by",
    ["c", "window(ts, '10 seconds')", "window(ts, '10 seconds', '2 seconds')"],
    ids=["column", "tumbling", "hopping"],
)
def test_a_change_that_stands_twice_in_a_join_is_kept(
    spark: SparkSession, by: str, records: int
) -> None:
    with evaluated(spark, MOST.format(by=by), records) as found:
        [outbox] = found.outboxes.values()
        assert computed_again(outbox) == []
        assert outbox.count() > 0


@pytest.mark.parametrize("records", [10, 1_000_000])
@pytest.mark.parametrize("bound", [1, 3])
def test_what_a_rank_remembers_is_the_change_that_it_has_made(
    spark: SparkSession, bound: int, records: int
) -> None:
    with evaluated(spark, FIRST.format(bound), records) as found:
        [outbox], [remembered] = found.outboxes.values(), found.appends.values()
        assert computed_again(outbox) == computed_again(remembered) == []
        assert remembered.selectExpr("sum(_weight)").first()[0] == 7 * bound
        assert outbox.selectExpr("sum(_weight)").first()[0] == 7 * bound


@pytest.mark.parametrize("query", [MOST.format(by="c"), FIRST.format(1)])
def test_each_append_is_told_of_once(spark: SparkSession, query: str) -> None:
    told: list[tuple[str, DataFrame]] = []
    with evaluated(spark, query, 10, lambda *one: told.append(one)) as found:
        assert len(told) == len(found.appends) > 0
        assert all(found.appends[table] is rows for table, rows in told)
