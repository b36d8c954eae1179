"""Advance a deployed pipeline once in a process of its own, and die at a named point.

    python drive.py PIPELINE [POINT]

Settings come from LOCKSTEP_*; with POINT the process ends itself by SIGKILL when a stage gets there.
"""

from __future__ import annotations

import os
import signal
import sys

from lockstep.adapters.settings import Settings
from lockstep.control.interval import Point
from lockstep.runtime import Pipeline


def main() -> None:
    name, *rest = sys.argv[1:]
    deadly = Point[rest[0]] if rest else None

    def reached(point: Point) -> None:
        if point is deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    with Pipeline(name, Settings.load(), reached) as pipeline:
        pipeline.plan(None, print)
        pipeline.run(print)
        pipeline.publish(print)


if __name__ == "__main__":
    main()
