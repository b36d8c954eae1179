"""How a published view moves, whoever writes its rows: markers, branches, one compare and set.

Law: with marker s, the rows of `main` are the sum of the outbox's changes up to step s, each row as
often as its weight says. Every publish moves rows and marker in one change of `main`: it works on a
branch of its own made where `main` stands, and `main` moves there only if it still stands where the
branch was made. So a publish that dies has changed nothing, and one that is repeated finds the marker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from lockstep.control.ports import State, ViewHead
from lockstep.errors import AttemptLost, LockstepError, StateDiverged
from lockstep.ids import publish_branch, publish_branches

__all__ = ["ViewPoint", "ViewPublished", "ViewTarget", "ViewWriter", "move_view"]

TRIES = 5
"""How often a publish starts again because somebody else moved `main`: a user's compaction."""


class ViewPoint(Enum):
    """Places in a publish where a crash must be harmless; tests raise and kill there."""

    MADE = "the view's table exists, with the marker of no step"
    BRANCHED = "the branch stands where main is"
    DELETED = "deletes stand on the branch, nothing is appended"
    APPENDED = "the branch holds the next state and its marker"
    SHOWN = "main shows it"


@dataclass(frozen=True)
class ViewPublished:
    """`marker` is the last step that the view holds; `rows` how many row changes this call made."""

    marker: int
    rows: int


@dataclass(frozen=True)
class ViewTarget:
    """The view to move to `last_step`, and the outbox at the snapshot of a recorded version."""

    view: str
    outbox_table: str
    outbox_snapshot_id: int
    last_step: int
    incarnation: str

    def summary(self, step: int) -> Mapping[str, str]:
        """The marker, as it stands in a snapshot."""
        return {"lockstep.step": str(step), "lockstep.incarnation": self.incarnation}


class ViewWriter(Protocol):
    """Writes rows of one view's target; decides nothing about markers or `main`."""

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """What `write` raises where it failed and may still be under way."""
        ...

    def make(self) -> None:
        """Make the view's table if it is not there: empty, marked as holding no step."""
        ...

    def start(self) -> None:
        """An empty snapshot with that marker on `main` of a table that has none yet."""
        ...

    def write(self, branch: str, head: ViewHead, base: int, marker: int, pending: int) -> int:
        """Write the next state on `branch`, which stands at snapshot `base`: the outbox's changes
        after step `marker`, `pending` rows of them at most. The last snapshot, and no other, carries
        the target's summary of its last step. Returns how many rows changed."""
        ...


@dataclass(frozen=True)
class _Publish:
    state: State
    writer: ViewWriter
    target: ViewTarget
    new_id: Callable[[], str]
    reached: Callable[[ViewPoint], None]


def move_view(
    state: State,
    writer: ViewWriter,
    target: ViewTarget,
    new_id: Callable[[], str],
    reached: Callable[[ViewPoint], None] = lambda _: None,
) -> ViewPublished:
    """Bring the view to the target's last step from whatever step its own marker names; nothing if
    it is there. `new_id` gives ids that nobody has had.

    Raises StateDiverged where the view is not this incarnation's, AttemptLost where others keep
    moving `main`, and what the writer raises.
    """
    publish = _Publish(state, writer, target, new_id, reached)
    for _ in range(TRIES):
        head = _opened(publish)
        marker = _marker_step(target, head)
        if marker >= target.last_step:
            return ViewPublished(marker, 0)
        rows = _move(publish, head, marker)
        if rows is not None:
            return ViewPublished(target.last_step, rows)
    raise AttemptLost(
        f"view {target.view}: main moved {TRIES} times while step {target.last_step} was published",
        expected="nobody else to write to a published view for as long as a publish takes",
        found="a new snapshot each time",
        next_step="publish again once its compaction has ended",
    )


# ── where the view is ───────────────────────────────────────────────────────────────────────────


def _opened(publish: _Publish) -> ViewHead:
    """The view's head; the table is made if it is not there, marked as holding no step yet."""
    view = publish.target.view
    head = publish.state.view_head(view)
    if head is None:
        publish.writer.make()
        publish.reached(ViewPoint.MADE)
        head = publish.state.view_head(view)
    if head is not None and head.snapshot_id is None:
        # Somebody made the table by hand, with partitions perhaps; a branch needs a snapshot.
        publish.writer.start()
        head = publish.state.view_head(view)
    assert head is not None, "the table has just been made or found"
    return head


def _marker_step(target: ViewTarget, head: ViewHead) -> int:
    """The last step in the view, by its own marker. An absent one is never taken for step -1, unless
    there is nothing in the table."""
    next_step = (
        f"rename or drop table {target.view} to have it published anew, or give the project "
        "another database"
    )
    if head.marker is None:
        if head.records == 0:
            return -1
        raise StateDiverged(
            f"view {target.view} holds rows, and no snapshot says up to which step",
            expected=f"a snapshot with lockstep.step of incarnation {target.incarnation}",
            found=f"{head.records:,} rows without any marker",
            next_step=next_step,
        )
    if head.marker.incarnation != target.incarnation:
        raise StateDiverged(
            f"view {target.view} belongs to another pipeline, or to an earlier life of this one",
            expected=f"incarnation {target.incarnation}",
            found=f"incarnation {head.marker.incarnation}, at step {head.marker.step}",
            next_step=next_step,
        )
    return head.marker.step


# ── moving the view ─────────────────────────────────────────────────────────────────────────────


def _move(publish: _Publish, head: ViewHead, marker: int) -> int | None:
    """Write the next state on a branch and show it on `main`: changed rows, or None where `main` has
    left the snapshot that the branch was made at."""
    state, target = publish.state, publish.target
    base = head.snapshot_id
    assert base is not None, "an opened view has a snapshot"
    branch = publish_branch(target.incarnation, publish.new_id())
    pending = state.records_after(target.outbox_table, target.outbox_snapshot_id, marker)
    failures: tuple[type[Exception], ...] = (LockstepError, *publish.writer.failures)
    try:
        state.open_branch(target.view, branch, base)
        publish.reached(ViewPoint.BRANCHED)
        # A marker alone would be of the columns that the table has: nobody could tell which are lost.
        if pending or head.lost:
            rows = publish.writer.write(branch, head, base, marker, pending)
        else:
            state.append_rows(target.view, branch, (), target.summary(target.last_step))
            rows = 0
        publish.reached(ViewPoint.APPENDED)
        written = state.summaries(target.view, branch, base)
    except failures as error:
        # Whoever moved main first has swept this branch: to be overtaken is no failure.
        newest = state.view_head(target.view)
        is_overtaken = newest is not None and newest.snapshot_id != base
        # After a refusal of our own nothing is under way on the branch. After any other error something
        # may be, and the next publish that lands sweeps the branch.
        if is_overtaken or isinstance(error, LockstepError):
            state.drop_refs(target.view, (branch,))
        if is_overtaken:
            return None
        raise
    is_marked = ["lockstep.step" in summary for _, summary in written]
    if is_marked.count(True) != 1 or not is_marked[-1]:
        # The server ran the append twice after a restart: what is on the branch is void.
        state.drop_refs(target.view, (branch,))
        return None
    # Branches of publishes that died: main leaves their base now, so they cannot land any more.
    stale = [name for name in head.refs if name.startswith(publish_branches(target.incarnation))]
    shown = state.show_marked(target.view, base, written[-1][0], (branch, *stale))
    if not shown:
        state.drop_refs(target.view, (branch,))
        return None
    publish.reached(ViewPoint.SHOWN)
    return rows
