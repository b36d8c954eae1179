"""What the processes of one run of the tests share: a server is started once and ended with the last
that uses it; the tests of a file, and what it makes for them, are one process's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from shared import shared

from lockstep.adapters.embedded import process
from lockstep.adapters.embedded.process import Process, alive


def sleeping(folder: Path) -> tuple[Process, dict[str, Any]]:
    """A server that answers nobody."""
    return process.start(["sleep", "60"], folder / "log", os.environ, folder), {"where": "here"}


def test_the_first_starts_it_and_the_last_ends_it(tmp_path: Path) -> None:
    first = shared(tmp_path, "server", sleeping, 5)
    second = shared(tmp_path, "server", sleeping, 5)
    server, _ = first.__enter__()
    assert second.__enter__() == (server, {"where": "here"})
    first.__exit__(None, None, None)
    assert alive(server), "the second uses it"
    second.__exit__(None, None, None)
    assert not alive(server)
    with shared(tmp_path, "server", sleeping, 5) as (another, _):
        assert another != server
    assert not alive(another)


def test_one_that_does_not_start_is_started_by_who_comes_next(tmp_path: Path) -> None:
    def failing(folder: Path) -> tuple[Process, dict[str, Any]]:
        raise OSError(f"no port for {folder}")

    with pytest.raises(OSError, match="no port"), shared(tmp_path, "server", failing, 5):
        raise AssertionError("nothing was started")
    with shared(tmp_path, "server", sleeping, 5) as (server, _):
        assert alive(server)


def test_the_tests_of_a_file_are_one_processs() -> None:
    folder = Path(__file__).parent
    files = [str(folder / name) for name in ("test_zset.py", "test_memory.py")]
    options = ["-n", "2", "--dist", "loadgroup", "-o", "addopts=", "-v"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files],
        cwd=folder.parent,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
    )
    told = ran.stdout + ran.stderr
    assert ran.returncode == 0, told
    processes = defaultdict(set)
    for process_of_it, file in re.findall(
        r"^\[(gw\d)\].* PASSED \S*/(test_\w+\.py)::", told, re.MULTILINE
    ):
        processes[file].add(process_of_it)
    assert sorted(map(len, processes.values())) == [1, 1], told
