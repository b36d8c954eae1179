"""Directed lives in the same twins, for what chance brings together too rarely.

A scenario lets a pipeline live for a while, lets one thing happen at a moment that the seed chooses, and
goes on; where the pipeline refuses, by the way that its message names. The checker then judges what a
user sees. With the protection it finds nothing; with the scenario's fault put in it must find something.
Nothing else fails here, so what it finds comes of that fault.

    python tests/simulation/scenarios.py        prints for each what is found with the fault
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from checker import Finding
from life import Life
from patches import Patch, both, main_anyhow, replaced, rewritten
from sim_judge import PIPELINE
from sim_sinks import TopicPublish
from sim_tables import VIEW
from sim_world import HOUR, MINUTE, SECOND, Process, StuckError
from simulate import INCARNATION, TOPIC_SINK

from lockstep.control import (
    interval,
    maintenance,
    positions,
    publishing,
    relayout,
    restoring,
    steps,
    transitions,
)
from lockstep.control.changes import RollBack
from lockstep.control.interval import Point
from lockstep.errors import LockstepError
from lockstep_engine.sinks import kafka_plan, view_publish

SEEDS = range(1, 25)
REBUILD, MADE_ANEW = "lockstep doctor DIR --rebuild", "was deleted and made anew"

# ── what may happen ─────────────────────────────────────────────────────────────────────────────


def rolled_back_under_an_attempt(life: Life) -> None:
    """An attempt sleeps before its commit; a rollback and its replay bring its base's number again."""
    life.advance(life.moments.randint(2, 4))
    life.produce()
    life.go(life._plan_all)
    asleep: list[Process] = []

    def reached(point: Point, process: Process) -> None:
        if point is Point.COMMIT_CHECKED and not asleep:
            asleep.append(process)
            process.wakes = life.world.now + 5 * HOUR

    life.start(life._run, reached=reached)
    life.world.run(lambda: bool(asleep))
    number = life.recorded().version.number
    targets = [version for version in life.recorded().versions[:-1] if version.number]
    target = life.moments.choice(targets)
    life.store.send(PIPELINE, RollBack(target.number, target.attempt))
    while life.recorded().version.number < number:
        life.go(life._run)
    life.world.run()
    life.finish()


def merged_under_an_attempt(life: Life) -> None:
    """Maintenance has merged files of the newest version, and sleeps before it swaps them in. An attempt
    opens that version, and commits before the swap arrives, or after it."""
    swap_at = 30 * SECOND
    held = life.hold_swap(swap_at)
    while not held:
        life.advance()
        _, merge = life.start(life._maintain)
        life.world.run(lambda merge=merge: merge.is_done or bool(held))
    is_slow = life.moments.random() < 0.5

    def reached(point: Point, process: Process) -> None:
        if point is Point.COMMIT_CHECKED and is_slow:
            process.wakes = life.world.now + 2 * swap_at

    life.produce()
    life.go(life._plan_all)
    life.start(life._run, life._publish, reached=reached)
    life.finish()


def fewer_shards_under_a_publish(life: Life) -> None:
    """A publish with three shards sleeps while one with one does its work, and then goes on."""
    life.deploy(3)
    life.advance(2)
    life.produce()
    life.go(life._plan_all, life._run)
    # Soon: once a shard is done, the other publish has to end what this one began.
    life.publish_half_way(turns=5)
    life.is_judged_later = True
    life.fall_asleep(MINUTE)
    life.deploy(1)
    life.go(life._publish)
    life.finish()


def marker_forgotten(life: Life) -> None:
    """A publish dies on its way; then Kafka forgets some markers, or all."""
    _forget_in_mid_publish(life)
    life.finish()


def _forget_in_mid_publish(life: Life) -> None:
    life.deploy(life.moments.randint(1, 3))
    life.advance(2)
    life.produce()
    life.go(life._plan_all, life._run)
    life.publish_half_way()
    life.die()
    life.forget_markers()


