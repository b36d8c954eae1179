"""A pipeline through its DAG with nothing put in place of anything: broker, Spark, Iceberg, tasks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow_installation import REPOSITORY, Installation
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog import load_catalog

from lockstep import deploying, runtime
from lockstep.adapters.catalogs import catalog_settings
from lockstep.adapters.settings import Settings

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.kafka]

SPEC = """\
name: {name}
storage: unused
catalog: lake
database: {name}
libraries:
  - glob:
      include: transformations/**
configuration:
  lockstep.interval: 1 hour
  lockstep.engine: {engine}
"""

SQL = """\
CREATE TABLE orders (customer STRING NOT NULL, amount BIGINT NOT NULL)
USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${{lockstep.kafka}}', 'subscribe' = '{name}', 'format' = 'json');

CREATE MATERIALIZED VIEW totals AS
SELECT customer, count(*) AS orders, sum(amount) AS total FROM orders GROUP BY customer;
"""

# One DAG run, in one process, by hand: all that is there now.
RUN = """\
import sys
from airflow.dag_processing.dagbag import DagBag
run = DagBag().dags[sys.argv[1]].test(run_conf={"once": True})
print("ended", run.state)
"""


def project(folder: Path, name: str, engine: str) -> Path:
    (folder / "transformations").mkdir(parents=True)
    (folder / "spark-pipeline.yml").write_text(SPEC.format(name=name, engine=engine))
    (folder / "transformations" / "totals.sql").write_text(SQL.format(name=name))
    return folder


def create_topic(bootstrap: str, topic: str) -> None:
    # The answer gets lost if the client goes first.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)


def send(bootstrap: str, topic: str, orders: list[tuple[str, int]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for customer, amount in orders:
        producer.produce(topic, json.dumps({"customer": customer, "amount": amount}).encode())
    assert producer.flush(30) == 0


def run_dag(variables: dict[str, str], name: str) -> str:
    """What the DAG run writes; it has to end well."""
    ended = subprocess.run(
        [sys.executable, "-c", RUN, name],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert "ended success" in ended.stdout, ended.stdout + ended.stderr
    return ended.stdout


def view(settings: Settings, name: str) -> set[tuple[Any, ...]]:
    """The published view, by an independent reader."""
    catalog = catalog_settings("lake", name, {}, settings)
    table = load_catalog(catalog.name, **catalog.pyiceberg).load_table((name, "totals"))
    rows = table.scan().to_arrow().to_pylist()
    assert len(rows) == len({row["customer"] for row in rows}), "a row a customer"
    return {(row["customer"], row["orders"], row["total"]) for row in rows}


@pytest.fixture
def deploy(
    pristine: Installation, spark_server: Any, broker: Any, database: str, tmp_path: Path
) -> Callable[[str], dict[str, str]]:
    """Make a topic and deploy the project for an engine; the environment of its DAG runs."""

    def deployed(engine: str) -> dict[str, str]:
        create_topic(broker.bootstrap, database)
        variables = pristine.copy(
            tmp_path / "home",
            AIRFLOW__CORE__DAGS_FOLDER=str(REPOSITORY / "dags"),
            LOCKSTEP_SPARK_REMOTE=spark_server.remote,
            LOCKSTEP_KAFKA=broker.bootstrap,
        ).variables
        files = project(tmp_path / "project", database, engine)
        deploying.deploy(str(files), Settings.load(variables))
        return variables

    return deployed


def test_two_runs_of_a_dag_keep_a_view_up_to_date(
    deploy: Callable[[str], dict[str, str]], broker: Any, database: str
) -> None:
    variables = deploy("connect")
    settings = Settings.load(variables)

    send(broker.bootstrap, database, [("ann", 5), ("bob", 7), ("ann", 1)])
    log = run_dag(variables, database)
    assert view(settings, database) == {("ann", 2, 6), ("bob", 1, 7)}
    assert "step 0: 3 records in, changes out: totals 2" in log
    assert "totals: at step 0, 2 rows published" in log

    send(broker.bootstrap, database, [("ann", -6), ("eve", 0)])
    run_dag(variables, database)
    assert view(settings, database) == {("ann", 3, 0), ("bob", 1, 7), ("eve", 1, 0)}

    assert "nothing to do" in run_dag(variables, database)
    assert runtime.recorded(database, settings).version.number == 2


def test_a_run_of_a_dag_by_spark_submit_fills_a_view(
    deploy: Callable[[str], dict[str, str]], broker: Any, database: str
) -> None:
    # As where whoever submits has been a client of Spark Connect.
    variables = {**deploy("submit"), "SPARK_CONNECT_MODE_ENABLED": "1"}
    send(broker.bootstrap, database, [("ann", 5), ("bob", 7), ("ann", 1)])
    log = run_dag(variables, database)
    assert view(Settings.load(variables), database) == {("ann", 2, 6), ("bob", 1, 7)}
    assert "step 0: 3 records in, changes out: totals 2" in log
