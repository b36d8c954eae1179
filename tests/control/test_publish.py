"""What a publish asks of the engine, and what it makes of the sinks' own markers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from control_builders import FILES, SINKS, attempt, deploy, interval, store_url

from lockstep.adapters.sql_store import SqlStore
from lockstep.adapters.sql_values import replaced_of, replaced_text
from lockstep.control import interval as stages
from lockstep.control.changes import (
    BeginAttempt,
    CommitVersion,
    Deploy,
    IntendPublish,
    Landed,
    RecordInterval,
    RecordPublished,
)
from lockstep.control.job import PublishJob, PublishResult
from lockstep.control.model import PipelineState, Replaced, SinkState, Version
from lockstep.control.ports import Progress
from lockstep.control.publishing import publish
from lockstep.control.steps import StepLimits
from lockstep.errors import AttemptLost, StateDiverged

PIPELINE = "p"


class SinksThatSay:
    """An engine after whose publish each sink's marker is at this step."""

    def __init__(self, marker: int) -> None:
        self.marker = marker
        self.jobs: list[PublishJob] = []

    def publish(self, job: PublishJob, _: Progress) -> PublishResult:
        self.jobs.append(job)
        names = [target.name for target in job.sinks]
        return PublishResult(dict.fromkeys(names, self.marker), dict.fromkeys(names, 1), {})


@pytest.fixture
def store(tmp_path: Path) -> SqlStore:
    """Steps 0..2 are committed."""
    made = SqlStore(store_url(tmp_path))
    for change in (
        deploy(),
        RecordInterval(interval(0, 3)),
        BeginAttempt(attempt("a", 0, 2)),
        CommitVersion(Version(1, "a", 2, 0, {"v_changes": 7, "w_changes": 8}), ""),
    ):
        assert isinstance(made.apply(PIPELINE, change), Landed)
    return made


def parts(store: SqlStore, engine: SinksThatSay) -> stages.Parts:
    nothing: Any = None
    return stages.Parts(
        pipeline=PIPELINE,
        store=store,
        sources=nothing,
        state=SimpleNamespace(settle=lambda *_: None),  # type: ignore[arg-type]
        files=nothing,
        engine=engine,  # type: ignore[arg-type]
        clock=nothing,
        limits=StepLimits(step_seconds=10.0, interval_seconds=60.0),
        retain_versions=2,
        source_names=("s",),
        outboxes={},
        variables={},
        catalog=nothing,
        new_id=lambda: "b",
    )


def test_the_engine_is_told_of_an_intent_that_was_left_open(store: SqlStore) -> None:
    view, topic = SINKS
    store.apply(PIPELINE, IntendPublish(topic.name, 0, 2))
    engine = SinksThatSay(2)
    publish(parts(store, engine), lambda _: None)
    [job] = engine.jobs
    assert {target.name: target.was_intended for target in job.sinks} == {
        view.name: False,
        topic.name: True,
    }
    assert job.divisions == interval(0, 3).divisions
    assert {sink.published_step for sink in store.read(PIPELINE).sinks} == {2}


def test_only_a_topic_asks_for_divisions(store: SqlStore) -> None:
    topic = SINKS[1]
    store.apply(PIPELINE, IntendPublish(topic.name, 0, 1))
    store.apply(PIPELINE, RecordPublished(topic.name, 1))
    engine = SinksThatSay(2)
    publish(parts(store, engine), lambda _: None)
    assert [division.step for division in engine.jobs[0].divisions] == [2]
    assert publish(parts(store, engine), lambda _: None).rows == {}
    assert len(engine.jobs) == 1


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        (1, "sink v was published to step 2, but its marker says 1"),
        (3, "sink v is ahead of the control store"),
    ],
)
def test_a_marker_that_does_not_fit_is_refused(store: SqlStore, marker: int, message: str) -> None:
    with pytest.raises(StateDiverged) as caught:
        publish(parts(store, SinksThatSay(marker)), lambda _: None)
    assert caught.value.message == message
    assert {sink.published_step for sink in store.read(PIPELINE).sinks} == {-1}


def test_a_newer_publish_may_have_moved_a_sink_further(store: SqlStore) -> None:
    """Its version was committed while this publish was at work."""

    class Overtaken(SinksThatSay):
        def publish(self, job: PublishJob, progress: Progress) -> PublishResult:
            for change in (
                RecordInterval(interval(3, 2)),
                BeginAttempt(attempt("b", 3, 4, "a")),
                CommitVersion(Version(2, "b", 4, 0, {"v_changes": 7}), "a"),
            ):
                assert isinstance(store.apply(PIPELINE, change), Landed)
            return super().publish(job, progress)

    published = publish(parts(store, Overtaken(4)), lambda _: None)
    assert published.markers == {"v": 4, "k": 4}
    assert {sink.published_step for sink in store.read(PIPELINE).sinks} == {2}


def test_an_intent_that_is_opened_meanwhile_is_not_overlooked(store: SqlStore) -> None:
    """Somebody else may have sent rows: who does not know that must not take lost markers for none."""
    engine = SinksThatSay(2)

    def settle(*_: object, **__: object) -> None:
        store.apply(PIPELINE, IntendPublish("k", 0, 2))

    slow = replace(parts(store, engine), state=SimpleNamespace(settle=settle))  # type: ignore[arg-type]
    with pytest.raises(AttemptLost, match="sink k has an open intent by now"):
        publish(slow, lambda _: None)
    assert engine.jobs == []
    publish(parts(store, engine), lambda _: None)
    assert {target.was_intended for target in engine.jobs[0].sinks} == {True}


def test_a_sink_that_the_versions_files_do_not_have_waits_for_the_next_version(
    store: SqlStore,
) -> None:
    """The version is published with the files that made it, and the engine finds no such sink there."""
    other = replace(FILES, spec="other")
    # k is another sink by now: it was dropped by one deploy, and named anew by the next.
    sinks = (SINKS[0], SinkState("new", "v", "kafka"), SinkState("k", "w", "kafka"))
    for wanted in (SINKS[:1], sinks):
        changed = Deploy(other, "i1", wanted, rebuilds=True)
        assert isinstance(store.apply(PIPELINE, changed), Landed)
    engine = SinksThatSay(2)
    publish(parts(store, engine), lambda _: None)
    [job] = engine.jobs
    assert (job.files, [target.name for target in job.sinks]) == (FILES, ["v"])
    recorded = {sink.name: sink for sink in store.read(PIPELINE).sinks}
    assert [recorded[name].published_step for name in ("v", "new", "k")] == [2, -1, -1]
    assert recorded["new"].intent is None
    assert publish(parts(store, engine), lambda _: None).rows == {}

    for change in (
        RecordInterval(interval(3, 1)),
        BeginAttempt(attempt("b", 3, 3, "a")),
        CommitVersion(Version(2, "b", 3, 0, {"v_changes": 7, "w_changes": 8}), "a"),
    ):
        assert isinstance(store.apply(PIPELINE, change), Landed)
    later = SinksThatSay(3)
    publish(parts(store, later), lambda _: None)
    [job] = later.jobs
    assert job.files == other
    assert {t.name: t.first_step for t in job.sinks} == {"v": 3, "new": 0, "k": 0}


def test_where_an_older_release_has_written_no_sinks_all_wait() -> None:
    held = json.loads(replaced_text(Replaced(FILES, ("s",), (("v", "v"),))))
    del held["sinks"]
    found = replaced_of(json.dumps(held))
    assert found == Replaced(FILES, ("s",))
    state = PipelineState("p", "i1", 1, FILES, sinks=SINKS, replaced=found)
    assert state.version_sinks == ()
