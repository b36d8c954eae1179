"""The order of stages holds under a kill -9 at each named point (design, sections 2 and 6).

One pipeline lives through all points: before each, new records are sent; a process is killed at the
point; the interval is run again by another process. At the end the independent reader finds each
step's output once, in the outbox, in the Iceberg views and in the Kafka topic. `make torture` does
this to the servers and to Airflow's tasks too, at random moments, and for long.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import reader
from long_lived import Totals
from stopping import stop_at, stopped

from lockstep.adapters.settings import Settings
from lockstep.control.interval import Point

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

DRIVER = [sys.executable, str(Path(__file__).with_name("drive.py")), "totals", "advance"]


def environment(home: Path, remote: str, bootstrap: str) -> dict[str, str]:
    home.mkdir()
    return {
        **os.environ,
        "PYTHONFAULTHANDLER": "1",
        "LOCKSTEP_HOME": str(home),
        "LOCKSTEP_SPARK_REMOTE": remote,
        "LOCKSTEP_KAFKA": bootstrap,
        "LOCKSTEP_STORE_URL": f"sqlite:///{home}/control.db",
        "LOCKSTEP_CATALOG_URI": f"sqlite:///{home}/catalog.db",
        "LOCKSTEP_WAREHOUSE": f"file://{home}/warehouse",
    }


def kill_at(point: Point, variables: dict[str, str], home: Path) -> None:
    """Drive until the process stops at the point, and kill it there."""
    stop_at(home, "totals", point)
    driver = subprocess.Popen(
        DRIVER, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    while stopped(home) is None:
        assert driver.poll() is None, f"{point}: {driver.communicate()[0]}"
    driver.kill()
    driver.communicate()
    assert driver.returncode == -signal.SIGKILL


def test_each_steps_output_is_there_once_after_a_kill_at_every_point(
    tmp_path: Path, spark_server, broker, database
) -> None:
    home = tmp_path / "home"
    variables = environment(home, spark_server.remote, broker.bootstrap)
    totals = Totals(Settings.load(variables), prefix=f"{database}_", seed=20131)
    totals.deploy(tmp_path / "totals")
    for point in Point:
        totals.change(rows=70)
        kill_at(point, variables, home)
        again = subprocess.run(
            DRIVER, env=variables, capture_output=True, text=True, timeout=300, check=False
        )
        assert again.returncode == 0, f"after {point.name}: {again.stdout}\n{again.stderr}"
    assert totals.is_settled
    findings = totals.check(totals.sent)
    assert findings.clean, findings


@pytest.mark.parametrize("fault", ["lost", "duplicated", "unexpected"])
def test_the_reader_can_fail(fault: str) -> None:
    expected = {0: Counter({("a", 1): 1}), 1: Counter({("a", 1): -1, ("a", 2): 1})}
    found = {step: Counter(delta) for step, delta in expected.items()}
    if fault == "lost":
        del found[1][("a", 2)]
    elif fault == "duplicated":
        found[1][("a", 2)] = 2
    else:
        found[1][("b", 9)] = 1
    findings = reader.compare(found, expected)
    assert len(getattr(findings, fault)) == 1
    assert not findings.clean
