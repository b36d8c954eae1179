"""What happens in the scenarios: lives of which a seed chooses the moments."""

from __future__ import annotations

from collections.abc import Sequence
from unittest import mock

from checker import Finding
from life import Life
from sim_judge import PIPELINE
from sim_sinks import TopicPublish
from sim_tables import VIEW
from sim_world import HOUR, MINUTE, SECOND, Process

from lockstep.control.changes import RollBack
from lockstep.control.interval import Point
from lockstep_engine.sinks import kafka_plan

REBUILD, MADE_ANEW = "lockstep doctor DIR --rebuild", "was deleted and made anew"
"""Words of the ways out that a refusal names."""


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


def fewer_shards_under_a_sleeper(life: Life) -> None:
    """A publish looks at what one with two shards has done in part, and sleeps. That one ends, and the
    next has one shard, before the sleeper goes on with two."""
    life.deploy(2)
    life.produce()
    life.go(life._plan_all, life._run)
    first = life.publish_half_way(turns=5)
    life.fall_asleep(MINUTE)
    for _ in range(2):
        life.produce()
        life.go(life._plan_all, life._run)
    life.deploy(1)
    life.is_judged_later = True
    asleep: list[int] = []
    fence = TopicPublish._fence

    def sleep_before(publish: TopicPublish, shards: Sequence[int]) -> dict[int, kafka_plan.Marker]:
        if shards and not asleep:
            asleep.append(life.world.now)
            life.world.pause(HOUR)
        return fence(publish, shards)

    with mock.patch.object(TopicPublish, "_fence", sleep_before):
        life.start(life._publish)
        life.world.run(lambda: bool(asleep) and first.is_done)
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


def dead_in_maintenance(life: Life) -> None:
    """Maintenance dies somewhere, and versions follow: the next one finds what it has not dropped."""
    life.retain_versions = 2
    life.advance(life.moments.randint(3, 6))
    life.go_half_way(life._maintain)
    life.die()
    life.advance(2)
    life.go(life._maintain)
    state = life.recorded()
    makers = {*state.makers, *(one.id for one in state.attempts)}
    for name, table in life.lake.tables.items():
        for ref in table.refs:
            if "_" in ref and not makers & {*ref.split("_")}:
                life.findings.append(Finding("unexpected", f"refs of {name}", ref))
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
