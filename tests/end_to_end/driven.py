"""A pipeline driven by processes of its own (`drive.py`), which are killed at a named point or end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import drive
from stopping import AnyPoint, stop_at, stopped

from lockstep.adapters.settings import Settings
from lockstep.runtime import Pipeline

__all__ = [
    "FORKS",
    "kill_at",
    "kill_other_at",
    "own_settings",
    "run_again",
    "run_other",
    "variables_of",
]

# A driver is forked from a process that has imported what it needs, as Airflow's tasks are.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "drive",
        "lockstep_engine.connect",
        *(
            f"lockstep.adapters.{name}"
            for name in ("catalogs", "iceberg_files", "iceberg_tables", "sources")
        ),
    ]
)
POLL_SECONDS = 0.02
DRIVER = (sys.executable, str(Path(__file__).with_name("drive.py")))


def own_settings(spark_server: Any, broker: Any, home: Path) -> Settings:
    """An installation on the shared servers, with a store, a catalog and a warehouse of its own."""
    home.mkdir()
    return Settings.load(
        {
            "LOCKSTEP_HOME": str(home),
            "LOCKSTEP_SPARK_REMOTE": spark_server.remote,
            "LOCKSTEP_KAFKA": broker.bootstrap,
            "LOCKSTEP_CATALOG_URI": f"sqlite:///{home}/catalog.db",
            "LOCKSTEP_WAREHOUSE": f"file://{home}/warehouse",
        }
    )


def variables_of(settings: Settings) -> dict[str, str]:
    """What gives a process these settings."""
    return {
        "PYTHONFAULTHANDLER": "1",
        "LOCKSTEP_HOME": str(settings.home),
        "LOCKSTEP_STORE_URL": settings.store_url,
        "LOCKSTEP_SPARK_REMOTE": settings.spark_remote,
        "LOCKSTEP_CATALOG_URI": settings.catalog_uri,
        "LOCKSTEP_WAREHOUSE": settings.warehouse,
        "LOCKSTEP_KAFKA": settings.kafka,
    }


def kill_at(point: AnyPoint, pipeline: str, settings: Settings) -> None:
    """Drive until the process stops at the point, and kill it there."""
    stop_at(settings.home, pipeline, point)
    log = settings.home / "driver.log"
    driver = FORKS.Process(
        target=drive.drive_forked, args=(pipeline, "advance", variables_of(settings), log)
    )
    driver.start()
    while stopped(settings.home) is None:
        assert driver.is_alive(), f"{point}: {log.read_text('utf-8')}"
        time.sleep(POLL_SECONDS)
    driver.kill()
    driver.join()
    assert driver.exitcode == -signal.SIGKILL


def run_again(pipeline: str, settings: Settings) -> None:
    """Drive until all that is there now is published, in this process."""
    with Pipeline(pipeline, settings) as opened:
        drive.advance(opened)


def kill_other_at(
    point: AnyPoint, pipeline: str, settings: Settings, more: Mapping[str, str]
) -> None:
    """As `kill_at`, of a process that runs what `more` in its environment says."""
    stop_at(settings.home, pipeline, point)
    driver = subprocess.Popen(
        [*DRIVER, pipeline, "advance"],
        env={**os.environ, **variables_of(settings), **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    while stopped(settings.home) is None:
        assert driver.poll() is None, f"{point}: {driver.communicate()[0]}"
        time.sleep(POLL_SECONDS)
    driver.kill()
    driver.communicate()
    assert driver.returncode == -signal.SIGKILL


def run_other(
    pipeline: str, settings: Settings, more: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """As `run_again`, in a process that runs what `more` in its environment says."""
    return subprocess.run(
        [*DRIVER, pipeline, "advance"],
        env={**os.environ, **variables_of(settings), **more},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
