"""`publish: step`: an interval whose steps are out one after another, not all at its end.

What an interval holds is fixed when it is recorded, and what a step gives does not depend on the
interval that it runs in (the law), so an interval may be run in pieces: each is an attempt of its own,
commits a version of its own, and is published at once. A step is out when its division and its version
are recorded, as ever. Decision 0018.
"""

from __future__ import annotations

from lockstep.control.interval import Parts, run
from lockstep.control.ports import Progress
from lockstep.control.publishing import publish
from lockstep.control.reports import Committed

__all__ = ["run_by_steps"]


def run_by_steps(parts: Parts, progress: Progress) -> Committed | None:
    """Run the pending interval as 1, 2, 4, … steps, and publish each piece but the last, which is left
    to the stage that follows; None where nothing is pending.

    A step waits for at most as many others as were out before it began, and n of them take about
    log2(n) jobs. What is replayed after a rollback runs as it did, as it is not published. Raises as
    `run` and `publish` do; a second call goes on with what is left.
    """
    recorded = parts.store.read(parts.pipeline)
    if recorded.pending is None or recorded.dropped:
        return run(parts, progress)
    last_step = recorded.pending.last_step
    pieces: list[Committed] = []
    while True:
        committed = run(parts, progress, most_steps=2 ** len(pieces))
        if committed is None:
            break
        pieces.append(committed)
        if committed.last_step >= last_step:
            break
        publish(parts, progress)
    return Committed.joined(pieces)
