"""What the tests of the Kafka sink share: a pipeline of their own, and publishes that die."""

from __future__ import annotations

from uuid import uuid4

import pytest
from sink_builders import DiedError

from lockstep_engine.sinks.kafka_link import TransactionLink
from lockstep_engine.sinks.kafka_plan import Marker


@pytest.fixture
def incarnation() -> str:
    return uuid4().hex


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Commits after which a publish dies: (sink, how many commits of it before)."""
    planned: list[tuple[str, int]] = []
    commit, counts = TransactionLink.commit, dict[str, int]()

    def commit_and_die(link: TransactionLink, marker: Marker) -> None:
        commit(link, marker)
        name = link._address.sink
        counts[name] = counts.get(name, -1) + 1
        if (name, counts[name]) in planned:
            raise DiedError(name)

    monkeypatch.setattr(TransactionLink, "commit", commit_and_die)
    return planned
