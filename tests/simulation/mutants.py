"""What protects the pipeline, each with the fault that comes in where it is taken away.

A mutant removes one protection: a line of the real code, rewritten, or what an adapter sees to, in its
twin. Under it the checker must find something within `TRIES` runs; a checker that never does is
worthless. `seed` is one at which it did when the mutant was written: the search starts there.

    python tests/simulation/mutants.py          searches from seed 1 and prints the first for each
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from patches import (
    Patch,
    around,
    both,
    main_anyhow,
    publish_first,
    publish_undivided,
    replaced,
    rewritten,
)
from sim_kafka import Cluster, Link, SourcePartition, group_of
from sim_lake import Lake, RefChange, SimulatedState, marker_of
from sim_sinks import TopicPublish, ViewWriter
from sim_store import SimulatedStore
from sim_world import Rates
from simulate import Result, simulate

from lockstep.control import growth, interval, maintenance, planning, transitions
from lockstep.control.changes import Change, Landed, Outcome, Rejected, SwapSnapshots, Unknown
from lockstep.ids import MAIN
from lockstep_engine.sinks import kafka_plan, view_publish

TRIES = 300


@dataclass(frozen=True)
class Mutant:
    """`protection` says what is taken away. `rates` make the fault that it protects from likely
    enough."""

    name: str
    protection: str
    patch: Patch
    seed: int = 1
    rates: Rates = Rates()  # noqa: RUF009 - frozen


# ── what is put in ──────────────────────────────────────────────────────────────────────────────


def swap_unanswered(
    old: Callable[..., Outcome], store: SimulatedStore, pipeline: str, change: Change
) -> Outcome:
    """The store does not say whether a swap has landed; it has."""
    outcome = old(store, pipeline, change)
    return Unknown("no answer") if isinstance(change, SwapSnapshots) else outcome


def _as_landed(parts: Any, attempt: Any, unknown: Any) -> object:
    del attempt, unknown
    return Landed(parts.store.read(parts.pipeline))


def _as_refused(parts: Any, attempt: Any, unknown: Any) -> object:
    for table in parts.state.tables():
        parts.state.drop_refs(table, [attempt.branch])
    return Rejected(unknown.reason, None)


def _high_watermark(partition: SourcePartition) -> int:
    return len(partition.log)


def _on_main(
    old: Callable[..., int], state: SimulatedState, table: str, branch: str, snapshot_id: int | None
) -> int:
    """A branch where `main` is, whatever was asked for."""
    if snapshot_id is not None and branch.startswith("attempt"):
        snapshot_id = state._lake.table(table).refs[MAIN]
    return old(state, table, branch, snapshot_id)


def _no_tag(
    old: Callable[..., None],
    state: SimulatedState,
    table: str,
    snapshot_id: int,
    tag: str,
    *rest: Any,
) -> None:
    old(state, table, snapshot_id, tag, *rest)
    state._lake.table(table).refs.pop(tag, None)


def _shown_anyhow(
    old: Callable[..., bool],
    state: SimulatedState,
    table: str,
    expected: int,
    shown: int,
    drop: Any = (),
) -> bool:
    """`main` is moved without a look at where it stands."""
    del old, expected
    found = state._lake.table(table)
    state._change(
        f"show {shown} as",
        table,
        lambda _: RefChange({MAIN: shown, "lockstep": shown}, tuple(drop)),
    )
    return shown in found.snapshots


def _without_marked_tag(
    old: Callable[..., None], lake: Lake, table: Any, change: RefChange
) -> None:
    moved = {name: at for name, at in change.moved.items() if name != "lockstep"}
    old(lake, table, RefChange(moved, change.dropped))


def _marker_of_head(table: Any, head: Any) -> object:
    del table
    return marker_of(head) if "lockstep.step" in head.summary else None


def _written_on_main(old: Callable[..., int], writer: ViewWriter, _: str, *rest: Any) -> int:
    return old(writer, MAIN, *rest)


def _no_fence(old: Callable[..., int], cluster: Cluster, producer: str) -> int:
    return cluster._epochs.get(producer) or old(cluster, producer)


def _at_once(
    old: Callable[..., None], cluster: Cluster, producer: str, epoch: int, shard: int, marker: Any
) -> None:
    """The marker moves beside the transaction."""
    old(cluster, producer, epoch, shard, marker)
    cluster._markers[group_of(producer), shard] = marker
    cluster._committed_at = cluster.world.now


def _abort_commits(old: Callable[..., None], link: Link) -> None:
    """A task that ends in mid-stream closes its producer as if all had been sent."""
    del old
    link._cluster.end(link._id, link._epoch, "committed")


OFTEN_UNKNOWN = replace(Rates(), unknown_commit=0.3, expiry_per_turn=0.1)
OFTEN_EXPIRED = replace(Rates(), expiry_per_turn=0.05)
OFTEN_OTHER_SHARDS = replace(
    Rates(), other_shards_per_start=0.9, nap_per_turn=0.01, long_gap_per_start=0.0
)
OFTEN_ASLEEP = replace(Rates(), nap_per_turn=0.01)
OFTEN_FORGOTTEN = replace(Rates(), long_gap_per_start=0.7, kill_per_turn=0.006)

MUTANTS = (
    # ── the division ──
    Mutant(
        "plan_again",
        "an interval is recorded only where none is pending",
        both(
            rewritten(planning._plan, ("if recorded.pending is not None:", "if False:")),
            rewritten(transitions._record_interval, ("if pending is not None:", "if False:")),
        ),
    ),
    Mutant(
        "high_watermark",
        "a step ends at the last stable offset, so that open transactions change nothing",
        replaced(SourcePartition, "last_stable", property(_high_watermark)),
        seed=17,
    ),
    # ── attempts and versions ──
    Mutant(
        "drop_the_fence",
        "a version is committed by a running attempt, on the version that it opened",
        rewritten(
            transitions._commit_version,
            ("attempt is None or attempt.state is not AttemptState.RUNNING", "attempt is None"),
            ("    _check_base(state, change.base)\n", ""),
            ("version.number == newest.number + 1,", "True,"),
            ("pending is not None and version.last_step == attempt.last_step,", "True,"),
        ),
        seed=2,
    ),
    Mutant(
        "appended_twice",
        "a branch holds exactly the appends that the attempt lists",
        rewritten(interval.check_branches, ("if faults:", "if False:")),
        seed=13,
    ),
    Mutant(
        "timeout_is_success",
        "an unknown commit is resolved by a write, not taken for landed",
        replaced(interval, "_resolve_unknown", _as_landed),
        seed=10,
    ),
    Mutant(
        "timeout_is_failure",
        "branches are deleted of attempts recorded as dead, not on an unknown outcome",
        replaced(interval, "_resolve_unknown", _as_refused),
        rates=OFTEN_UNKNOWN,
        seed=19,
    ),
    Mutant(
        "running_swept",
        "branches of running attempts stay",
        rewritten(
            maintenance.maintain,
            (
                "(AttemptState.REFUSED, AttemptState.ABANDONED)",
                "(AttemptState.REFUSED, AttemptState.ABANDONED, AttemptState.RUNNING)",
            ),
        ),
        rates=replace(OFTEN_EXPIRED, expiry_per_turn=0.2),
        seed=9,
    ),
    Mutant(
        "one_branch_for_all",
        "each attempt has a branch of its own",
        replaced(
            sys.modules["lockstep.control.model"],
            "attempt_branch",
            lambda _: "attempt_shared",
        ),
        seed=5,
    ),
    Mutant(
        "open_main",
        "an attempt opens the snapshots of the version, not main",
        around(SimulatedState, "open_branch", _on_main),
        seed=5,
    ),
    Mutant(
        "main_backwards",
        "main moves forward along ancestry only",
        replaced(sys.modules["sim_lake"], "advance", main_anyhow),
        rates=OFTEN_ASLEEP,
        seed=46,
    ),
    Mutant(
        "version_not_pinned",
        "a version's snapshots are pinned by tags before its attempt's branch goes",
        around(SimulatedState, "settle", _no_tag),
    ),
    Mutant(
        "kept_version_trimmed",
        "tags of versions that are kept stay",
        rewritten(maintenance.maintain, ("a.id not in kept]", "True]")),
    ),
    # ── merging files ──
    Mutant(
        "swap_branch_dropped",
        "a swap's branches stay while nobody knows whether it has landed",
        both(
            around(SimulatedStore, "apply", swap_unanswered),
            rewritten(
                maintenance._swap,
                ("        raise Unreachable(", "        drop()\n        raise Unreachable("),
            ),
        ),
        seed=2,
    ),
    # ── publishing ──
    Mutant(
        "publish_before_the_division",
        "a step is published once its division is recorded",
        lambda: mock.patch.object(
            planning,
            "record",
            lambda *args, old=planning.record: publish_undivided(old, *args),
        ),
    ),
    Mutant(
        "publish_before_the_commit",
        "sinks move to the last step of a recorded version only",
        lambda: mock.patch.object(
            interval,
            "commit",
            lambda *args, old=interval.commit: publish_first(old, *args),
        ),
    ),
    # ── the view ──
    Mutant(
        "view_appended_twice",
        "what a view's branch holds is checked before main shows it",
        rewritten(view_publish._move, ("is_marked.count(True) != 1 or not is_marked[-1]", "False")),
        rates=replace(Rates(), append_twice=0.2),
        seed=3,
    ),
    Mutant(
        "view_shown_anyhow",
        "main of a view moves by compare and set",
        around(SimulatedState, "show_marked", _shown_anyhow),
        seed=6,
    ),
    Mutant(
        "view_marker_of_the_head",
        "a compaction's snapshot without a marker is not taken for a view at no step",
        both(
            replaced(sys.modules["sim_lake"], "newest_marker", _marker_of_head),
            rewritten(view_publish._marker_step, ("if head.records == 0:", "if True:")),
        ),
    ),
    Mutant(
        "view_marker_expired",
        "the tag `lockstep` keeps the newest marked snapshot",
        around(Lake, "change", _without_marked_tag),
        rates=replace(Rates(), expiry_per_turn=0.02, user_compaction_per_start=0.5),
        seed=2,
    ),
    Mutant(
        "view_written_on_main",
        "a publish writes to a branch of its own, so that a zombie's MERGE lands nowhere",
        around(ViewWriter, "_written", _written_on_main),
        seed=2,
    ),
    # ── the topic ──
    Mutant(
        "topic_without_fence",
        "whoever publishes fences those before it",
        around(Cluster, "init", _no_fence),
        seed=6,
    ),
    Mutant(
        "marker_before_the_fence",
        "the marker that a kept producer goes on from was read when its shard was fenced",
        both(
            rewritten(TopicPublish._init, ("self._link(shard, 0).fence()", "self._link(shard, 0)")),
            rewritten(Link.opened_at, ("if self._is_fenced:", "if True:")),
        ),
        rates=OFTEN_ASLEEP,
        seed=11,
    ),
    Mutant(
        "marker_beside_the_rows",
        "rows and marker are one transaction",
        around(Cluster, "send_offset", _at_once),
        seed=3,
    ),
    Mutant(
        "plan_instead_of_the_marker",
        "a task begins after its shard's marker",
        rewritten(
            kafka_plan.send_shard,
            ("at = link.open()", "at = link.open() and Marker(work.after, work.shards)"),
        ),
        rates=OFTEN_ASLEEP,
        seed=10,
    ),
    Mutant(
        "cancelled_task_commits",
        "a task commits only as many rows as the outbox says",
        both(
            rewritten(
                kafka_plan._send_rows,
                ("if message is None or message.step != step:", "if message is None:"),
                ("            link.abort()\n", "            return count\n"),
            ),
            rewritten(
                kafka_plan.send_shard,
                ("at = marker_after(work, at, count)", "at = marker_after(work, at, rows)"),
            ),
        ),
        rates=replace(Rates(), task_cancelled=0.3),
        seed=3,
    ),
    Mutant(
        "aborted_task_commits",
        "what a task has not sent whole is aborted",
        around(Link, "abort", _abort_commits),
        rates=replace(Rates(), task_cancelled=0.3),
        seed=46,
    ),
    Mutant(
        "part_not_in_the_marker",
        "the marker says how much of a long step is there",
        rewritten(
            kafka_plan.marker_after,
            (', done, work.digests.get(step, "") if done else "")', ")"),
        ),
    ),
    Mutant(
        "lost_marker_is_the_record",
        "where markers are lost and an intent is open, the topic tells what is published",
        replaced(kafka_plan, "lost_markers", lambda *_: None),
        rates=OFTEN_FORGOTTEN,
        seed=10,
    ),
    Mutant(
        "lost_marker_is_no_step",
        "a marker that is absent is not taken for one of no step",
        both(
            replaced(kafka_plan, "lost_markers", lambda *_: None),
            rewritten(
                kafka_plan.plan_shards,
                (
                    "everyone = dict.fromkeys(range(wanted_shards), published)",
                    "everyone = dict.fromkeys(range(wanted_shards), -1)",
                ),
            ),
        ),
        rates=OFTEN_FORGOTTEN,
        seed=4,
    ),
    Mutant(
        "new_partitions_at_once",
        "a keyed topic's new partitions wait for what was written before",
        replaced(growth.GrowthRules, "growing", lambda *_: growth.Growing()),
        rates=replace(Rates(), new_partition_per_start=0.5),
    ),
    Mutant(
        "shards_change_in_mid_publish",
        "the number of shards changes only where all are at the same step",
        rewritten(
            kafka_plan.plan_shards, ("if in_parts or len(set(after.values())) > 1:", "if in_parts:")
        ),
        rates=OFTEN_OTHER_SHARDS,
        seed=15,
    ),
)
"""Those of the stages, then those of the sinks. What shares a line with another protection is removed
together with it."""


def caught(mutant: Mutant, seeds: Sequence[int]) -> Result | None:
    """The first run with findings; None where the checker finds nothing."""
    with mutant.patch():
        results = (simulate(seed, mutant.rates) for seed in seeds)
        return next((result for result in results if result.findings), None)


def main() -> int:
    wanted = sys.argv[1:]
    for mutant in MUTANTS:
        if wanted and mutant.name not in wanted:
            continue
        began = time.process_time()
        result = caught(mutant, range(1, TRIES + 1))
        found = f"seed {result.seed}: {result.findings[0]}" if result else "NOT CAUGHT"
        print(f"{mutant.name:32} {time.process_time() - began:5.1f} s  {found[:150]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