def deployed_anew(life: Life) -> None:
    """The record is gone, and somebody deploys the project once more: a life of its own begins on the
    tables, views and topics of the one before."""
    life.advance(life.moments.randint(2, 4))
    told = life.lose_store()
    life.begin_topic()
    life.deploy(1, "incarnation2")
    life.produce()
    for _ in range(life.moments.randint(1, 3)):
        for stage in (life._plan_all, life._run, life._publish):
            life.go(stage)
    if life.was_told(REBUILD):
        if life._topic():
            life.findings.append(Finding("unexpected", "the topic", "rows of the new life"))
        checker = life._told(told)
        rows = life.lake.table(VIEW).shown[-1].rows
        life.findings += checker.view("the view", checker.last_step, rows)
        if life.moments.random() < 0.5:
            life.begin_topic(anew=False)
            life.rebuild(told)
        else:
            life.lake.tables.clear()
    life.finish()


def old_backup(life: Life) -> None:
    """The store is what it was some versions ago, while tables and sinks are further."""
    life.advance(2)
    life.produce()
    life.go(*(life._plan_all, life._run)[: life.moments.randint(0, 2)])
    backup = life.backup()
    life.go(life._plan_all, life._run, life._publish)
    life.advance(life.moments.randint(0, 2))
    told = life.set_back(backup)
    life.produce()
    for _ in range(life.moments.randint(1, 3)):
        life.go(life._plan_all)
        life.go(life._run)
        life.go(life._publish)
    if life.was_told(REBUILD):
        life.rebuild(told)
    life.finish()


def store_lost_with_a_marker(life: Life) -> None:
    """A publish dies on its way, Kafka forgets some markers, and the store is lost: all that knew."""
    _forget_in_mid_publish(life)
    told = life.lose_store()
    life.rebuild(told)
    life.finish()


def store_lost_in_mid_pin(life: Life) -> None:
    """A run dies when its version is pinned on some tables only, and the store is lost."""
    life.advance(2)
    _die_in_mid_pin(life, life.moments.randint(4, 12))
    life.rebuild(life.lose_store())
    life.finish()


def _die_in_mid_pin(life: Life, turns: int) -> None:
    """A run dies so many turns after it has recorded its version."""
    life.produce()
    life.go(life._plan_all)
    landed: list[Point] = []

    def reached(point: Point, _: Process) -> None:
        if point is Point.COMMIT_LANDED:
            landed.append(point)

    _, task = life.start(life._run, reached=reached)
    life.world.run(lambda: bool(landed))
    end = life.world.turns + turns
    life.world.run(lambda: task.is_done or life.world.turns >= end)
    life.die()


def store_lost_after_a_replay(life: Life) -> None:
    """What a rollback dropped has been replayed, so that numbers of versions are pinned twice."""
    # The ids of the world grow, real ones have no order.
    life.world.new_id = lambda: f"{life.moments.getrandbits(48):012x}"  # type: ignore[method-assign]
    life.advance(life.moments.randint(2, 4))
    number = life.recorded().version.number
    target = life.moments.choice([one for one in life.recorded().versions[:-1] if one.number])
    life.store.send(PIPELINE, RollBack(target.number, target.attempt))
    while life.recorded().version.number < number:
        life.go(life._run)
    life.rebuild(life.lose_store())
    life.finish()


def topic_made_anew(life: Life) -> None:
    """A source's topic has other records at the same offsets, and more of them: from before a plan on,
    or after it, or while it is read."""
    life.advance(2)
    [name, *_] = life.topics
    life.produce()
    if life.moments.random() < 0.7:
        life.go(life._plan_all)
        if life.moments.random() < 0.5:
            life.go_half_way(life._run, turns=60)
    life.make_anew(name)
    life.world.run()
    life.produce()
    for _ in range(2):
        life.go(life._plan_all)
        life.go(life._run)
        life.go(life._publish)
    if life.was_told(MADE_ANEW):
        life.judge_sinks(life.recorded().version.last_step)
        return
    life.finish()


