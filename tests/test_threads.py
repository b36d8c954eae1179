"""How many processors there are for a process."""

from __future__ import annotations

import os

import pytest

from lockstep.adapters.embedded.parts import StackOptions
from lockstep.threads import processors, shares


def test_processors_are_those_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 4, 5}, raising=False)
    assert processors() == 3
    assert StackOptions().master == "local[3]"
    assert len(shares(300, 10)) == 3


def test_where_the_system_does_not_say_they_are_all_that_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    assert processors() == 5
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert processors() == 1
    assert StackOptions().master == "local[2]", "a task may have to wait for another one"
