"""Elements that workers propose, in one order for all of them (as in timely dataflow).

The law: all workers are given the same elements in the same order, each once, those of a proposer in
its own order; none before the frontiers of all workers have passed its time, and each at last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from lockstep.control.coordination.progress import (
    END,
    Carrier,
    Notice,
    Progress,
    Proposal,
    check_member,
    complete_before,
)
from lockstep.errors import AttemptLost

__all__ = ["Sequencer"]


class Sequencer:
    """One worker's side. Times are steps, or whatever else only grows; the carrier is for it alone.

    The order is by time, then proposer, then the proposer's own order. A process that is no worker (an
    operator's command line) proposes through a worker, always the same one: `proposer` is its own
    name, and it calls `push` and `send` only. A worker that died and came again is given again what it
    was given since it last advanced, with what is of the same time; what it had pushed and not sent, it
    pushes again.
    """

    def __init__(
        self, carrier: Carrier, worker: str, workers: Collection[str], proposer: str | None = None
    ) -> None:
        self._workers = check_member(worker, workers)
        self._carrier, self._worker = carrier, worker
        self._proposer = worker if proposer is None else proposer
        recorded = carrier.read().get(worker, Progress())
        self._frontier = recorded.frontier
        self._next_place = recorded.next_place(self._proposer)
        self._pushed: dict[int, str] = {}
        self._ready: deque[Proposal] = deque()
        # Of times below it, everything was given to this worker or is in `_ready`.
        self._complete_before = recorded.seen
        self._settled = 0

    @property
    def frontier(self) -> int:
        """The time to which this worker has advanced."""
        return self._frontier

    def push(self, element: str, place: int | None = None) -> int:
        """Propose an element with the next notice; returns its place in the proposer's own order.

        A proposer that does not know whether it has proposed an element proposes it again at the same
        place, which is harmless, but no other there.
        """
        place = self._next_place if place is None else place
        self._pushed[place] = element
        self._next_place = max(self._next_place, place + 1)
        return place

    def send(self) -> None:
        """Tell of what was pushed; its time is where the worker is. Raises WrongUse for another element
        at a place that was used, and what the carrier raises: then it is told with the next call."""
        if self._pushed:
            self._tell(Notice(self._frontier, self._proposer, self._pushed))

    def advance(self, time: int) -> None:
        """Tell, in one notice, of what was pushed, at this time, and that nothing earlier will come. It
        says too that what `next` gave is dealt with: no later life of this worker is given it again.

        A time before the one reached leaves the frontier where it is. Raises as `send`.
        """
        seen = self._ready[0].time if self._ready else self._complete_before
        self._tell(Notice(time, self._proposer, self._pushed, seen, self._settled))

    @property
    def is_over(self) -> bool:
        """That all workers have closed, and all that was proposed was given."""
        return self._complete_before == END and not self._ready

    def next(self) -> Proposal | None:
        """The next element, None where none is complete yet. Does not wait.

        Raises AttemptLost where a later life of this worker has dealt with what would be next.
        """
        if not self._ready:
            self._look()
        return self._ready.popleft() if self._ready else None

    def close(self) -> None:
        """Propose nothing more: what was pushed is told, and this worker holds up nobody any more.
        It is still given what others propose."""
        self.send()
        self.advance(END)

    def _tell(self, notice: Notice) -> None:
        self._frontier = self._carrier.publish(self._worker, notice).frontier
        self._pushed = {}

    def _look(self) -> None:
        """Read what all have told; what has become complete is ready, in order."""
        known = self._carrier.read()
        self._check_not_overtaken(known.get(self._worker, Progress()))
        complete = complete_before(known, self._workers)
        self._ready.extend(
            sorted(
                proposal
                for worker in self._workers
                for proposal in known.get(worker, Progress()).proposals
                if self._complete_before <= proposal.time < complete
            )
        )
        self._complete_before = max(self._complete_before, complete)
        self._settled = min(known.get(worker, Progress()).seen for worker in self._workers)

    def _check_not_overtaken(self, recorded: Progress) -> None:
        """What all have dealt with goes, so that an earlier life would miss it."""
        if recorded.seen > self._complete_before:
            raise AttemptLost(
                f"worker {self._worker} of a sequencer lives again elsewhere",
                expected=f"nothing dealt with after time {self._complete_before}",
                found=f"all before time {recorded.seen} dealt with",
                next_step="leave it to the other, or make a new Sequencer to go on from there",
            )
