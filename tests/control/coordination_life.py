"""What each worker of the contract test does, on any carrier; it runs in threads, processes and Spark's
tasks. It says what it saw, as JSON: times are those of the machine's one monotonic clock, in ns."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from random import Random
from typing import Any

from lockstep.control.coordination.barrier import Barrier
from lockstep.control.coordination.progress import Carrier, Notice
from lockstep.control.coordination.sequencer import Sequencer

ROUNDS = 12
PIECES = 3
PATIENCE_SECONDS = 60


@dataclass
class OtherWork:
    """Pieces of work that others can see, so that one of them can wait for it."""

    carrier: Carrier
    worker: str
    done: int = 0

    def piece(self) -> bool:
        if self.done == PIECES:
            return False
        self.done += 1
        self.carrier.publish(self.worker, Notice(self.done))
        return True

    def of_others(self, workers: Collection[str]) -> bool:
        """Whether all others have done theirs."""
        told = {name: progress.frontier for name, progress in self.carrier.read().items()}
        return all(told.get(name, 0) == PIECES for name in workers if name != self.worker)


@dataclass
class Seen:
    arrived: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    given: list[list[Any]] = field(default_factory=list)


def life(
    worker: str, workers: Collection[str], carrier_of: Callable[[str], Carrier]
) -> dict[str, Any]:
    """Some rounds of a barrier, before each of which an element is proposed and the time advances. In
    the last one the first worker arrives when the others, which wait for it, have worked."""
    barrier = Barrier(carrier_of("rounds"), worker, workers)
    sequencer = Sequencer(carrier_of("order"), worker, workers)
    work = OtherWork(carrier_of("work"), worker)
    random, seen, deadline = Random(worker), Seen(), time.monotonic() + PATIENCE_SECONDS

    def other_work() -> bool:
        if time.monotonic() > deadline:
            raise TimeoutError
        return number == ROUNDS and work.piece()

    for number in range(1, ROUNDS + 1):
        time.sleep(random.uniform(0, 0.01))
        sequencer.push(f"{worker} in {number}")
        sequencer.advance(number)
        if number == ROUNDS and worker == min(workers):
            until(lambda: work.of_others(workers))
        seen.arrived.append(time.monotonic_ns())
        barrier.wait(other_work)
        seen.left.append(time.monotonic_ns())
        # All have advanced to this round: what was proposed before it is complete.
        is_over(sequencer, seen)
        assert len(seen.given) == (number - 1) * len(workers)
    sequencer.close()
    until(lambda: is_over(sequencer, seen))
    return vars(seen)


def is_over(sequencer: Sequencer, seen: Seen) -> bool:
    """Take what is there, and say whether that was all."""
    seen.given += [[one.time, one.element] for one in iter(sequencer.next, None)]
    return sequencer.is_over


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.002)
