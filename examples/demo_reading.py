"""What the demo reads to know what happened: Airflow's runs, the sink's topic, outboxes and views.

Nothing here trusts the engine: the topic is read by kafka-python with `read_committed`, the tables
by PyIceberg, and a run is what Airflow's own API says of it.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from kafka import KafkaConsumer, TopicPartition
from matplotlib.figure import Figure
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from lockstep.adapters.catalogs import catalog_settings
from lockstep.adapters.settings import Settings
from lockstep.sql.circuit import Project

Row = tuple[object, ...]
STAGES = ("plan", "run", "publish")
CARRIERS_SHOWN = 6
ANSWER_SECONDS = 30


@dataclass(frozen=True)
class Airflow:
    """Airflow's API, asked with a token."""

    url: str
    token: str

    def get(self, path: str) -> Any:
        """The answer to a GET below /api/v2; None where there is no such thing (yet), and where a
        busy machine keeps Airflow from answering in time: the caller asks again."""
        try:
            with urllib.request.urlopen(self._request(path), timeout=ANSWER_SECONDS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise
        except OSError:
            return None

    def _request(self, path: str) -> urllib.request.Request:
        return urllib.request.Request(
            f"{self.url}/api/v2/{path}", headers={"Authorization": f"Bearer {self.token}"}
        )


def log_in(url: str, user: str, password: str) -> Airflow:
    """A token for the API."""
    request = urllib.request.Request(
        f"{url}/auth/token",
        data=json.dumps({"username": user, "password": password}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=2 * ANSWER_SECONDS) as answer:
        return Airflow(url, json.load(answer)["access_token"])


def scheduled_runs(airflow: Airflow, dag: str) -> list[Mapping[str, Any]] | None:
    """The runs that the scheduler made, oldest first; None where nothing is known of them yet."""
    found = airflow.get(f"dags/{dag}/dagRuns?limit=100&order_by=run_after")
    if found is None:
        return None
    return [run for run in found["dag_runs"] if run["run_type"] == "scheduled"]


def interval_of(airflow: Airflow, dag: str, run: str) -> dict[str, Any] | None:
    """A finished run as demo/report.json shows it, with its steps; {} where it had nothing to do,
    None where Airflow does not answer just now."""
    found = airflow.get(f"dags/{dag}/dagRuns/{run}/taskInstances")
    entry = airflow.get(
        f"dags/{dag}/dagRuns/{run}/taskInstances/run/xcomEntries/return_value?deserialize=true"
    )
    if found is None or entry is None:
        return None
    told = entry["value"]
    told = json.loads(told) if isinstance(told, str) else told
    if told["first_step"] is None:
        return {}
    seconds = {one["task_id"]: round(one["duration"] or 0.0, 2) for one in found["task_instances"]}
    return {
        "steps": told["last_step"] - told["first_step"] + 1,
        "records_in": told["records"],
        "changes_out": sum(told["changes"].values()),
        "seconds": {stage: seconds.get(stage, 0.0) for stage in STAGES},
        "first_step": told["first_step"],
        "last_step": told["last_step"],
    }


def open_catalog(project: Project, settings: Settings) -> Catalog:
    """The project's catalog, by PyIceberg."""
    wanted = catalog_settings(project.catalog, project.database, project.configuration, settings)
    return load_catalog(wanted.name, **wanted.pyiceberg)


def read_outbox(catalog: Catalog, project: Project, view: str) -> Counter[Row]:
    """Weight of each (step, values…) of a view's outbox."""
    rows = catalog.load_table((project.database, f"{view}_changes")).scan().to_arrow().to_pylist()
    weights: Counter[Row] = Counter()
    for row in rows:
        step, weight = row.pop("_step"), row.pop("_weight")
        weights[(step, *row.values())] += weight
    return weights


def read_view(table: Table) -> Counter[Row]:
    """How often each row stands in a published view."""
    return Counter(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


def committed_changes(bootstrap: str, topic: str) -> list[tuple[int, dict[str, Any]]]:
    """Step (from the header) and JSON value of all committed records of a topic."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    try:
        numbers = consumer.partitions_for_topic(topic) or set()
        partitions = [TopicPartition(topic, number) for number in numbers]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        changes: list[tuple[int, dict[str, Any]]] = []
        while any(consumer.position(one) < ends[one] for one in partitions):
            for batch in consumer.poll(timeout_ms=500).values():
                changes += [
                    (int(dict(record.headers)["lockstep-step"]), json.loads(record.value))
                    for record in batch
                ]
        return changes
    finally:
        consumer.close()


def lost_and_duplicated(found: Counter[Row], expected: Counter[Row]) -> tuple[int, int]:
    """Changes that are too few, and too many, over all steps: by count, whatever their sign."""
    lost = duplicated = 0
    for key in found.keys() | expected.keys():
        difference = abs(found[key]) - abs(expected[key])
        if found[key] * expected[key] < 0:
            lost, duplicated = lost + abs(expected[key]), duplicated + abs(found[key])
        elif difference < 0:
            lost -= difference
        else:
            duplicated += difference
    return lost, duplicated


def draw_delays(table: Table, picture: Path) -> None:
    """Mean delay of the largest carriers by week, as a PNG."""
    rows = table.scan().to_arrow().to_pylist()
    flights: Counter[str] = Counter()
    weeks: dict[str, dict[datetime, list[int]]] = {}
    for row in rows:
        if not row["departures"]:
            continue
        carrier, day = row["carrier"], row["day"].replace(tzinfo=None)
        week = day - timedelta(days=day.weekday())
        flights[carrier] += row["departures"]
        totals = weeks.setdefault(carrier, {}).setdefault(week, [0, 0])
        totals[0] += row["delay_minutes"]
        totals[1] += row["departures"]
    figure = Figure(figsize=(10, 4.5), layout="tight")
    axes = figure.subplots()
    for carrier, _ in flights.most_common(CARRIERS_SHOWN):
        times = sorted(weeks[carrier])
        means = [weeks[carrier][week][0] / weeks[carrier][week][1] for week in times]
        axes.plot(np.array(times, "datetime64[D]"), means, label=carrier, linewidth=1.4)
    axes.set_title("Mean departure delay by week, flights from New York")
    axes.set_ylabel("minutes")
    axes.grid(alpha=0.3)
    axes.legend(ncols=CARRIERS_SHOWN, frameon=False)
    figure.savefig(picture, dpi=120)
