"""What workers tell each other: how far each is, and what it proposes (as in timely dataflow).

A group is a fixed set of workers. Each has a frontier, a number that only grows: nothing that it will
propose has a time below it. What is below the frontiers of all workers is therefore complete. A barrier
asks no more than that; a sequencer orders what is complete.

What a worker has told is its `Progress`, which nobody else writes; each `Notice` moves it, by a pure
function that cannot go back. So a notice may be given twice, late, or by an earlier life of the worker
that is still about, and nothing that was complete is added to.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

from lockstep.errors import WrongUse

__all__ = [
    "END",
    "Carrier",
    "Notice",
    "Progress",
    "Proposal",
    "check_member",
    "complete_before",
    "decoded",
    "encoded",
]

END = 2**63 - 1
"""The frontier of a worker that has left: it holds nobody up, and proposes nothing."""


@dataclass(frozen=True, order=True)
class Proposal:
    """An element in the order that all agree on. Of one proposer, `place` counts up."""

    time: int
    proposer: str
    place: int
    element: str = field(compare=False)


@dataclass(frozen=True)
class Notice:
    """What a worker tells: that it is at `frontier`, and the elements of a proposer by place.

    It needs nothing any more of times below `seen`, and knows that no worker does below `settled`.
    """

    frontier: int
    proposer: str = ""
    elements: Mapping[int, str] = field(default_factory=dict, hash=False)
    seen: int = 0
    settled: int = 0


@dataclass(frozen=True)
class Progress:
    """What a worker has told so far."""

    frontier: int = 0
    seen: int = 0
    proposals: tuple[Proposal, ...] = ()

    def after(self, notice: Notice) -> Progress:
        """The progress with a notice in it; the same again changes nothing.

        An element gets its time here, which is the frontier that is reached: whoever told it, and
        however late, it is not below what others believe to be complete. One whose place was used is
        there already. Of each proposer the newest is kept when it is settled too: it says which places
        were used. Raises WrongUse for another element at a place, a place that leaves others out, or an
        element of a worker that has left.
        """
        frontier = max(self.frontier, notice.frontier)
        new = tuple(
            Proposal(frontier, notice.proposer, place, element)
            for place, element in sorted(notice.elements.items())
            if place >= self.next_place(notice.proposer)
        )
        self._check_known(notice)
        self._check_new(new)
        proposals = (*self.proposals, *new)
        newest = {one.proposer: one.place for one in proposals}
        kept = tuple(
            one
            for one in proposals
            if one.time >= notice.settled or one.place == newest[one.proposer]
        )
        return Progress(frontier, max(self.seen, notice.seen), kept)

    def next_place(self, proposer: str) -> int:
        """The first place that a proposer has not used."""
        return (
            max((one.place for one in self.proposals if one.proposer == proposer), default=-1) + 1
        )

    def _check_known(self, notice: Notice) -> None:
        for one in self.proposals:
            told = notice.elements.get(one.place, one.element)
            if one.proposer == notice.proposer and told != one.element:
                raise WrongUse(
                    f"place {one.place} of proposer {one.proposer} holds another element",
                    expected=f"'{one.element}', which was proposed before",
                    found=f"'{told}'",
                    next_step="give each process that proposes a name of its own",
                )

    def _check_new(self, new: Sequence[Proposal]) -> None:
        for place, one in enumerate(new, self.next_place(new[0].proposer) if new else 0):
            if one.time == END or one.place != place:
                raise WrongUse(
                    f"'{one.element}' cannot be element {one.place} of proposer {one.proposer}",
                    expected=f"place {place}, of a worker that has not left",
                    found="a worker that has left" if one.time == END else f"place {one.place}",
                    next_step="propose in order, and before the sequencer is closed",
                )


class Carrier(Protocol):
    """What one group needs of the world: each worker's progress, kept and shown to all."""

    def publish(self, worker: str, notice: Notice) -> Progress:
        """Move the worker's progress (`Progress.after`), and give what is recorded then.

        Durable as far as the carrier is. An error may mean that it has happened: do it again.
        """
        ...

    def read(self) -> Mapping[str, Progress]:
        """The progress of every worker that has told any. Of each, it is whole and as of one moment,
        and a later call never shows less."""
        ...

    def rest(self, known: Mapping[str, Progress]) -> None:
        """Return when more may be there than `known`, which `read` gave, or after some milliseconds."""
        ...


def complete_before(known: Mapping[str, Progress], workers: Iterable[str]) -> int:
    """The least frontier of the workers: nothing new will have a time below it."""
    return min(known.get(worker, Progress()).frontier for worker in workers)


def check_member(worker: str, workers: Collection[str]) -> frozenset[str]:
    """The workers, with `worker` among them; otherwise WrongUse."""
    if worker not in workers:
        raise WrongUse(
            f"worker {worker} is not of the group",
            expected=f"one of {', '.join(sorted(workers)) or 'no workers'}",
            found=worker,
            next_step="start all workers with the same set of names",
        )
    return frozenset(workers)


def encoded(progress: Progress) -> str:
    """As JSON, for carriers that keep or send text."""
    return json.dumps(asdict(progress), separators=(",", ":"))


def decoded(text: str) -> Progress:
    """What `encoded` gave."""
    told = json.loads(text)
    proposals = tuple(Proposal(**one) for one in told["proposals"])
    return Progress(told["frontier"], told["seen"], proposals)
