"""A real scheduler: a scheduled run, runs by hand with parameters, a backfill, a broken one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from airflow_installation import Airflow, wait_for

from lockstep import runtime
from lockstep.adapters.settings import Settings
from lockstep.control.model import RunState

pytestmark = pytest.mark.airflow


@pytest.fixture(scope="module")
def scheduled(airflow: Airflow) -> Any:
    """The run that the scheduler starts by itself, ended."""

    def first() -> Any:
        runs = airflow.get("dags/shop/dagRuns", run_type="scheduled", order_by="run_after")
        return runs["dag_runs"][0] if runs["dag_runs"] else None

    run_id = wait_for(first, "a scheduled run")["dag_run_id"]
    return airflow.ended("shop", run_id)


def hours_before(scheduled: Any, hours: int) -> str:
    """A logical date that no other run has, also where the hour changes between two tests."""
    return (datetime.fromisoformat(scheduled["logical_date"]) - timedelta(hours=hours)).isoformat()


def by_hand(airflow: Airflow, conf: dict[str, Any]) -> Any:
    answer = airflow.post("dags/shop/dagRuns", {"logical_date": None, "conf": conf})
    assert answer.status_code == 200, answer.text
    return airflow.ended("shop", answer.json()["dag_run_id"])


def test_a_scheduled_run_advances_to_the_end_of_its_interval(
    airflow: Airflow, scheduled: Any
) -> None:
    run_id = scheduled["dag_run_id"]
    assert scheduled["state"] == "success", airflow.log("shop", run_id, "plan")
    end = datetime.fromisoformat(scheduled["data_interval_end"])
    assert (end.minute, end.second) == (0, 0)
    assert airflow.xcom("shop", run_id, "plan")["more"] is True
    done = airflow.xcom("shop", run_id, "run")
    assert (done["intervals"], done["first_step"], done["last_step"]) == (2, 0, 9)
    assert airflow.xcom("shop", run_id, "publish")["markers"] == {"counts": 9}


def test_task_logs_and_pages_say_in_plain_words_what_was_done(
    airflow: Airflow, scheduled: Any
) -> None:
    run_id = scheduled["dag_run_id"]
    log = airflow.log("shop", run_id, "run")
    assert "steps 0..6: 700 records in, changes out: counts 7; 1 bad in orders_errors" in log
    assert "steps 0..9: 1,000 records in, 14 changes out, 2 intervals, version 2" in log
    shown = airflow.task("shop", run_id, "plan")["rendered_fields"]
    assert shown["outcome"] == "steps 0..6, 700 records, more to follow"


def test_a_view_s_asset_gets_one_event_from_a_run_that_changed_it(
    airflow: Airflow, scheduled: Any
) -> None:
    events = airflow.get("assets/events", source_run_id=scheduled["dag_run_id"])["asset_events"]
    assert [(event["uri"], event["extra"]) for event in events] == [
        ("lockstep://shop/counts", {"step": 9, "version": 2, "rows": 7})
    ]


def test_a_backfill_of_what_is_published_compares_and_tells_nobody(
    airflow: Airflow, scheduled: Any
) -> None:
    answer = airflow.post(
        "backfills",
        {
            "dag_id": "shop",
            "from_date": hours_before(scheduled, 3),
            "to_date": hours_before(scheduled, 2),
            "max_active_runs": 1,
        },
    )
    assert answer.status_code == 200, answer.text
    runs = wait_for(
        lambda: airflow.get("dags/shop/dagRuns", run_type="backfill")["dag_runs"], "backfill runs"
    )
    assert len(runs) == 2
    for run in runs:
        assert airflow.ended("shop", run["dag_run_id"])["state"] == "success"
        log = airflow.log("shop", run["dag_run_id"], "plan")
        assert "recorded already: steps 0.." in log
        assert "nothing to do" in log
        log = airflow.log("shop", run["dag_run_id"], "run")
        assert "run again: equal; rows compared: counts 7" in log
        events = airflow.get("assets/events", source_run_id=run["dag_run_id"])
        assert events["asset_events"] == []


def test_a_run_that_is_cleared_compares_what_is_published(airflow: Airflow, scheduled: Any) -> None:
    asked = {"logical_date": hours_before(scheduled, 1), "conf": {}}
    answer = airflow.post("dags/shop/dagRuns", asked)
    assert answer.status_code == 200, answer.text
    run_id = answer.json()["dag_run_id"]
    assert airflow.ended("shop", run_id)["state"] == "success"
    assert airflow.xcom("shop", run_id, "run")["replayed"] is None
    cleared = airflow.post(f"dags/shop/dagRuns/{run_id}/clear", {"dry_run": False})
    assert cleared.status_code == 200, cleared.text
    assert airflow.ended("shop", run_id)["state"] == "success"
    assert airflow.xcom("shop", run_id, "run")["replayed"] is not None
    assert airflow.get("assets/events", source_run_id=run_id)["asset_events"] == []


@pytest.mark.usefixtures("scheduled")
def test_a_run_that_is_cleared_does_not_ask_again(airflow: Airflow) -> None:
    settings = Settings.load({"LOCKSTEP_HOME": str(airflow.installation.home)})
    run_id = by_hand(airflow, {"ask": "pause"})["dag_run_id"]
    assert runtime.recorded("shop", settings).desired is RunState.PAUSE
    runtime.desire("shop", RunState.RUN, settings)
    cleared = airflow.post(f"dags/shop/dagRuns/{run_id}/clear", {"dry_run": False})
    assert cleared.status_code == 200, cleared.text
    assert airflow.ended("shop", run_id)["state"] == "success"
    assert "has asked pipeline shop to pause already" in airflow.log("shop", run_id, "plan")
    assert runtime.recorded("shop", settings).desired is RunState.RUN


@pytest.mark.usefixtures("scheduled")
def test_a_run_by_hand_takes_all_that_is_there(airflow: Airflow) -> None:
    run = by_hand(airflow, {"once": True})
    assert run["state"] == "success"
    log = airflow.log("shop", run["dag_run_id"], "plan")
    assert "advance to all that is there now" in log


@pytest.mark.usefixtures("scheduled")
def test_a_time_in_the_future_fails_at_once_and_names_the_next_step(airflow: Airflow) -> None:
    run = by_hand(airflow, {"until": "2999-01-01T00:00:00Z"})
    assert run["state"] == "failed"
    task = airflow.task("shop", run["dag_run_id"], "plan")
    assert (task["state"], task["try_number"]) == ("failed", 1)
    assert "lies in the future" in airflow.log("shop", run["dag_run_id"], "plan")


def test_parameters_are_checked_before_a_run_is_made(airflow: Airflow) -> None:
    answer = airflow.post("dags/shop/dagRuns", {"logical_date": None, "conf": {"once": "soon"}})
    assert answer.status_code == 400
    assert "once" in answer.text


def test_a_broken_pipeline_is_seen_and_hides_no_other(airflow: Airflow) -> None:
    assert airflow.get("importErrors")["import_errors"] == []
    dags = {dag["dag_id"]: dag for dag in airflow.get("dags")["dags"]}
    assert sorted(dags) == ["broken", "shop", "shop__maintenance"]
    assert "lockstep.interval has a value that cannot be used" in dags["broken"]["description"]
    assert "now and then" in airflow.get("dags/broken/details")["doc_md"]