def dead_before_a_pin(life: Life) -> None:
    """A run dies when its version is recorded and not pinned; others follow, and older ones are trimmed.
    Then what no ref holds expires, and somebody goes back to that version."""
    life.scale(life.moments)
    life.advance(2)
    _die_in_mid_pin(life, 0)
    version = life.recorded().version
    # From here on it has a snapshot of the table of layouts that only older versions have, too.
    life.scale(life.moments)
    life.advance()
    life.retain_versions = life.recorded().version.number - version.number + 1
    life.go(life._maintain)
    life.lake.expire(life.world.now)
    life.findings += life._version_judged(version)
    life.store.send(PIPELINE, RollBack(version.number, version.attempt))
    life.finish()


def scaled_under_an_attempt(life: Life) -> None:
    """The layout changes while an attempt is at work: it commits first, or what it did is void."""
    life.advance(2)
    life.produce()
    life.go(life._plan_all)
    life.go_half_way(life._run, turns=60)
    for _ in range(life.moments.randint(1, 3)):
        life.scale(life.moments)
    life.world.run()
    life.advance()
    life.finish()


def scaled_and_lost(life: Life) -> None:
    """The layout changes again and again; a version is gone back to; then the store is lost."""
    for _ in range(3):
        life.scale(life.moments)
        life.advance()
    number = life.recorded().version.number
    target = life.moments.choice([one for one in life.recorded().versions[:-1] if one.number])
    life.store.send(PIPELINE, RollBack(target.number, target.attempt))
    while life.recorded().version.number < number:
        life.go(life._run)
    told = life.recorded().layouts
    life.rebuild(life.lose_store())
    if life.recorded().layouts != told:
        life.findings.append(Finding("lost", "layouts", f"{life.recorded().layouts}"))
    life.advance()
    life.finish()


@dataclass(frozen=True)
class Scenario:
    """`play` lets it happen, `mutant` takes the `protection` away; `refused` stands in the error of each
    stage that refuses, '' where none has to."""

    name: str
    protection: str
    play: Callable[[Life], None]
    mutant: Patch
    refused: str = ""


def _nothing(*_: object) -> None:
    """Instead of a check."""


NOTHING_IS_AHEAD = both(
    replaced(interval, "require_recorded", _nothing),
    replaced(sys.modules["sim_lake"], "advance", main_anyhow),
    rewritten(publishing._check_marker, ("if marker > recorded.output_step:", "if False:")),
)

