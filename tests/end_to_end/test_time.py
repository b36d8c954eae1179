"""Views that read now() change as time goes on, interval by interval, without a new record."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from lockstep.adapters.iceberg import IcebergState
from lockstep.adapters.kafka import create_topics
from lockstep.adapters.verify import verify
from lockstep.control.job import MergeJob, MergeTable
from lockstep.control.kafka_options import KafkaConnection
from lockstep.ids import is_trace, merge_branch
from lockstep.runtime import Pipeline
from lockstep.sql.plans.nodes import Aggregate
from lockstep_engine.compaction import merge_traces

sys.path.insert(0, str(Path(__file__).parent))
from followed_shop import Shop, rows, settings_of

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

SEEN = """\
CREATE TABLE seen (who STRING, at TIMESTAMP, step TIMESTAMP) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${{lockstep.kafka}}', subscribe = '{topic}',
  metadata = 'step_time AS step');
"""
MARKED = SEEN.replace("subscribe", "watermark = 'at', watermark_delay = '10 seconds', subscribe")
QUERIES = {
    "present": "SELECT who, at FROM seen WHERE at > now() - INTERVAL 1 HOUR AND at <= now()",
    "presence": "SELECT count(*) AS n FROM seen WHERE at > now() - INTERVAL 1 HOUR AND at <= now()",
    "taken": "SELECT step, count(*) AS n FROM seen GROUP BY step",
}


def send(bootstrap: str, topic: str, sent: dict[str, datetime], sent_at: datetime) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for who, at in sent.items():
        value = json.dumps({"who": who, "at": f"{at:%Y-%m-%d %H:%M:%S.%f}"})
        producer.produce(topic, value, timestamp=round(sent_at.timestamp() * 1000))
    assert producer.flush(30) == 0


def test_rows_come_and_go_without_a_record(
    spark: Any, spark_server: Any, broker: Any, database: str, tmp_path: Path
) -> None:
    settings = settings_of(spark_server, tmp_path / "home", broker)
    shop = Shop(spark, settings, database, tmp_path / "project")
    create_topics(KafkaConnection(broker.bootstrap), {database: 1})
    shop.deploy(QUERIES, SEEN.format(topic=database))
    # Steps are every ten seconds; all of this lies in the past, so nothing has to be waited for.
    hour, second = timedelta(hours=1), timedelta(seconds=1)
    start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - 2 * hour
    going, coming = start - hour + 45 * second, start + 35 * second
    sent = {"gone": start - hour, "going": going, "here": start, "coming": coming}
    send(broker.bootstrap, database, sent, start - 5 * second)

    def shown(until: datetime) -> tuple[list[str], int]:
        with Pipeline(database, settings) as pipeline:
            pipeline.plan(until, shop.said.append)
            pipeline.run(shop.said.append)
            pipeline.publish(shop.said.append)
        [(present, _)] = rows(spark.table(shop.view("presence"))).items()
        return sorted(who for who, _ in rows(spark.table(shop.view("present")))), *present

    assert shown(start) == (["going", "here"], 2)
    assert shown(start + 30 * second) == (["going", "here"], 2)
    assert shown(start + 60 * second) == (["coming", "here"], 2)
    changes = spark.table(shop.view("present_changes")).where("_step > 5").collect()
    by_step = {(row.who, row["_weight"]): shop.divisions()[row["_step"]].time for row in changes}
    taken = spark.table(shop.view("taken")).selectExpr("unix_seconds(step)", "n")
    assert rows(taken) == {(round(start.timestamp()), len(sent)): 1}
    assert by_step == {("going", -1): start + 50 * second, ("coming", 1): start + 40 * second}
    assert all(check.equal for check in verify(database, settings, shop.said.append))
    # All there is now: no record, and more than an hour later nobody is present any more.
    shop.advance()
    assert rows(spark.table(shop.view("presence"))) == {(0,): 1}
    assert sum(division.records for division in shop.divisions()) == len(sent)


def test_late_rows_have_a_table_and_windows_come_out_once(
    spark: Any, spark_server: Any, broker: Any, database: str, tmp_path: Path
) -> None:
    settings = settings_of(spark_server, tmp_path / "home", broker)
    shop = Shop(spark, settings, database, tmp_path / "project")
    create_topics(KafkaConnection(broker.bootstrap), {database: 1})
    views = (
        "CREATE MATERIALIZED VIEW minutes TBLPROPERTIES ('emit' = 'final') AS "
        "SELECT window.end AS until, count(*) AS n FROM seen GROUP BY window(at, '1 minute');\n"
    )
    shop.deploy({"rows": "SELECT who FROM seen"}, MARKED.format(topic=database) + views)

    def came(**seconds: int) -> tuple[list[str], list[tuple[int, int]]]:
        """What is shown after one more interval: who, and by minute how many."""
        noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
        sent = {who: noon + timedelta(seconds=second) for who, second in seconds.items()}
        send(broker.bootstrap, database, sent, datetime.now(UTC))
        shop.advance()
        minutes = spark.table(shop.view("minutes")).selectExpr("minute(until)", "n").collect()
        return sorted(row.who for row in spark.table(shop.view("rows")).collect()), sorted(minutes)

    assert came(a=5, b=50) == (["a", "b"], [])
    assert came(c=39, d=40, e=74) == (["a", "b", "d", "e"], [(1, 3)])
    assert came(f=59, g=63, h=180) == (["a", "b", "d", "e", "h"], [(1, 3), (2, 1)])
    late = spark.table(shop.view("seen_late"))
    assert late.columns == ["who", "at", "step", "_weight", "_step"]
    found = {(row.who, row.at.second, row["_weight"], row["_step"]) for row in late.collect()}
    assert found == {("c", 39, 1, 1), ("f", 59, 1, 2), ("g", 3, 1, 2)}
    # Of the windows that the groups' trace has seen, merging keeps the one that is not over.
    assert merged_rows(spark, spark_server, shop) == 1
    assert all(check.equal for check in verify(database, settings, shop.said.append))


def merged_rows(spark: Any, spark_server: Any, shop: Shop) -> int:
    """How many rows the trace of the groups has when it is merged."""
    with Pipeline(shop.database, shop.settings) as pipeline:
        recorded, circuit = pipeline.state(), pipeline.circuit
    [trace] = [o.traces[0].table for o in circuit.operators if isinstance(o.node, Aggregate)]
    catalog = spark_server.catalog_settings(shop.database)
    state, tables = IcebergState(catalog), recorded.version.tables
    branch = merge_branch("a", "m")
    state.open_branch(trace, branch, tables[trace])
    job = MergeJob(
        pipeline=shop.database,
        incarnation=recorded.incarnation,
        branch=branch,
        tables=(MergeTable(trace, tables[trace], 3),),
        files=recorded.files,
        variables=shop.settings.variables(),
        catalog=catalog,
        traces={table: snapshot for table, snapshot in tables.items() if is_trace(table)},
    )
    heads = merge_traces(spark, job, state, shop.said.append)
    return state.added_records(trace, heads[trace])
