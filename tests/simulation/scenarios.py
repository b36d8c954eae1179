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

import happenings
from checker import Finding
from life import Life
from patches import Patch, both, main_anyhow, replaced, rewritten
from sim_sinks import TopicPublish
from sim_world import StuckError
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
from lockstep.errors import LockstepError
from lockstep_engine.sinks import kafka_plan, view_publish

SEEDS = range(1, 25)


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
        happenings.rolled_back_under_an_attempt,
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
        happenings.merged_under_an_attempt,
        rewritten(transitions._swap_snapshots, ("not opened_by,", "True,")),
    ),
    Scenario(
        "merged_into_a_later_version",
        "a swap lands by compare and set on the version that it was made from",
        happenings.merged_under_an_attempt,
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
        happenings.fewer_shards_under_a_publish,
        both(
            rewritten(TopicPublish._plan, ("**self._fence(others)", "**{}")),
            rewritten(
                kafka_plan.plan_shards,
                ("range(max(shards, wanted_shards))", "range(wanted_shards)"),
            ),
        ),
    ),
    Scenario(
        "fewer_shards_under_a_sleeper",
        "no stamp but with shard 0's, which fails where another publish has taken it over",
        happenings.fewer_shards_under_a_sleeper,
        rewritten(kafka_plan._zero_last, ("if 0 in markers", "if False")),
    ),
    Scenario(
        "marker_forgotten",
        "where a marker is lost and an intent is open, the topic tells what is published",
        happenings.marker_forgotten,
        replaced(kafka_plan, "lost_markers", _nothing),
    ),
    Scenario(
        "deployed_anew",
        "tables, views and groups are of one incarnation",
        happenings.deployed_anew,
        both(
            NOTHING_IS_AHEAD,
            rewritten(
                view_publish._marker_step,
                ("if head.marker.incarnation != target.incarnation:", "if False:"),
            ),
            replaced(TopicPublish, "_group", f"{INCARNATION}/{TOPIC_SINK}"),
        ),
        happenings.REBUILD,
    ),
    Scenario(
        "old_backup",
        "nothing runs, and nothing is published, where tables or sinks are ahead of the store",
        happenings.old_backup,
        NOTHING_IS_AHEAD,
        happenings.REBUILD,
    ),
    Scenario(
        "store_lost_with_a_marker",
        "a topic whose markers do not all say where it is, is asked itself",
        happenings.store_lost_with_a_marker,
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
        happenings.store_lost_in_mid_pin,
        replaced(restoring, "_unpinned", lambda *_: ()),
    ),
    Scenario(
        "store_lost_after_a_replay",
        "of two versions of a number, main leaves the one that is not recorded",
        happenings.store_lost_after_a_replay,
        rewritten(
            restoring._unpinned,
            ("if attempt != pinned.attempt", "if attempt != pinned.attempt and step > last_step"),
        ),
    ),
    Scenario(
        "dead_before_a_pin",
        "maintenance pins each version that is kept before it drops what may hold it",
        happenings.dead_before_a_pin,
        replaced(maintenance, "_pin", _nothing),
    ),
    Scenario(
        "dead_in_maintenance",
        "refs of attempts that are over go before these are forgotten, whoever trimmed their versions",
        happenings.dead_in_maintenance,
        both(
            rewritten(
                maintenance.maintain,
                ("_sweep(parts, forgotten)", "_sweep(parts, [one.attempt for one in trimmed])"),
            ),
            rewritten(maintenance._sweep, (" or ref.startswith(merges)", "")),
        ),
    ),
    Scenario(
        "topic_made_anew",
        "a topic is known by its id, not by its name",
        happenings.topic_made_anew,
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
        happenings.MADE_ANEW,
    ),
    Scenario(
        "scaled_under_an_attempt",
        "a layout takes effect with no attempt at work, and a version is of the one in effect",
        happenings.scaled_under_an_attempt,
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
        happenings.scaled_and_lost,
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
