"""The corpus of DataFrames as views: made into SQL once, and as functions that real Spark runs."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from lockstep.adapters.python_views import ENVIRONMENT, with_python_views
from lockstep.sql.circuit import Project, ProjectFiles
from lockstep.sql.project import parse_project, read_project_files

__all__ = [
    "CORPUS",
    "TYPES",
    "each_project",
    "each_view",
    "made_corpus",
    "python_functions",
    "rows_of",
]

TYPES = {
    "t": "a INT, b INT, c STRING, ts TIMESTAMP, x DOUBLE, arr ARRAY<INT>, m DECIMAL(8,2), ok BOOLEAN",
    "u": "a INT, d INT, e STRING",
    "v": "d INT, f INT",
}

START = datetime(2024, 1, 1, tzinfo=UTC)
CORPUS = Path(__file__).parent / "corpus"


@cache
def made_corpus() -> tuple[ProjectFiles, Project]:
    """The corpus with its views in SQL, and parsed."""
    files = with_python_views(read_project_files(CORPUS), {})
    return files, parse_project(files, {})


def each_view(folder: Path) -> dict[str, str]:
    """What each view of a project becomes: its SQL, or an error."""
    found: dict[str, str] = _answer("each_view.py", folder)
    return found


def each_project(folders: Sequence[Path]) -> list[tuple[str, str]]:
    """What is said of each project: the kind of the error, and its text."""
    return [(kind, text) for kind, text in _answer("each_project.py", *folders)]


def _answer(script: str, *folders: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-P", Path(__file__).with_name(script), *folders],
        env={**os.environ, **ENVIRONMENT},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def rows_of(table: str, random: Random) -> list[tuple[Any, ...]]:
    """Some rows with nulls, NaN and empty arrays."""
    kinds = TYPES[table].replace("(8,2)", "").split(", ")
    return [tuple(_value(kind.split()[1], random) for kind in kinds) for _ in range(25)]


def _value(kind: str, random: Random) -> Any:
    if random.random() < 0.12:
        return None
    choices: dict[str, Callable[[], Any]] = {
        "INT": lambda: random.randint(-1, 4),
        "STRING": lambda: random.choice(["x", "y", "z z", "it's"]),
        "TIMESTAMP": lambda: START + timedelta(seconds=random.randrange(30)),
        "DOUBLE": lambda: random.choice([0.25, 3.5, -1.0, math.nan]),
        "ARRAY<INT>": lambda: random.choice([[], [1], [2, 1, 2]]),
        "DECIMAL": lambda: Decimal(random.randint(-300, 300)) / 100,
        "BOOLEAN": lambda: random.random() < 0.5,
    }
    return choices[kind]()


def python_functions(path: Path, spark: Any) -> dict[str, Callable[[], Any]]:
    """The decorated functions of a file, which read from this session."""
    from pyspark.pipelines.graph_element_registry import (
        GraphElementRegistry,
        graph_element_registration_context,
    )

    found: dict[str, Callable[[], Any]] = {}

    class Registry(GraphElementRegistry):
        def register_output(self, output: Any) -> None:
            pass

        def register_flow(self, flow: Any) -> None:
            found[flow.name] = flow.func

        def register_sql(self, sql_text: str, file_path: Path) -> None:
            pass

    with graph_element_registration_context(Registry()):
        namespace: dict[str, Any] = {}
        exec(compile(path.read_text("utf-8"), str(path), "exec"), namespace)
    namespace["spark"] = spark
    return found
