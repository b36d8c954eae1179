"""Maintenance: what keeps a pipeline small without ever holding up an interval.

Versions beyond those kept are trimmed, branches of dead attempts are swept, files of the newest
version's tables are merged, and snapshots that nothing holds are expired. A merge lands by compare and
set on that version's row: same version, same step, other snapshots. If an interval commits first, only
the swap of files is made anew, as these tables are append-only and the files that were read are still
there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lockstep.control.changes import (
    ForgetAttempts,
    Landed,
    SwapSnapshots,
    TrimSteps,
    TrimVersions,
    Unknown,
)
from lockstep.control.compaction import DataFileInfo, files_to_merge
from lockstep.control.expiry import expire
from lockstep.control.interval import Parts, record, settle
from lockstep.control.job import MergeJob, MergeTable
from lockstep.control.model import AttemptState, PipelineState
from lockstep.control.ports import Progress
from lockstep.control.reports import Maintained
from lockstep.errors import StateDiverged, Unreachable
from lockstep.ids import (
    SWAP_PREFIX,
    attempt_of,
    is_trace,
    merge_branch,
    merge_branches,
    swap_branch,
    swap_branches,
    version_tag,
)
from lockstep.threads import in_parallel

__all__ = ["MAINTENANCE_SECONDS", "maintain"]

MAINTENANCE_SECONDS = 600
"""So often who runs intervals by the clock maintains too."""

SWAP_TRIES = 20
SWAP_WAIT_SECONDS = 3.0


def maintain(parts: Parts, progress: Progress) -> Maintained:
    """Merge files, trim versions, sweep branches, expire snapshots; each safe to start twice and to kill
    anywhere."""
    merged = _merge(parts, progress)
    before = parts.store.read(parts.pipeline)
    after = record(parts, TrimVersions(parts.retain_versions))
    kept = after.makers
    trimmed = [version for version in before.versions if version.attempt not in kept]
    dead = [
        attempt
        for attempt in after.attempts
        if attempt.state in (AttemptState.REFUSED, AttemptState.ABANDONED)
    ]
    over = [a for a in after.attempts if a.state is AttemptState.COMMITTED and a.id not in kept]
    # While steps are replayed main may show what was dropped, and only these records say that it may go.
    ended = () if after.dropped else after.attempts
    replaced = [attempt for attempt in ended if attempt.state is AttemptState.DROPPED]
    _pin(parts, after, progress)
    if replaced:
        # main leaves first what it shows of them: a run may have died before it did that.
        settle(parts, after, after.version)
    forgotten = tuple(attempt.id for attempt in (*dead, *over, *replaced))
    if forgotten:
        _sweep(parts, forgotten)
        record(parts, ForgetAttempts(forgotten))
    _sweep_swaps(parts, after)
    oldest_needed = _oldest_needed_step(after)
    if oldest_needed > after.oldest_step:
        record(parts, TrimSteps(oldest_needed))
    done = {
        "files merged": merged,
        "versions trimmed": len(trimmed),
        "branches dropped": len(dead),
        "steps trimmed": max(0, oldest_needed - after.oldest_step),
        "snapshots expired": expire(parts, after, progress),
    }
    progress(", ".join(f"{count} {kind}" for kind, count in done.items()))
    return Maintained(done)


def _pin(parts: Parts, recorded: PipelineState, progress: Progress) -> None:
    """Pin each version on record that is not: a run may have died before it did that. What such a
    version has in common with others only their refs hold, which are about to go."""
    tables = parts.state.tables()
    refs = dict(zip(tables, in_parallel(parts.state.refs, tables), strict=True))
    for version in (*recorded.versions, *recorded.dropped):
        tag = version_tag(version.number, version.attempt)
        if all(refs.get(table, {}).get(tag) == held for table, held in version.tables.items()):
            continue
        try:
            settle(parts, recorded, version)
        except StateDiverged as error:
            # It cannot be opened any more, or its files were merged meanwhile; the others are whole.
            progress(f"version {version.number} is not pinned: {error.message}")


def _sweep(parts: Parts, attempts: Collection[str]) -> None:
    """Drop all refs of attempts that are over, before they are forgotten: branches that they wrote to,
    tags of their versions, branches on which files of these were merged.

    What there is to drop the tables say, and not who has trimmed or merged just now: that one may have
    died before it dropped anything, and as long as an attempt is on record the next one finds its refs.

    Nobody works with them any more, whoever is at work beside this. An attempt that was refused or
    abandoned cannot commit what is on its branch. A version that has left the record, trimmed or
    replayed by others, never comes back, so that nobody opens its tag. A merge may be at work still on
    files of such a version, but its swap is refused (`SwapSnapshots`), so that no version can come to
    name files that only its branch has held. And no ref is dropped of attempts that are not on record
    here: another store's, were this one an old backup, or whatever people have named alike.
    """
    merges = tuple(map(merge_branches, attempts))

    def sweep(table: str) -> None:
        refs = parts.state.refs(table)
        names = [ref for ref in refs if attempt_of(ref) in attempts or ref.startswith(merges)]
        if names:
            parts.state.drop_refs(table, names)

    in_parallel(sweep, parts.state.tables())


def _oldest_needed_step(state: PipelineState) -> int:
    """The first step whose division somebody may still ask for: that at which the oldest version kept
    stands, or the slowest sink. Older ones stay in the Iceberg table `_steps`, with the output that
    rests on them."""
    sinks = [sink.published_step for sink in state.sinks]
    return max(0, min([state.versions[0].last_step, *sinks]))


# ── merging files ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Merge:
    """What is merged: per table the files that go out and the snapshot whose files come in, and the
    attempt by whose version it was read."""

    read_in: str
    removed: Mapping[str, tuple[str, ...]]
    merged: Mapping[str, int]


def _merge(parts: Parts, progress: Progress) -> int:
    """Merge the files of full levels; returns how many went out."""
    recorded = parts.store.read(parts.pipeline)
    version = recorded.version

    def choose(table: str) -> tuple[DataFileInfo, ...]:
        files = parts.files.data_files(table, version.tables[table])
        return files_to_merge(files, keeps_all_rows=not is_trace(table))

    tables = sorted(version.tables)
    chosen = dict(zip(tables, in_parallel(choose, tables), strict=True))
    chosen = {table: files for table, files in chosen.items() if files}
    if not chosen:
        return 0
    removed = {table: tuple(file.path for file in files) for table, files in chosen.items()}
    branch = merge_branch(version.attempt, parts.new_id())
    try:
        narrowed = in_parallel(
            lambda table: MergeTable(
                table,
                parts.files.narrow(table, branch, version.tables[table], removed[table]),
                sum(file.records for file in chosen[table]),
            ),
            sorted(chosen),
        )
        job = MergeJob(
            pipeline=parts.pipeline,
            incarnation=recorded.incarnation,
            branch=branch,
            tables=tuple(narrowed),
            files=recorded.version_files,
            variables=parts.variables,
            catalog=parts.catalog,
            session=recorded.session,
            traces={t: held for t, held in version.tables.items() if is_trace(t)},
        )
        merge = _Merge(version.attempt, removed, parts.engine.merge(job, progress))
        landed = _land(parts, merge, progress)
    finally:
        # The swapped snapshot holds the merged files by now, or nothing does. Who dies before leaves the
        # branch to `_sweep`.
        in_parallel(lambda table: parts.state.drop_refs(table, [branch]), sorted(chosen))
    return sum(map(len, removed.values())) if landed else 0


def _land(parts: Parts, merge: _Merge, progress: Progress) -> bool:
    """Swap on the newest version until no interval is in the way; False where it never was free, or
    another maintenance has trimmed the version that was merged meanwhile."""
    for _ in range(SWAP_TRIES):
        state = parts.store.read(parts.pipeline)
        if merge.read_in not in state.makers:
            progress(
                "the version whose files were merged is trimmed by now; files are merged next time"
            )
            return False
        if state.pending is None and _swap(parts, state, merge):
            return True
        parts.clock.sleep(SWAP_WAIT_SECONDS)
    progress("intervals follow each other too closely; files are merged next time")
    return False


def _swap(parts: Parts, state: PipelineState, merge: _Merge) -> bool:
    """Whether the merged files are in the newest version now. Raises Unreachable where nobody knows:
    the branches then stay, as that version may name their snapshots by now, or later."""
    version = state.version
    branch = swap_branch(version.attempt, parts.new_id())
    summary = {
        "lockstep.merge": branch,
        "lockstep.incarnation": state.incarnation,
        "lockstep.version": str(version.number),
        "lockstep.step": str(version.last_step),
    }

    def swap(table: str) -> int:
        return parts.files.swap(
            table,
            branch,
            version.tables[table],
            merge.removed[table],
            merge.merged[table],
            summary,
        )

    def drop() -> None:
        in_parallel(lambda table: parts.state.drop_refs(table, [branch]), tables)

    tables = sorted(merge.removed)
    try:
        replacement = dict(zip(tables, in_parallel(swap, tables), strict=True))
    except StateDiverged:
        # Another maintenance has merged the same files: nothing is left to do for this one.
        drop()
        return False
    change = SwapSnapshots(
        version.number,
        version.attempt,
        {table: version.tables[table] for table in tables},
        replacement,
        merge.read_in,
    )
    outcome = parts.store.apply(parts.pipeline, change)
    if isinstance(outcome, Unknown):
        raise Unreachable(
            f"the control store does not say whether merged files are in version {version.number}: "
            f"{outcome.reason}",
            next_step="run maintenance again: it starts from what is recorded",
        )
    if isinstance(outcome, Landed):
        settle(parts, outcome.state, outcome.state.version)
    drop()
    return isinstance(outcome, Landed)


def _sweep_swaps(parts: Parts, state: PipelineState) -> None:
    """Drop swaps that no version needs: not those of the newest version, which can still land, nor
    those that a version names, whose tag may be at the snapshot before."""
    open_swaps = swap_branches(state.version.attempt)

    def sweep(table: str) -> None:
        named = {v.tables.get(table) for v in (*state.versions, *state.dropped)}
        refs = parts.state.refs(table)
        swaps = [name for name in refs if name.startswith(SWAP_PREFIX)]
        over = [s for s in swaps if not s.startswith(open_swaps) and refs[s] not in named]
        if over:
            parts.state.drop_refs(table, over)

    in_parallel(sweep, sorted(state.version.tables))
