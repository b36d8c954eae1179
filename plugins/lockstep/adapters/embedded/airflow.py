"""Airflow by its parts, on loopback, with everything of it below one folder.

`airflow standalone` is not used: ended by SIGTERM it leaves its children behind, and its log
servers listen on all interfaces. Without them the pages read task logs from the disk.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from lockstep.adapters.embedded import process
from lockstep.adapters.embedded.ports import HOST
from lockstep.adapters.embedded.process import Process
from lockstep.control.ports import Progress
from lockstep.errors import LockstepError

__all__ = [
    "API_SERVER",
    "PARTS",
    "STOP_SECONDS",
    "USER",
    "environment",
    "healthy_parts",
    "migrate",
    "password",
    "start",
    "url",
    "wait_ready",
]

USER = "admin"
API_SERVER = "api-server"
READY_SECONDS = 240
STOP_SECONDS = 30
ANSWER_SECONDS = 5
SECRETS = ("api_secret_key", "jwt_secret", "password")

PARTS: Mapping[str, tuple[str, ...]] = {
    API_SERVER: ("api-server",),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "triggerer": ("triggerer", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
}
"""Part -> its words after `airflow`."""

IN_HEALTH: Mapping[str, str] = {
    API_SERVER: "metadatabase",
    "scheduler": "scheduler",
    "triggerer": "triggerer",
    "dag-processor": "dag_processor",
}


def url(port: int) -> str:
    return f"http://{HOST}:{port}"


def environment(home: Path, port: int, spark_master: str) -> dict[str, str]:
    """The environment of every part, and of the tasks that they start; `home` is LOCKSTEP_HOME."""
    folder = home / "airflow"
    secret = _secrets(folder)
    dags, plugins = _shipped()
    not_proxied = ",".join(filter(None, (os.environ.get("NO_PROXY"), "127.0.0.1,localhost")))
    here = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": os.pathsep.join((here, os.environ.get("PATH", os.defpath))),
        "LOCKSTEP_HOME": str(home),
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db",
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(plugins),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "lockstep.airflow.executor.WarmLocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "4",
        # It rests so long before it looks again for tasks that can begin: by default 1 s.
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "0",
        "AIRFLOW__API__HOST": HOST,
        "AIRFLOW__API__PORT": str(port),
        # Tasks call it; without it they would look for port 8080, where another Airflow may be.
        "AIRFLOW__API__BASE_URL": url(port),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__SECRET_KEY": secret["api_secret_key"],
        "AIRFLOW__API_AUTH__JWT_SECRET": secret["jwt_secret"],
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "10",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(
            {"conn_type": "spark", "host": spark_master, "extra": {"deploy-mode": "client"}}
        ),
        "SPARK_LOCAL_IP": HOST,
        "NO_PROXY": not_proxied,
        "no_proxy": not_proxied,
    }


def password(home: Path) -> str:
    """The password of `admin`, generated at the first start."""
    return _secrets(home / "airflow")["password"]


def migrate(variables: Mapping[str, str], progress: Progress) -> None:
    """Make or upgrade Airflow's database; once for each version of Airflow."""
    folder = Path(variables["AIRFLOW_HOME"])
    done = folder / f"migrated-{metadata.version('apache-airflow-core')}"
    if done.exists() and (folder / "airflow.db").exists():
        return
    progress("preparing Airflow's database")
    said = subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"],
        env=dict(variables),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if said.returncode:
        raise LockstepError(
            "Airflow's database could not be prepared",
            expected="`airflow db migrate` to end well",
            found=said.stdout.strip()[-800:],
            next_step=f"see what is in {folder}",
        )
    done.touch()


def start(part: str, variables: Mapping[str, str], log: Path) -> Process:
    """Start one part (a key of PARTS) in a session of its own."""
    command = [sys.executable, "-m", "airflow", *PARTS[part]]
    return process.start(command, log, variables, Path(variables["AIRFLOW_HOME"]))


def wait_ready(part: str, running: Process, port: int, log: Path) -> None:
    """Wait until Airflow says that the part is healthy. Raises LockstepError, Unreachable."""
    process.wait_ready(
        running, f"Airflow's {part}", log, lambda: part in healthy_parts(port), READY_SECONDS
    )


def healthy_parts(port: int) -> frozenset[str]:
    """The parts that Airflow itself calls healthy; empty where it does not answer."""
    import httpx

    try:
        with httpx.Client(trust_env=False, timeout=ANSWER_SECONDS) as client:
            health = client.get(f"{url(port)}/api/v2/monitor/health").json()
    except (httpx.HTTPError, ValueError):
        return frozenset()
    return frozenset(
        part
        for part, name in IN_HEALTH.items()
        if (health.get(name) or {}).get("status") == "healthy"
    )


def _secrets(folder: Path) -> Mapping[str, str]:
    """Random once, then the same for good: pages stay signed in over a restart."""
    kept = folder / "secrets.json"
    if not kept.exists():
        folder.mkdir(parents=True, exist_ok=True)
        made = {name: secrets.token_urlsafe(12 if name == "password" else 32) for name in SECRETS}
        _write_private(kept, json.dumps(made))
    found: dict[str, str] = json.loads(kept.read_text("utf-8"))
    # Where Airflow's simple sign-in looks for it, and would write one of its own.
    sign_in = folder / "simple_auth_manager_passwords.json.generated"
    if not sign_in.exists():
        _write_private(sign_in, json.dumps({USER: found["password"]}))
    return found


def _write_private(path: Path, text: str) -> None:
    """Only this user may read it; whole or not at all."""
    draft = path.with_suffix(".draft")
    draft.touch(mode=0o600)
    draft.write_text(text, "utf-8")
    draft.replace(path)


def _shipped() -> tuple[Path, Path]:
    """DAGs and plugins folder: those of a checkout, else the copies in the wheel."""
    package = Path(__file__).parents[2]
    checkout = package.parents[1]
    if package.parent.name == "plugins" and (checkout / "dags").is_dir():
        return checkout / "dags", package.parent
    return package / "_share" / "dags", package / "_share" / "plugins"
