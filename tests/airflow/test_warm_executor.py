"""The executor whose tasks find imported what they need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from airflow.executors.local_executor import LocalExecutor
from confluent_kafka import Producer

from lockstep.adapters.kafka import create_topics
from lockstep.airflow.executor import OF_TASKS, WarmLocalExecutor
from lockstep.control.kafka_options import KafkaConnection

sys.path.insert(0, str(Path(__file__).parents[1] / "end_to_end"))
from followed_shop import Shop, rows, settings_of

SALES = """\
CREATE TABLE sales (item STRING, pieces INT) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${{lockstep.kafka}}', subscribe = '{topic}');
"""
TASK = """\
import gc
import sys
from importlib import import_module
from lockstep.airflow.executor import OF_TASKS
for module in OF_TASKS:
    import_module(module)
before = set(sys.modules)
from lockstep.adapters.settings import Settings
from lockstep.runtime import open_pipeline
with open_pipeline(sys.argv[1], Settings.load()) as pipeline:
    pipeline.plan(None, print)
    assert pipeline.run(print) is not None
    pipeline.publish(print)
assert gc.get_freeze_count() > 100_000
print(*sorted(set(sys.modules) - before))
"""
"""What three tasks do, and last the modules that they imported."""
CLIENTS = {"google", "grpc", "kafka", "lockstep", "lockstep_engine", "numpy", "pandas", "pyarrow"}
CLIENTS |= {"confluent_kafka", "pyiceberg", "pyspark", "sqlalchemy", "sqlglot"}
SMALL = {
    "grpc._channel",
    "grpc._interceptor",
    "pyarrow.acero",
    "pyiceberg.avro.decoder_fast",
    "pyiceberg.catalog.sql",
}
SMALL |= {"pyspark.sql.connect.conf", "pyspark.sql.connect.window"}
"""What these load when they are used; the kind of catalog is the installation's."""


def test_workers_are_forked_after_the_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def forked(self: LocalExecutor) -> None:
        found.extend(set(OF_TASKS) - sys.modules.keys())
        found.append(self)

    monkeypatch.setattr(LocalExecutor, "start", forked)
    executor = WarmLocalExecutor(parallelism=1)
    executor.start()
    assert found == [executor]


@pytest.mark.spark
@pytest.mark.kafka
def test_a_task_imports_nothing_more(
    spark: Any, spark_server: Any, broker: Any, database: str, tmp_path: Path
) -> None:
    settings = settings_of(spark_server, tmp_path / "home", broker)
    create_topics(KafkaConnection(broker.bootstrap), {database: 1})
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(database, json.dumps({"item": "nut", "pieces": 3}).encode())
    assert producer.flush(30) == 0
    shop = Shop(spark, settings, database, tmp_path / "project")
    totals = "SELECT item, sum(pieces) AS pieces FROM sales GROUP BY item"
    shop.deploy({"totals": totals}, SALES.format(topic=database))
    variables = {
        "LOCKSTEP_HOME": str(tmp_path / "home"),
        "LOCKSTEP_SPARK_REMOTE": spark_server.remote,
        "LOCKSTEP_CATALOG_URI": spark_server.catalog_uri,
        "LOCKSTEP_WAREHOUSE": spark_server.warehouse,
        "LOCKSTEP_KAFKA": broker.bootstrap,
    }
    said = subprocess.run(
        [sys.executable, "-c", TASK, database],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    imported = said.stdout.splitlines()[-1].split()
    # Airflow's own are in the scheduler.
    assert {one for one in imported if one.partition(".")[0] in CLIENTS} <= SMALL
    assert rows(spark.table(shop.view("totals"))) == Counter([("nut", 3)])
