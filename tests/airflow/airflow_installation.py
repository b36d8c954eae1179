"""A real Airflow for tests: an installation on disk, its parts as processes, its REST API.

Its DAGs are the real file over a real control store; only what a task opens is a double, as what
these tests are about is Airflow's side.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from lockstep.adapters.embedded import airflow as embedded
from lockstep.adapters.embedded.ports import free_ports
from lockstep.adapters.sql_store import SqlStore
from lockstep.control.changes import Deploy, Landed
from lockstep.control.model import SinkState
from lockstep.sql.circuit import ProjectFiles

REPOSITORY = Path(__file__).resolve().parents[2]
PARTS = (embedded.API_SERVER, "dag-processor", "scheduler")
READY_SECONDS = 180

# The real file, with the double put in place of what a task opens.
DAG_FILE = f"""\
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from airflow_fakes import open_stored
from lockstep import runtime
runtime.open_pipeline = open_stored
exec(compile(open({str(REPOSITORY / "dags/lockstep_pipelines.py")!r}).read(), __file__, "exec"))
# Airflow looks for the words airflow and dag before it reads a file.
"""

SPECS = {
    "shop": "name: shop\nconfiguration:\n  lockstep.interval: 1 hour\n",
    "broken": "name: broken\nconfiguration:\n  lockstep.interval: now and then\n",
}


def record(home: Path, name: str, spec: str) -> None:
    """Deploy a pipeline of one view, as far as the control store is concerned."""
    home.mkdir(parents=True, exist_ok=True)
    sinks = (SinkState("counts", "counts", "iceberg"),)
    deploy = Deploy(ProjectFiles(spec, (), "/projects/" + name), "9f", sinks)
    landed = SqlStore(f"sqlite:///{home}/control.db").apply(name, deploy)
    assert isinstance(landed, Landed), landed


@dataclass(frozen=True)
class Installation:
    """A LOCKSTEP_HOME with the pipelines of SPECS, and a migrated Airflow in it."""

    home: Path
    variables: dict[str, str]

    def copy(self, home: Path, **variables: str) -> Installation:
        """The same as it was before anything ran in it, elsewhere; `variables` are set besides."""
        shutil.copytree(self.home, home)
        here, there = str(self.home), str(home)
        configuration = home / "airflow" / "airflow.cfg"
        configuration.write_text(configuration.read_text().replace(here, there))
        moved = {key: value.replace(here, there) for key, value in self.variables.items()}
        return Installation(home, {**moved, **variables})


def install(home: Path) -> Installation:
    """Deploy the pipelines of SPECS and migrate Airflow's database, all below `home`."""
    for name, spec in SPECS.items():
        record(home, name, spec)
    dags = home / "dags"
    dags.mkdir()
    (dags / "lockstep_pipelines.py").write_text(DAG_FILE)
    variables = {
        **embedded.environment(home, free_ports(1)[0], "local[2]"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
    }
    embedded.migrate(variables, print)
    return Installation(home, variables)


@dataclass(frozen=True)
class Airflow:
    """A running Airflow."""

    installation: Installation
    client: httpx.Client

    def get(self, path: str, **params: Any) -> Any:
        answer = self.client.get(f"/api/v2/{path}", params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        return self.client.post(f"/api/v2/{path}", json=body)

    def ended(self, dag_id: str, run_id: str) -> Any:
        """Wait for a run's end; the run."""

        def run() -> Any:
            found = self.client.get(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")
            is_over = found.status_code == 200 and found.json()["state"] in ("success", "failed")
            return found.json() if is_over else None

        return wait_for(run, f"the end of {run_id}")

    def task(self, dag_id: str, run_id: str, task_id: str) -> Any:
        return self.get(f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}")

    def log(self, dag_id: str, run_id: str, task_id: str) -> str:
        """The last try's log, as text."""
        attempt = self.task(dag_id, run_id, task_id)["try_number"]
        where = f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{attempt}"
        return "\n".join(str(line.get("event", line)) for line in self.get(where)["content"])

    def xcom(self, dag_id: str, run_id: str, task_id: str) -> Any:
        where = f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/return_value"
        return self.get(where, deserialize=True)["value"]


def wait_for(check: Callable[[], Any], what: str) -> Any:
    """The first true answer; asks again a few times a second."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        try:
            if answer := check():
                return answer
        except httpx.TransportError:
            pass
        time.sleep(0.25)
    raise AssertionError(f"waited {READY_SECONDS} s for {what}")


def has_read_all(airflow: Airflow) -> bool:
    """Whether the DAG processor has stored the DAGs of SPECS."""
    return bool(airflow.get("dags")["total_entries"] == 3)
