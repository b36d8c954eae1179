"""`init`, `plan`, `deploy`: a project folder, before anything runs."""

from __future__ import annotations

import re
from pathlib import Path

import click

from lockstep.adapters.settings import Settings
from lockstep.cli.output import command, show
from lockstep.errors import WrongUse

__all__ = ["register"]

SPEC = """\
name: {name}
storage: file://{folder}/.storage   # asked for by the format; Lockstep keeps nothing there
catalog: lake
database: {name}
libraries:
  - glob:
      include: transformations/**
configuration:
  lockstep.interval: 1 minute   # one Spark job, and one Airflow DAG run, each
  lockstep.step: 10 seconds     # the view can be read as of the end of each step
"""

SQL = """\
-- A source: one JSON object a record, with every column declared here. A record that cannot be read
-- goes to the table orders_errors.
CREATE TABLE orders (
  id BIGINT,
  customer STRING,
  amount DECIMAL(10, 2)
) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${lockstep.kafka}',
  'subscribe' = 'orders',
  'format' = 'json'
);

-- A view: kept up to date by the change of each step.
CREATE MATERIALIZED VIEW totals AS
SELECT customer, count(*) AS orders, sum(amount) AS spent
FROM orders
GROUP BY customer;
"""

README = """\
# {name}

The view `lake.{name}.totals`, kept up to date from the Kafka topic `orders`.

    lockstep up --without-airflow      # a broker and Spark on this machine; or set LOCKSTEP_KAFKA
                                       # to the address of a broker that runs already
    python send_orders.py              # makes the topic and sends three orders
    lockstep run . --once              # one interval: everything that is there now
    lockstep verify .                  # recomputes the view from Kafka with another engine

With Airflow: `lockstep up`, `lockstep deploy .`, and a DAG `{name}` runs an interval a minute.
`lockstep plan .` shows what is kept and what each operator costs.
"""

SEND = '''\
"""Makes the topic `orders` and sends three orders to it."""

import json

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from lockstep.adapters.settings import Settings

ORDERS = [
    {"id": 1, "customer": "ada", "amount": 9.50},
    {"id": 2, "customer": "bob", "amount": 3.00},
    {"id": 3, "customer": "ada", "amount": 0.75},
]

broker = {"bootstrap.servers": Settings.load().kafka}
admin = AdminClient(broker)
if "orders" not in admin.list_topics(timeout=10).topics:
    for made in admin.create_topics([NewTopic("orders", 2, 1)]).values():
        made.result()
producer = Producer(broker)
for order in ORDERS:
    producer.produce("orders", json.dumps(order), str(order["id"]))
producer.flush()
print(f"sent {len(ORDERS)} orders")
'''


def register(cli: click.Group) -> None:
    """Add the commands of this module."""
    command(cli, "init", "lockstep init shop")(init)
    command(cli, "plan", "lockstep plan shop")(plan)
    command(cli, "deploy", "lockstep deploy shop")(deploy)


@click.argument("folder", metavar="DIR")
def init(folder: str) -> None:
    """Write a small working project into the new folder DIR."""
    root = Path(folder).resolve()
    if root.exists() and any(root.iterdir()):
        raise WrongUse(
            f"{root} is not empty",
            expected="a folder that does not exist yet, or an empty one",
            found=", ".join(sorted(p.name for p in root.iterdir())[:5]),
            next_step="lockstep init with another folder",
        )
    name = re.sub(r"\W", "_", root.name.lower()).strip("_") or "shop"
    name = f"p_{name}" if name[0].isdigit() else name
    files = {
        "spark-pipeline.yml": SPEC.format(name=name, folder=root),
        "transformations/orders.sql": SQL,
        "send_orders.py": SEND,
        "README.md": README.format(name=name),
    }
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    show(
        {"name": name, "folder": str(root), "files": sorted(files)},
        lambda: "\n".join(
            [*(f"wrote {root / path}" for path in files), f"next: read {root / 'README.md'}"]
        ),
    )


@click.argument("folder", metavar="DIR")
def plan(folder: str) -> None:
    """Show the circuit of the project in DIR: operators, state, cost. Changes nothing."""
    from lockstep import runtime
    from lockstep.sql.explain import explain, explain_data

    project, circuit = runtime.load_project(folder, Settings.load())
    show(explain_data(project, circuit), lambda: explain(project, circuit))


@click.argument("folder", metavar="DIR")
def deploy(folder: str) -> None:
    """Record the project in DIR; Airflow shows its DAG a few seconds later."""
    from lockstep import runtime

    settings = Settings.load()
    state = runtime.deploy(folder, settings)
    result = {
        "name": state.name,
        "incarnation": state.incarnation,
        "step": state.version.last_step,
        "version": state.version.number,
        "sinks": [sink.name for sink in state.sinks],
        "airflow": f"{settings.airflow_url}/dags/{state.name}" if settings.airflow_url else "",
    }

    def text() -> str:
        follow = (
            f"its DAG: {result['airflow']}"
            if settings.airflow_url
            else f"next: lockstep run {folder} --once"
        )
        return f"pipeline {state.name} is deployed, at version {state.version.number}\n{follow}"

    show(result, text)