SCENARIOS = (
    Scenario(
        "rolled_back_under_an_attempt",
        "a commit names the attempt that made its base, as numbers come again",
        rolled_back_under_an_attempt,
        rewritten(
            transitions._commit_version,
            ("attempt is None or attempt.state is not AttemptState.RUNNING", "attempt is None"),
            ("    _check_base(state, change.base)\n", ""),
        ),
        "was not committed",
    ),
    Scenario(
        "merged_between_open_and_commit",
        "files are not swapped under a running attempt",
        merged_under_an_attempt,
        rewritten(transitions._swap_snapshots, ("not opened_by,", "True,")),
    ),
    Scenario(
        "merged_into_a_later_version",
        "a swap lands by compare and set on the version that it was made from",
        merged_under_an_attempt,
        rewritten(
            transitions._swap_snapshots,
            ("(newest.number, newest.attempt) == (change.number, change.attempt),", "True,"),
            ("if held[table] != snapshot_id:", "if False:"),
            ("not opened_by,", "True,"),
        ),
    ),
    Scenario(
        "fewer_shards_under_a_publish",
        "ids of shards that are retired are fenced, and stamped, before a row goes out",
        fewer_shards_under_a_publish,
        both(
            rewritten(TopicPublish._plan, ("**self._fence(others)", "**{}")),
            rewritten(
                kafka_plan.plan_shards,
                ("range(max(shards, wanted_shards))", "range(wanted_shards)"),
            ),
        ),
    ),
    Scenario(
        "marker_forgotten",
        "where a marker is lost and an intent is open, the topic tells what is published",
        marker_forgotten,
        replaced(kafka_plan, "lost_markers", _nothing),
    ),
    Scenario(
        "deployed_anew",
        "tables, views and groups are of one incarnation",
        deployed_anew,
        both(
            NOTHING_IS_AHEAD,
            rewritten(
                view_publish._marker_step,
                ("if head.marker.incarnation != target.incarnation:", "if False:"),
            ),
            replaced(TopicPublish, "_group", f"{INCARNATION}/{TOPIC_SINK}"),
        ),
        REBUILD,
    ),
    Scenario(
        "old_backup",
        "nothing runs, and nothing is published, where tables or sinks are ahead of the store",
        old_backup,
        NOTHING_IS_AHEAD,
        REBUILD,
    ),
    Scenario(
        "store_lost_with_a_marker",
        "a topic whose markers do not all say where it is, is asked itself",
        store_lost_with_a_marker,
        both(
            replaced(restoring, "_in_doubt", lambda sink, _: sink),
            replaced(
                kafka_plan,
                "step_of_all",
                lambda markers, _: min((one.step for one in markers.values()), default=-1),
            ),
        ),
    ),
    Scenario(
        "store_lost_in_mid_pin",
        "main leaves what a version shows of tables that is not pinned on all of them",
        store_lost_in_mid_pin,
        replaced(restoring, "_unpinned", lambda *_: ()),
    ),
    Scenario(
        "store_lost_after_a_replay",
        "of two versions of a number, main leaves the one that is not recorded",
        store_lost_after_a_replay,
        rewritten(
            restoring._unpinned,
            ("if attempt != pinned.attempt", "if attempt != pinned.attempt and step > last_step"),
        ),
    ),
    Scenario(
        "dead_before_a_pin",
        "maintenance pins each version that is kept before it drops what may hold it",
        dead_before_a_pin,
        replaced(maintenance, "_pin", _nothing),
    ),
    Scenario(
        "topic_made_anew",
        "a topic is known by its id, not by its name",
        topic_made_anew,
        both(
            rewritten(
                steps._check_same_topic,
                ("if position.topic_id != topic.topic_id:", "if False:"),
            ),
            rewritten(
                positions._topic_after,
                (
                    "(before.topic, before.topic_id) == (read.topic, read.topic_id)",
                    "before.topic == read.topic",
                ),
            ),
        ),
        MADE_ANEW,
    ),
    Scenario(
        "scaled_under_an_attempt",
        "a layout takes effect with no attempt at work, and a version is of the one in effect",
        scaled_under_an_attempt,
        both(
            rewritten(relayout.at_boundary, ("state.pending is not None or ", "")),
            rewritten(
                transitions._commit_version,
                ("version.layout_epoch == state.layout.epoch", "True"),
            ),
        ),
    ),
    Scenario(
        "scaled_and_lost",
        "a version knows all layouts up to its own, after a rollback, too",
        scaled_and_lost,
        rewritten(
            interval.interval_job,
            (
                "began.layouts_after(base.layout_epoch)",
                "began.layouts_after(began.layout.epoch - 1)",
            ),
        ),
    ),
)


@dataclass(frozen=True)
class Played:
    findings: tuple[Finding, ...]
    refusals: tuple[LockstepError, ...]
    history: tuple[str, ...]


def played(scenario: Scenario, seed: int, *, keep_history: bool = False) -> Played:
    life = Life(seed)
    if keep_history:
        life.world.history = []
    with life._outside():
        try:
            life.deploy(1)
            scenario.play(life)
        except StuckError as stuck:
            life.findings.append(Finding("stuck", "the life", str(stuck)))
        life.world.close()
    return Played(tuple(life.findings), tuple(life.refusals), tuple(life.world.history or ()))


def main() -> int:
    for scenario in SCENARIOS:
        if sys.argv[1:] and scenario.name not in sys.argv[1:]:
            continue
        began = time.process_time()
        with scenario.mutant():
            found = {seed: played(scenario, seed).findings for seed in SEEDS}
        caught = [seed for seed in found if found[seed]]
        first = found[caught[0]][0] if caught else "NOT CAUGHT"
        seconds = time.process_time() - began
        print(
            f"{scenario.name:32} {seconds:5.1f} s  at {len(caught)} of {len(found)}: {first}"[:200]
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
