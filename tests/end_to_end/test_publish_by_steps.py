"""`publish: step`: what is out while an interval is still at work, and each step of it once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import reader
from driven import own_settings
from long_lived import Totals

from lockstep.control.interval import Point
from lockstep.runtime import Pipeline, recorded

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


class Died(Exception):
    """Stands for the death of the process: nothing of the stage's own code catches it."""


def test_steps_are_out_while_their_interval_is_at_work(
    tmp_path: Path, spark_server: Any, broker: Any, database: str
) -> None:
    settings = own_settings(spark_server, broker, tmp_path / "home")
    prefix = f"{database}_"
    totals = Totals(settings, prefix, seed=3)
    totals.deploy(tmp_path / "project", publish="step")
    totals.change(rows=250)
    out: list[tuple[int, set[int]]] = []
    commits = 0

    def reached(point: Point) -> None:
        nonlocal commits
        if point is Point.RUN_BEGUN:
            state = recorded("totals", totals.settings)
            sent = reader.read_topic(totals.settings.kafka, f"{prefix}totals_out")
            out.append((state.version.last_step, set(reader.changelog_by_step(sent))))
        commits += point is Point.COMMIT_LANDED
        if point is Point.COMMIT_LANDED and commits == 2:
            raise Died

    with Pipeline("totals", totals.settings, reached) as pipeline:
        interval = pipeline.plan(None, print).interval
        assert interval is not None
        assert interval.last_step >= 6
        with pytest.raises(Died):
            pipeline.run(print)
    state = recorded("totals", totals.settings)
    assert (state.version.last_step, state.pending) == (2, interval.after(2))
    with Pipeline("totals", totals.settings, reached) as pipeline:
        committed = pipeline.run(print)
        pipeline.publish(print)
    assert committed is not None
    assert (committed.first_step, committed.last_step) == (3, interval.last_step)
    # Of an attempt at steps from n on the topic has those before n, and never one from n on: but that
    # what was committed right before the death waits for the publish of the piece that follows.
    begun = [step for step, _ in out]
    assert begun[:4] == [-1, 0, 2, 3]
    assert [steps <= set(range(step + 1)) for step, steps in out] == [True] * len(out)
    assert [max(steps, default=-1) for _, steps in out[:4]] == [-1, 0, 0, 3]
    assert totals.is_settled
    findings = totals.check(totals.sent)
    assert findings.clean, findings
