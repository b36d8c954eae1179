"""The calls of Airflow's REST API that the command line makes: start a run, and ask for it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lockstep.adapters.embedded import airflow
from lockstep.adapters.settings import Settings
from lockstep.errors import LockstepError, NotDeployed, Unreachable, WrongUse

if TYPE_CHECKING:
    import httpx

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

    Raises WrongUse where no Airflow is known, it is another server, the DAG is paused, or the
    parameters are refused; NotDeployed where it has no such DAG (yet), Unreachable where it does not
    answer.
    """
    path = f"/api/v2/dags/{pipeline}"
    body = {"logical_date": None, "conf": dict(conf)}
    with _signed_in(settings) as client:
        if _answer(client.get(path), settings, pipeline).get("is_paused"):
            raise _paused(settings, pipeline)
        answer = _answer(client.post(f"{path}/dagRuns", json=body), settings, pipeline)
    return _run(settings, pipeline, answer)


def run_state(settings: Settings, run: DagRun) -> DagRun:
    """The same run, as it is now."""
    path = f"/api/v2/dags/{run.pipeline}/dagRuns/{run.run_id}"
    with _signed_in(settings) as client:
        return _run(settings, run.pipeline, _answer(client.get(path), settings, run.pipeline))


def _run(settings: Settings, pipeline: str, answer: Mapping[str, Any]) -> DagRun:
    run_id = str(answer["dag_run_id"])
    url = f"{settings.airflow_url}/dags/{pipeline}/runs/{run_id}"
    return DagRun(pipeline, run_id, str(answer["state"]), url)


def _paused(settings: Settings, pipeline: str) -> WrongUse:
    return WrongUse(
        f"the DAG of the pipeline {pipeline} is paused in Airflow, where a run of it would wait",
        expected="a DAG that is not paused",
        found=f"{pipeline} paused",
        next_step=f"unpause it by the switch at {settings.airflow_url}/dags/{pipeline}, or by "
        f"`airflow dags unpause {pipeline}` where Airflow runs, then run the command again",
    )


@contextmanager
def _signed_in(settings: Settings) -> Iterator[httpx.Client]:
    """A client whose calls are those of the user. Raises WrongUse, Unreachable."""
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
            token = _token(client.post("/auth/token", json=_credentials(settings)), settings)
            client.headers["Authorization"] = f"Bearer {token}"
            yield client
    except httpx.HTTPError as error:
        raise Unreachable(
            f"Airflow at {settings.airflow_url} does not answer",
            found=str(error) or type(error).__name__,
            next_step="lockstep status",
        ) from error


def _credentials(settings: Settings) -> Mapping[str, str]:
    """LOCKSTEP_AIRFLOW_USER and LOCKSTEP_AIRFLOW_PASSWORD, else those of the embedded Airflow."""
    user = os.environ.get("LOCKSTEP_AIRFLOW_USER") or airflow.USER
    password = os.environ.get("LOCKSTEP_AIRFLOW_PASSWORD") or airflow.password(settings.home)
    return {"username": user, "password": password}


def _token(answer: httpx.Response, settings: Settings) -> str:
    """What Airflow gives to those whom it lets in; nobody else has an answer of that form."""
    match answer.status_code:
        case 401 | 403:
            raise _not_let_in(answer, settings)
        case 500 | 502 | 503 | 504:
            raise _failed(answer, settings)
    with suppress(ValueError, KeyError, TypeError):
        if answer.is_success:
            return str(answer.json()["access_token"])
    raise WrongUse(
        f"what answers at {settings.airflow_url} is no Airflow 3, or signs nobody in",
        expected="a token for a user and a password sent to /auth/token",
        found=f"status {answer.status_code}: {_said(answer)}",
        next_step="set LOCKSTEP_AIRFLOW_URL to the address of Airflow's API server; `lockstep status` "
        "shows that of the stack",
    )


def _answer(answer: httpx.Response, settings: Settings, pipeline: str) -> Mapping[str, Any]:
    """What Airflow says about a DAG or a run of it; its refusals in Lockstep's words."""
    if answer.is_success:
        found: Mapping[str, Any] = answer.json()
        return found
    where = f"Airflow at {settings.airflow_url}"
    match answer.status_code:
        case 401 | 403:
            raise _not_let_in(answer, settings)
        case 404:
            raise NotDeployed(
                f"{where} has no DAG of the pipeline {pipeline}",
                expected="a deployed pipeline; its DAG shows some seconds after `lockstep deploy`",
                found=_said(answer),
                next_step="lockstep status",
            )
        case 400 | 409 | 422:
            raise WrongUse(f"{where} refuses the run", found=_said(answer))
        case _:
            raise _failed(answer, settings)


def _not_let_in(answer: httpx.Response, settings: Settings) -> WrongUse:
    return WrongUse(
        f"Airflow at {settings.airflow_url} does not let this user in",
        expected="LOCKSTEP_AIRFLOW_USER and LOCKSTEP_AIRFLOW_PASSWORD of one who may trigger runs",
        found=_said(answer),
    )


def _failed(answer: httpx.Response, settings: Settings) -> LockstepError:
    return LockstepError(
        f"Airflow at {settings.airflow_url} failed with status {answer.status_code}",
        found=_said(answer),
        next_step="read airflow-api-server.log, which `lockstep status` names",
    )


def _said(answer: httpx.Response) -> str:
    return " ".join(answer.text.split())[:500]
