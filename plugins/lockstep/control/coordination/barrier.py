"""A barrier that is used again and again, and holds no other work up (as in timely dataflow).

The law: nobody leaves round r before all workers of the group have arrived at it, and then all do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from lockstep.control.coordination.progress import (
    Carrier,
    Notice,
    Progress,
    check_member,
    complete_before,
)

__all__ = ["Barrier"]


def _nothing() -> bool:
    return False


class Barrier:
    """One worker's side; rounds count from 1. The carrier is for this barrier alone.

    A worker that died and came again is in the round at which it arrived last, whether the others have
    left that or not: it waits there again, which costs no second notice.
    """

    def __init__(self, carrier: Carrier, worker: str, workers: Collection[str]) -> None:
        self._workers = check_member(worker, workers)
        self._carrier, self._worker = carrier, worker
        self._arrived = carrier.read().get(worker, Progress()).frontier
        self._left = max(self._arrived - 1, 0)

    @property
    def round(self) -> int:
        """The round that the next `wait` is for."""
        return self._left + 1

    @property
    def has_arrived(self) -> bool:
        """That what comes before the next `wait` was done already, in an earlier life."""
        return self._arrived >= self.round

    def wait(self, work: Callable[[], bool] = _nothing) -> int:
        """Arrive at the round, and return its number once all workers have.

        Until then `work` is called: it does one piece of other work, and says whether there was any.
        Only where there was none does this sleep. There is no time limit: to give up, raise in `work`;
        the next call goes on in the same round. Raises what the carrier raises.
        """
        wanted = self.round
        if self._arrived < wanted:
            self._arrived = self._carrier.publish(self._worker, Notice(wanted)).frontier
        while complete_before(known := self._carrier.read(), self._workers) < wanted:
            if not work():
                self._carrier.rest(known)
        self._left = wanted
        return wanted
