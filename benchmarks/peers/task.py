"""What a peer's process is asked to do, and what it answers.

A peer is one process, which takes one query after the other: a line in, a line out. Each query reads the
whole backlog several times. Where rows are asked for, there is one more run, which is not timed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

__all__ = ["ANSWER", "Answer", "Task", "first_line", "serve", "timed_runs", "write_rows"]

ANSWER = "ANSWER "
"""What a line of output begins with that is an answer; others are for people."""


@dataclass(frozen=True)
class Task:
    """One query for one engine. `prefix` is what the topics' names begin with, `tables` are those that
    the query reads, `runs` are timed. `namespace` has the decoded tables; where it is empty, topics are
    read. `work` is a folder for what the runs write, `rows` the file for the result's rows."""

    query: str
    tables: tuple[str, ...]
    bootstrap: str
    prefix: str
    namespace: str
    runs: int
    work: str
    rows: str = ""

    @classmethod
    def from_json(cls, line: str) -> Task:
        """What `as_json` gave."""
        found = json.loads(line)
        return cls(**{**found, "tables": tuple(found["tables"])})

    def as_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Answer:
    """The seconds of each run in turn; or, where the engine does not take the query, what it says.
    `failed` is what went wrong where it does take it. Where somebody has told them apart, `engine` are
    the seconds of each run but for those of writing, and `operators` those in which rows in memory
    became rows in memory."""

    seconds: tuple[float, ...] = ()
    refused: str = ""
    failed: str = ""
    engine: tuple[float, ...] = ()
    operators: tuple[float, ...] = ()


def timed_runs(runs: int, work: Callable[[int], object]) -> tuple[float, ...]:
    """The seconds of each run, which is told its number."""
    found = []
    for number in range(runs):
        started = time.perf_counter()
        work(number)
        found.append(round(time.perf_counter() - started, 3))
    return tuple(found)


def first_line(error: BaseException) -> str:
    """What an engine says first."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), repr(error))


def serve(do: Callable[[Task], Answer]) -> None:
    """The process: tasks from standard input, answers to standard output, until there are no more."""
    for line in sys.stdin:
        print(ANSWER + json.dumps(asdict(do(Task.from_json(line)))), flush=True)


def write_rows(rows: Iterable[Sequence[Any]], path: str) -> None:
    """Rows as lines of JSON, as every engine can write them: times are milliseconds since 1970."""
    with Path(path).open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps([_plain(cell) for cell in row], ensure_ascii=False) + "\n")


def _plain(cell: Any) -> Any:
    match cell:
        case datetime():
            aware = cell if cell.tzinfo else cell.replace(tzinfo=UTC)
            return round(aware.timestamp() * 1000)
        case Decimal():
            return float(cell)
        case _:
            return cell
