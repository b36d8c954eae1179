"""A project's Python files become SQL, in a process of its own: their code is not run in this one.

The process knows no Spark server. What it makes depends on the files and on the settings alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace

from lockstep.errors import NotSupported, Position, ProjectError
from lockstep.sql.circuit import PYTHON_SUFFIX, ProjectFiles

__all__ = ["ENVIRONMENT", "with_python_views"]

ENVIRONMENT = {
    # pyspark without a JVM; the address is never called
    "SPARK_CONNECT_MODE_ENABLED": "1",
    "SPARK_REMOTE": "sc://nowhere",
    # literals of Python's datetimes, and sets in isin(...), come out the same everywhere
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def with_python_views(files: ProjectFiles, variables: Mapping[str, str]) -> ProjectFiles:
    """The project with the SQL of its Python views; the same project where it has none.

    Raises ProjectError, NotSupported with positions in the Python files.
    """
    python = [name for name, _ in files.files if name.endswith(PYTHON_SUFFIX)]
    if not python:
        return files
    given = {
        "spec": files.spec,
        "files": files.written,
        "folder": os.path.abspath(files.folder),
        "variables": dict(variables),
    }
    done = subprocess.run(
        # -P: the project's folder is not before the standard library
        [sys.executable, "-P", "-m", "lockstep.frames"],
        input=json.dumps(given),
        stdout=subprocess.PIPE,
        env={**os.environ, **ENVIRONMENT},
        text=True,
        check=False,
    )
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise ProjectError(
            "the project's Python code ended the process that ran it",
            position=Position(python[0]),
            expected="files that declare views, and return",
            found=f"exit code {done.returncode}",
            next_step="take out what ends the process (sys.exit, os._exit)",
        ) from None
    if "error" in answer:
        raise _error(answer["error"])
    return replace(files, files=tuple((name, text) for name, text in answer["files"]))


def _error(fields: Mapping[str, object]) -> ProjectError:
    kind = NotSupported if fields["type"] == "NotSupported" else ProjectError
    file, line, column = fields["position"]  # type: ignore[misc]
    return kind(
        str(fields["message"]),
        position=Position(str(file), int(line), int(column)),  # type: ignore[has-type]
        expected=str(fields["expected"]),
        found=str(fields["found"]),
        next_step=str(fields["next_step"]),
    )
