"""`init`, `plan`, `deploy`: a project folder, before anything runs."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lockstep.adapters.settings import Settings
from lockstep.cli.output import command, progress, show
from lockstep.cli.spark import spark_for
from lockstep.control.job import ViewDifference
from lockstep.errors import WrongUse
from lockstep.sql.rebuild import ViewChange

if TYPE_CHECKING:
    from lockstep.deploying import Proposal

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
  lockstep.interval: 1 minute   # one run of the Airflow DAG each
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
@click.option("--count", is_flag=True, help="Count on Spark the rows that a deploy would change.")
def plan(folder: str, count: bool) -> None:
    """Show the circuit of the project in DIR: operators, state, cost; and what a deploy would change in
    what runs already. Changes nothing."""
    from lockstep import deploying
    from lockstep.sql.explain import explain, explain_data, explain_rebuild, rebuild_data

    settings = Settings.load()
    proposal = deploying.propose(folder, settings)
    found = _counted(proposal, settings) if count else ()
    data = explain_data(proposal.project, proposal.circuit)
    if proposal.rebuild is not None:
        data["rebuild"] = rebuild_data(proposal.rebuild)
        data["differences"] = [asdict(one) for one in found]

    def text() -> str:
        parts = [explain(proposal.project, proposal.circuit)]
        if proposal.rebuild is not None:
            parts += [explain_rebuild(proposal.rebuild), _differences_text(found)]
        return "\n".join(parts)

    show(data, text)


def _differences_text(found: tuple[ViewDifference, ...]) -> str:
    lines = []
    for one in found:
        lines.append(f"view {one.view}: {one.added:,} rows come, {one.removed:,} go")
        lines += [f"    {row}" for row in one.sample]
    return "\n".join(lines)


@click.argument("folder", metavar="DIR")
@click.option("--yes", is_flag=True, help="Approve the change of rows that are published.")
def deploy(folder: str, yes: bool) -> None:
    """Record the project in DIR; Airflow shows its DAG a few seconds later.

    Where a pipeline runs already and its views change, the next interval publishes the difference,
    and nothing else: it is counted first, and asked for.
    """
    from lockstep import deploying
    from lockstep.sql.reading.spec import is_dag_id

    settings = Settings.load()

    def approves(proposal: Proposal) -> bool:
        return yes or _is_approved(proposal, settings)

    state = deploying.deploy(folder, settings, approves)
    # Names that were deployed when nobody asked have none of their own.
    has_dag = settings.airflow_url and is_dag_id(state.name)
    result = {
        "name": state.name,
        "incarnation": state.incarnation,
        "step": state.version.last_step,
        "version": state.version.number,
        "rebuilds": state.replaced is not None,
        "sinks": [sink.name for sink in state.sinks],
        "airflow": f"{settings.airflow_url}/dags/{state.name}" if has_dag else "",
    }

    def text() -> str:
        follow = (
            f"its DAG: {result['airflow']}" if has_dag else f"next: lockstep run {folder} --once"
        )
        return f"pipeline {state.name} is deployed, at version {state.version.number}\n{follow}"

    show(result, text)


def _is_approved(proposal: Proposal, settings: Settings) -> bool:
    """Whether no published row changes, or somebody at the terminal says yes."""
    from lockstep.sql.explain import explain_rebuild

    assert proposal.rebuild is not None, "asked for a change only"
    found = _counted(proposal, settings)
    progress(explain_rebuild(proposal.rebuild) + _differences_text(found))
    if not any(one.removed or one.added for one in found if one.view in _published(proposal)):
        return True
    is_asked = sys.stdin.isatty()
    return is_asked and click.confirm("publish this difference?", err=True)


def _counted(proposal: Proposal, settings: Settings) -> tuple[ViewDifference, ...]:
    from lockstep import deploying

    if proposal.rebuild is None:
        return ()
    with spark_for(proposal.project.configuration, settings) as ready:
        return deploying.preview(proposal, ready, progress)


def _published(proposal: Proposal) -> set[str]:
    """Views that are there already: the rows of a new one surprise nobody."""
    assert proposal.rebuild is not None, "asked for a change only"
    return {view for view, how in proposal.rebuild.views.items() if how is ViewChange.CHANGED}
