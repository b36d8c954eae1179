"""A shard's producer without Kafka, and messages for it."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep_engine.sinks.kafka_plan import Marker, Message


class MemoryLink:
    """A topic partition and its marker in memory; rows show when their transaction commits, which
    lasts long after `patience` rows."""

    def __init__(self, marker: Marker | None, patience: int = 1000) -> None:
        self.marker = marker
        self.topic: list[Message] = []
        self._open: list[Message] = []
        self._patience = patience

    def open(self) -> Marker | None:
        self._open = []
        return self.marker

    def begin(self) -> None:
        assert not self._open

    def send(self, message: Message) -> bool:
        self._open.append(message)
        return len(self._open) >= self._patience

    def abort(self) -> None:
        self._open = []

    def commit(self, marker: Marker) -> None:
        self.topic += self._open
        self._open, self.marker = [], marker


def messages(rows: dict[int, int]) -> Iterator[Message]:
    return (
        Message(step, -1, None, b"%d" % number)
        for step in sorted(rows)
        for number in range(rows[step])
    )
