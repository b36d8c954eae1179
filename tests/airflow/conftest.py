"""One real Airflow for the whole session; what is in it stands in `airflow_installation`."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest
from airflow_installation import (
    PARTS,
    Airflow,
    Installation,
    has_read_all,
    install,
    wait_for,
)

from lockstep.adapters.embedded import airflow as embedded
from lockstep.adapters.embedded import process

# Importing Airflow writes its configuration: not into the home of whoever runs the tests.
if "AIRFLOW_HOME" not in os.environ:
    os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="lockstep-airflow-home-")
    atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """A migrated Airflow in which nothing has run yet: copy it before use."""
    return install(tmp_path_factory.mktemp("airflow") / "pristine")


RUNNING = ExitStack()
"""What the Airflow of the session is made of, while it runs."""


@pytest.fixture(scope="session")
def airflow(pristine: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    """API server, DAG processor and scheduler over a copy of the pristine installation."""
    installation = pristine.copy(tmp_path_factory.mktemp("airflow") / "running")
    port = int(installation.variables["AIRFLOW__API__PORT"])
    logs = {part: installation.home / f"{part}.log" for part in PARTS}
    started: list[process.Process] = []
    with RUNNING:
        for part in PARTS:
            started.append(embedded.start(part, installation.variables, logs[part]))
            # The API server last: the others report to it until they end.
            RUNNING.callback(process.stop, started[-1], embedded.STOP_SECONDS)
        for part, running in zip(PARTS, started, strict=True):
            embedded.wait_ready(part, running, port, logs[part])
        client = httpx.Client(base_url=embedded.url(port), timeout=30, trust_env=False)
        airflow = Airflow(installation, RUNNING.enter_context(client))
        wait_for(lambda: has_read_all(airflow), "the DAGs")
        yield airflow


# Last: what the test itself has made is taken away before.
@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """After the last test that asks for it Airflow ends, before the session does: a scheduler that has
    nothing to do takes a tenth of a core from the tests that follow."""
    ask = [one for one in item.session.items if "airflow" in getattr(one, "fixturenames", ())]
    if ask and item is ask[-1]:
        RUNNING.close()
