"""A pipeline driven by processes of its own (`drive.py`), which are killed at a named point or end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from stopping import AnyPoint, stop_at, stopped

from lockstep.adapters.settings import Settings

__all__ = ["environment", "kill_at", "own_settings", "run_through"]

NOTHING: Mapping[str, str] = MappingProxyType({})
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


def environment(settings: Settings) -> dict[str, str]:
    """What gives a process these settings."""
    return {
        **os.environ,
        "PYTHONFAULTHANDLER": "1",
        "LOCKSTEP_HOME": str(settings.home),
        "LOCKSTEP_STORE_URL": settings.store_url,
        "LOCKSTEP_SPARK_REMOTE": settings.spark_remote,
        "LOCKSTEP_CATALOG_URI": settings.catalog_uri,
        "LOCKSTEP_WAREHOUSE": settings.warehouse,
        "LOCKSTEP_KAFKA": settings.kafka,
    }


def kill_at(
    point: AnyPoint, pipeline: str, settings: Settings, more: Mapping[str, str] = NOTHING
) -> None:
    """Drive until the process stops at the point, and kill it there. `more` is for its environment."""
    stop_at(settings.home, pipeline, point)
    driver = subprocess.Popen(
        [*DRIVER, pipeline, "advance"],
        env={**environment(settings), **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    while stopped(settings.home) is None:
        assert driver.poll() is None, f"{point}: {driver.communicate()[0]}"
    driver.kill()
    driver.communicate()
    assert driver.returncode == -signal.SIGKILL


def run_through(
    pipeline: str, settings: Settings, more: Mapping[str, str] = NOTHING
) -> subprocess.CompletedProcess[str]:
    """Drive until all that is there now is published. `more` is for the process's environment."""
    return subprocess.run(
        [*DRIVER, pipeline, "advance"],
        env={**environment(settings), **more},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
