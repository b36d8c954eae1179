"""The operators without a database: what they push, which assets they tell, how they fail."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from airflow_fakes import STEP, T0, FakePipeline, Memory

from lockstep import deploying, runtime
from lockstep.airflow.operators import (
    BrokenOperator,
    MaintainOperator,
    PlanOperator,
    PublishOperator,
    RunOperator,
    Stage,
    asset_alias,
    view_asset,
)
from lockstep.control.job import Difference
from lockstep.control.model import RunState
from lockstep.errors import EngineFailed, LockstepError, SourceChanged, Unreachable, WrongUse

Opener = Callable[[FakePipeline], FakePipeline]


class Events(dict[Any, Any]):
    """Stands for outlet_events: alias name → what was added."""

    def __getitem__(self, alias: Any) -> Any:
        added = self.setdefault(alias.name, [])
        return SimpleNamespace(add=lambda asset, extra: added.append((asset.uri, extra)))


def context(pushed: dict[str, Any] | None = None, **more: Any) -> Any:
    return {
        "params": {},
        "data_interval_end": T0 + 6 * STEP,
        "data_interval_start": T0,
        "dag_run": dag_run(),
        "ti": SimpleNamespace(xcom_pull=lambda task_ids: pushed if task_ids == "plan" else None),
        "outlet_events": Events(),
        "task_state_store": Memory(),
        **more,
    }


def dag_run(run_type: str = "scheduled", clear_number: int = 0) -> Any:
    return SimpleNamespace(
        run_after=T0 + timedelta(hours=1), run_type=run_type, clear_number=clear_number
    )


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opener:
    """Make a double what `open_pipeline` opens."""

    def open_it(pipeline: FakePipeline) -> FakePipeline:
        monkeypatch.setattr(runtime, "open_pipeline", lambda *_: pipeline)
        return pipeline

    return open_it


def test_the_three_tasks_hand_on_little_and_show_what_they_did(opened: Opener) -> None:
    pipeline = opened(FakePipeline(width=4))
    plan, run = (
        PlanOperator(task_id="plan", pipeline="shop"),
        RunOperator(task_id="run", pipeline="shop"),
    )
    pushed = plan.execute(context())
    assert pushed == {"first_step": 0, "last_step": 3, "records": 400, "more": True}
    assert plan.outcome == "steps 0..3, 400 records, more to follow"
    done = run.execute(context(pushed))
    assert (done["intervals"], done["first_step"], done["last_step"]) == (2, 0, 5)
    assert done["errors"] == {"orders": 2}
    assert run.outcome == "steps 0..5: 600 records in, 14 changes out, 2 intervals, version 2"
    assert pipeline.calls == ["plan", "close", "run", "plan", "run", "close"]
    assert "outcome" in run.template_fields
    assert run.overwrite_rtif_after_execution


def test_a_run_by_hand_without_a_logical_date_advances_to_when_it_was_asked_for(
    opened: Opener,
) -> None:
    pipeline = opened(FakePipeline(width=1000))
    by_hand = context()
    del by_hand["data_interval_end"]
    PlanOperator(task_id="plan", pipeline="shop").execute(by_hand)
    assert pipeline.next_step == 360


@pytest.mark.parametrize(
    ("ask", "wanted"),
    [("pause", RunState.PAUSE), ("resume", RunState.RUN), ("stop", RunState.STOP)],
)
def test_a_run_can_ask_its_pipeline_to_pause_and_to_go_on(
    opened: Opener, monkeypatch: pytest.MonkeyPatch, ask: str, wanted: RunState
) -> None:
    asked: list[tuple[str, RunState]] = []
    monkeypatch.setattr(runtime, "desire", lambda name, desired, _: asked.append((name, desired)))
    opened(FakePipeline())
    PlanOperator(task_id="plan", pipeline="shop").execute(context(params={"ask": ask}))
    assert asked == [("shop", wanted)]


def test_a_run_can_ask_for_all_state_to_be_made_anew(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(deploying, "reconcile", lambda name, _: asked.append(name))
    opened(FakePipeline())
    PlanOperator(task_id="plan", pipeline="shop").execute(context(params={"ask": "reconcile"}))
    PlanOperator(task_id="plan", pipeline="shop").execute(context(params={"ask": "advance"}))
    assert asked == ["shop"]


@pytest.fixture
def stops(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The times that a pipeline is asked to stop."""
    asked: list[str] = []
    monkeypatch.setattr(runtime, "desire", lambda name, *_: asked.append(name))
    opened(FakePipeline(fails={"plan": [EngineFailed("died after it had asked")]}))
    return asked


