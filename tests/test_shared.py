"""A server that several processes of one run of the tests use: started once, ended with the last."""

from __future__ import annotations

import os
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
