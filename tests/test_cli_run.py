"""A project from `lockstep init` to a verified view, by the command line alone and without a stack."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog import load_catalog

from lockstep.adapters.catalogs import catalog_settings
from lockstep.adapters.settings import Settings

if TYPE_CHECKING:
    from conftest import Broker

LOCKSTEP = Path(sys.executable).with_name("lockstep")


def result(environment: dict[str, str], *arguments: str) -> Any:
    """What a command answers with `--output json`; it has to end well."""
    done = subprocess.run(
        [LOCKSTEP, *arguments, "--output", "json"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.spark
@pytest.mark.kafka
def test_init_run_verify(tmp_path: Path, broker: Broker, database: str) -> None:
    environment = {"LOCKSTEP_HOME": str(tmp_path / "home"), "LOCKSTEP_KAFKA": broker.bootstrap}
    folder = tmp_path / database
    result(environment, "init", str(folder))
    # The broker is shared: a topic of this test's own.
    for file in (folder / "send_orders.py", folder / "transformations" / "orders.sql"):
        text = file.read_text().replace('"orders"', f'"{database}"')
        file.write_text(text.replace("'orders'", f"'{database}'"))
    send = [sys.executable, folder / "send_orders.py"]
    subprocess.run(send, env={**os.environ, **environment}, check=True)

    ran = result(environment, "run", str(folder), "--once")
    assert [interval["records"] for interval in ran["intervals"]] == [3]
    assert sum(ran["intervals"][0]["errors"].values()) == 0
    assert ran["markers"] == {"totals": ran["intervals"][-1]["last_step"]}

    settings = Settings.load(environment)
    wanted = catalog_settings("lake", database, {}, settings)
    table = load_catalog(wanted.name, **wanted.pyiceberg).load_table(f"{database}.totals")
    rows = {row["customer"]: row for row in table.scan().to_arrow().to_pylist()}
    assert {name: (row["orders"], str(row["spent"])) for name, row in rows.items()} == {
        "ada": (2, "10.25"),
        "bob": (1, "3.00"),
    }
    by_duckdb = table.scan().to_duckdb("totals").sql("SELECT sum(orders), sum(spent) FROM totals")
    assert tuple(map(float, by_duckdb.fetchall()[0])) == (3.0, 13.25)
    (check,) = result(environment, "verify", str(folder))
    assert check["equal"]

    newest = ran["intervals"][-1]["last_step"], ran["intervals"][-1]["version"]
    (slice_,) = result(environment, "steps", database)[-1]["slices"]
    held = next(r for r in slice_["ranges"] if r["end"] > r["start"])
    record = database, str(held["partition"]), str(held["start"])
    (receipt,) = result(environment, "receipt", database, *record)
    assert (receipt["step"], receipt["version"]) == newest
    assert (receipt["status"], receipt["published"]) == ("published", ["totals"])

    done = result(environment, "maintain", database)["done"]
    assert done == dict.fromkeys(
        (
            *("files merged", "versions trimmed", "branches dropped", "steps trimmed"),
            "snapshots expired",
        ),
        0,
    )

    subprocess.run(send, env={**os.environ, **environment}, check=True)
    (pipeline,) = result(environment, "status")["pipelines"]
    assert pipeline["version"] == 1
    assert pipeline["lag_records"] == {"orders": 3}
    assert pipeline["error_records"] == {"orders": 0}
    assert pipeline["trouble"] == []
    assert result(environment, "steps", database)[-1]["step"] == pipeline["step"]
    assert not list((tmp_path / "home" / "spark-once").iterdir())
