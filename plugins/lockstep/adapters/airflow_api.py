"""The two calls of Airflow's REST API that the command line makes: start a run, and ask for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lockstep.adapters.embedded import airflow
from lockstep.adapters.settings import Settings
from lockstep.errors import LockstepError, NotDeployed, Unreachable, WrongUse

__all__ = ["DagRun", "run_state", "trigger"]

ANSWER_SECONDS = 30


@dataclass(frozen=True)
class DagRun:
    """A run of a pipeline's DAG; `state` is Airflow's: queued, running, success, failed."""

    pipeline: str
    run_id: str
    state: str
    url: str


def trigger(settings: Settings, pipeline: str, conf: Mapping[str, object]) -> DagRun:
    """Start a run by hand with these parameters.

    Raises WrongUse where no Airflow is known or it refuses the parameters, NotDeployed where it has
    no such DAG (yet), Unreachable where it does not answer.
    """
    body = {"logical_date": None, "conf": dict(conf)}
    answer = _call(settings, pipeline, "POST", f"/api/v2/dags/{pipeline}/dagRuns", body)
    return _run(settings, pipeline, answer)


def run_state(settings: Settings, run: DagRun) -> DagRun:
    """The same run, as it is now."""
    path = f"/api/v2/dags/{run.pipeline}/dagRuns/{run.run_id}"
    return _run(settings, run.pipeline, _call(settings, run.pipeline, "GET", path, None))


def _run(settings: Settings, pipeline: str, answer: Mapping[str, Any]) -> DagRun:
    run_id = str(answer["dag_run_id"])
    url = f"{settings.airflow_url}/dags/{pipeline}/runs/{run_id}"
    return DagRun(pipeline, run_id, str(answer["state"]), url)


def _call(
    settings: Settings, pipeline: str, method: str, path: str, body: object
) -> Mapping[str, Any]:
    import httpx

    if not settings.airflow_url:
        raise WrongUse(
            "no Airflow is known",
            expected="LOCKSTEP_AIRFLOW_URL, or a running stack with Airflow",
            found="neither",
            next_step="lockstep up",
        )
    try:
        with httpx.Client(
            base_url=settings.airflow_url, trust_env=False, timeout=ANSWER_SECONDS
        ) as client:
            signed_in = client.post("/auth/token", json=_credentials(settings))
            _check(signed_in, settings, pipeline)
            token = signed_in.json()["access_token"]
            answer = client.request(
                method, path, json=body, headers={"Authorization": f"Bearer {token}"}
            )
    except httpx.HTTPError as error:
        raise Unreachable(
            f"Airflow at {settings.airflow_url} does not answer",
            found=str(error) or type(error).__name__,
            next_step="lockstep status",
        ) from error
    _check(answer, settings, pipeline)
    found: Mapping[str, Any] = answer.json()
    return found


def _credentials(settings: Settings) -> Mapping[str, str]:
    """LOCKSTEP_AIRFLOW_USER and LOCKSTEP_AIRFLOW_PASSWORD, else those of the embedded Airflow."""
    user = os.environ.get("LOCKSTEP_AIRFLOW_USER") or airflow.USER
    password = os.environ.get("LOCKSTEP_AIRFLOW_PASSWORD") or airflow.password(settings.home)
    return {"username": user, "password": password}


def _check(answer: Any, settings: Settings, pipeline: str) -> None:
    """Airflow's refusals in Lockstep's words."""
    if answer.is_success:
        return
    said = " ".join(answer.text.split())[:500]
    where = f"Airflow at {settings.airflow_url}"
    match answer.status_code:
        case 401 | 403:
            raise WrongUse(
                f"{where} does not let this user in",
                expected="LOCKSTEP_AIRFLOW_USER and LOCKSTEP_AIRFLOW_PASSWORD of one who may "
                "trigger runs",
                found=said,
            )
        case 404:
            raise NotDeployed(
                f"{where} has no DAG of the pipeline {pipeline}",
                expected="a deployed pipeline; its DAG shows some seconds after `lockstep deploy`",
                found=said,
                next_step="lockstep status",
            )
        case 400 | 409 | 422:
            raise WrongUse(f"{where} refuses the run", found=said)
        case code:
            raise LockstepError(
                f"{where} failed with status {code}",
                found=said,
                next_step="read airflow-api-server.log, which `lockstep status` names",
            )