def stop(memory: Memory | None, clear_number: int = 0) -> None:
    run = dag_run("manual", clear_number)
    asking = context(params={"ask": "stop"}, task_state_store=memory, dag_run=run)
    PlanOperator(task_id="plan", pipeline="shop").execute(asking)


def test_a_run_asks_once_however_often_it_is_tried_or_cleared(stops: list[str]) -> None:
    """Somebody may have resumed the pipeline since."""
    memory = Memory()
    with pytest.raises(EngineFailed):
        stop(memory)
    stop(memory)
    stop(memory, clear_number=1)
    assert stops == ["shop"]
    stop(Memory())
    assert stops == ["shop", "shop"]


def test_a_cleared_run_of_which_nothing_is_remembered_does_not_ask(stops: list[str]) -> None:
    with pytest.raises(EngineFailed):
        stop(None)
    stop(None, clear_number=1)
    assert stops == ["shop"]


def test_a_try_that_died_before_it_asked_leaves_that_to_the_next(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = iter([Unreachable("the control store does not answer"), None])
    asked: list[str] = []

    def desire(name: str, *_: object) -> None:
        if error := next(outcomes):
            raise error
        asked.append(name)

    monkeypatch.setattr(runtime, "desire", desire)
    opened(FakePipeline())
    memory = Memory()
    with pytest.raises(Unreachable):
        stop(memory)
    stop(memory)
    assert asked == ["shop"]


def test_what_cannot_be_asked_for_is_not_tried_again(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise WrongUse("pipeline shop has no version yet", next_step="lockstep trigger shop --once")

    monkeypatch.setattr(deploying, "reconcile", refuse)
    pipeline = opened(FakePipeline())
    with pytest.raises(AirflowFailException, match="next: lockstep trigger shop --once"):
        PlanOperator(task_id="plan", pipeline="shop").execute(context(params={"ask": "reconcile"}))
    assert pipeline.calls == ["close"]


def publish(pipeline: FakePipeline, store: Memory) -> Any:
    """The asset events of one publish task."""
    happened = context(task_state_store=store)
    PublishOperator(task_id="publish", pipeline=pipeline.name).execute(happened)
    return happened["outlet_events"].get(asset_alias("shop").name, [])


def committed(opened: Opener) -> FakePipeline:
    pipeline = opened(FakePipeline())
    pipeline.plan(T0 + 6 * STEP, lambda _: None)
    pipeline.run(lambda _: None)
    return pipeline


def test_a_view_that_changed_is_told_once_with_step_version_and_rows(opened: Opener) -> None:
    pipeline, store = committed(opened), Memory()
    assert publish(pipeline, store) == [
        ("lockstep://shop/counts", {"step": 5, "version": 1, "rows": 7})
    ]
    assert publish(pipeline, store) == []
    assert store.kept == {}


def test_a_view_that_was_moved_by_a_try_that_died_is_still_told(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, store = committed(opened), Memory()

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("lockstep.airflow.operators._changed", dies)
        with pytest.raises(KeyboardInterrupt):
            publish(pipeline, store)
    assert publish(pipeline, store) == [
        ("lockstep://shop/counts", {"step": 5, "version": 1, "rows": None})
    ]


def test_a_publish_without_rows_tells_nobody(opened: Opener) -> None:
    assert publish(opened(FakePipeline()), Memory()) == []


@pytest.mark.parametrize("again", [dag_run("backfill"), dag_run(clear_number=1)])
def test_a_run_that_is_asked_for_again_compares_and_tells_nobody(
    opened: Opener, again: Any
) -> None:
    pipeline, store = committed(opened), Memory()
    assert len(publish(pipeline, store)) == 1
    pipeline.calls.clear()
    run = RunOperator(task_id="run", pipeline="shop")
    done = run.execute(context({"more": False}, dag_run=again))
    assert (done["replayed"], done["intervals"]) == (6, 0)
    assert pipeline.calls == ["backfill", "run", "close"]
    assert run.outcome == ("steps 0..5 run again: equal; rows compared: counts 7; nothing to run")
    assert publish(pipeline, store) == []


def test_a_run_that_is_asked_for_again_and_differs_fails_at_once(opened: Opener) -> None:
    pipeline = committed(opened)
    publish(pipeline, Memory())
    pipeline.differences = (Difference("counts", 4, 1, 0, ('-1 {"n":3}',)),)
    with pytest.raises(AirflowFailException) as failed:
        RunOperator(task_id="run", pipeline="shop").execute(context(dag_run=dag_run("backfill")))
    assert "step 4 of view counts was replayed, and gives other rows" in str(failed.value)
    assert '-1 {"n":3}' in str(failed.value)


TOO_OLD = WrongUse(
    "pipeline shop cannot run steps after 2013-01-01T00:00:00+00:00 again: no version that old is kept",
    next_step="ask for later times",
)
RECORDS_GONE = SourceChanged("source orders: topic o, partition 0: 9 offsets were removed")


@pytest.mark.parametrize("error", [TOO_OLD, RECORDS_GONE])
def test_a_cleared_run_that_cannot_be_compared_any_more_says_so_and_succeeds(
    opened: Opener, monkeypatch: pytest.MonkeyPatch, error: LockstepError
) -> None:
    """A run that failed long ago could never be made green."""
    lines: list[str] = []
    monkeypatch.setattr(Stage, "progress", lambda _, line: lines.append(line))
    pipeline = committed(opened)
    publish(pipeline, Memory())
    pipeline.fails = {"backfill": [error]}
    pipeline.calls.clear()
    run = RunOperator(task_id="run", pipeline="shop")
    done = run.execute(context({"more": False}, dag_run=dag_run(clear_number=1)))
    assert (done["replayed"], done["intervals"]) == (None, 0)
    assert pipeline.calls == ["backfill", "run", "close"]
    assert f"not compared: {error}" in lines


def test_a_backfill_of_what_is_not_published_advances(opened: Opener) -> None:
    pipeline = committed(opened)
    RunOperator(task_id="run", pipeline="shop").execute(context(dag_run=dag_run("backfill")))
    assert "backfill" not in pipeline.calls


def test_a_scheduled_run_over_what_is_published_compares_nothing(opened: Opener) -> None:
    pipeline = committed(opened)
    publish(pipeline, Memory())
    done = RunOperator(task_id="run", pipeline="shop").execute(context({"more": False}))
    assert done["replayed"] is None
    assert "backfill" not in pipeline.calls


def test_what_is_refused_is_not_retried_and_says_what_to_do(opened: Opener) -> None:
    gone = SourceChanged(
        "topic orders was made anew", expected="id 1", found="id 2", next_step="lockstep doctor"
    )
    opened(FakePipeline(fails={"plan": [gone]}))
    with pytest.raises(AirflowFailException) as failed:
        PlanOperator(task_id="plan", pipeline="shop").execute(context())
    assert str(failed.value).splitlines() == [
        "topic orders was made anew",
        "  expected: id 1",
        "  found: id 2",
        "  next: lockstep doctor",
    ]


def test_what_may_succeed_later_fails_as_usual(opened: Opener) -> None:
    pipeline = opened(FakePipeline(fails={"run": [EngineFailed("Spark ended the job")]}))
    with pytest.raises(EngineFailed):
        RunOperator(task_id="run", pipeline="shop").execute(context())
    assert pipeline.calls[-1] == "close"


def test_maintenance_pushes_its_counts(opened: Opener) -> None:
    opened(FakePipeline())
    task = MaintainOperator(task_id="maintain", pipeline="shop")
    assert task.execute(context()) == {"branches dropped": 2}
    assert task.outcome == "branches dropped 2"


def test_progress_goes_to_the_task_log_and_names_spark_where_it_is_known(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(Stage, "progress", lambda _, line: lines.append(line))
    monkeypatch.setenv("LOCKSTEP_SPARK_UI", "http://127.0.0.1:4040")
    opened(FakePipeline())
    task = RunOperator(task_id="run", pipeline="shop")
    task.execute(context({"more": False}))
    assert lines[0] == "Spark UI: http://127.0.0.1:4040"
    assert [link.get_link(task, ti_key=None) for link in task.operator_extra_links] == [
        "http://127.0.0.1:4040"
    ]


def test_a_broken_pipeline_s_task_says_why() -> None:
    with pytest.raises(AirflowFailException, match="has no DAG"):
        BrokenOperator(task_id="explain", fault="pipeline shop has no DAG").execute(context())


def test_asset_uris_stand_as_they_are_written() -> None:
    asset = view_asset("shop", "worst_routes")
    assert (asset.uri, asset.name) == ("lockstep://shop/worst_routes", "shop.worst_routes")
