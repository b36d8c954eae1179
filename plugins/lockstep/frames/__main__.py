"""`python -m lockstep.frames`: a project on stdin, the same with the SQL of its Python views on stdout.

::

    in    {"spec", "files": [[name, text], …], "folder", "variables": {…}}
    out   {"files": [[name, text], …]}  or
          {"error": {"type", "message", "position": [file, line, column], "expected", "found",
                     "next_step"}}

What the project's code prints goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any

from lockstep.errors import ProjectError
from lockstep.frames.project import write_views
from lockstep.sql.circuit import ProjectFiles


def main() -> int:
    given = json.load(sys.stdin)
    # of windows without a partition; `lockstep plan` says what they cost
    warnings.filterwarnings("ignore", "WARN WindowExpression")
    answer, sys.stdout = sys.stdout, sys.stderr
    os.chdir(given["folder"])
    sys.path.append(given["folder"])
    files = ProjectFiles(given["spec"], tuple(map(tuple, given["files"])), given["folder"])
    try:
        result: dict[str, Any] = {"files": write_views(files, given["variables"]).files}
    except ProjectError as error:
        result = {"error": _fields(error)}
    json.dump(result, answer)
    answer.flush()
    return 0


def _fields(error: ProjectError) -> dict[str, Any]:
    return {
        "type": type(error).__name__,
        "message": error.message.removeprefix(f"{error.position}: "),
        "position": [error.position.file, error.position.line, error.position.column],
        "expected": error.expected,
        "found": error.found,
        "next_step": error.next_step,
    }


if __name__ == "__main__":
    sys.exit(main())
