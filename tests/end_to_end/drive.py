"""Advance a deployed pipeline to all that is there now, or maintain it, in a process of its own.

    python drive.py PIPELINE advance|maintain

Settings come from LOCKSTEP_*; the process stops where `stopping` is told that one should. It ends with
0, with 1 after an error that another try may get over, with 2 after a refusal, as the command line
does, and with 3 after an error that is none of Lockstep's own.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from stopping import open_pipeline

from lockstep.adapters.settings import Settings
from lockstep.errors import LockstepError, Refused
from lockstep.runtime import Pipeline


def say(line: str) -> None:
    """Progress, as several processes write it to one log."""
    print(f"{datetime.now(UTC):%H:%M:%S.%f} {os.getpid()} {line}", flush=True)


def advance(pipeline: Pipeline) -> None:
    """What an earlier process has left, then what is there now."""
    behind = True
    while behind:
        behind = pipeline.plan(None, say).behind
        pipeline.run(say)
        pipeline.publish(say)


def drive(name: str, work: str) -> int:
    """Do it; the exit code."""
    try:
        with open_pipeline(name, Settings.load()) as pipeline:
            if work == "maintain":
                pipeline.maintain(say)
            else:
                advance(pipeline)
    except LockstepError as error:
        say(str(error))
        return 2 if isinstance(error, Refused) else 1
    except Exception:
        traceback.print_exc()
        return 3
    return 0


def drive_forked(name: str, work: str, variables: Mapping[str, str], log: Path) -> None:
    """The same in a process that was forked, with an environment and a log of its own."""
    os.environ.update(variables)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    sys.exit(drive(name, work))


if __name__ == "__main__":
    sys.exit(drive(*sys.argv[1:]))
