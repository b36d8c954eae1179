"""A broker that has died says nothing: what is asked of it ends as Lockstep's own error, and soon."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lockstep.adapters.embedded.ports import HOST, free_ports
from lockstep.errors import Unreachable
from lockstep_engine.sinks import kafka_link, kafka_opening, kafka_tail
from lockstep_engine.sinks.kafka_link import SinkAddress, partition_count, read_markers


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> SinkAddress:
    """Of a broker where nobody listens."""
    for module in (kafka_link, kafka_opening, kafka_tail):
        monkeypatch.setattr(module, "ANSWER_SECONDS", 0.5)
    [port] = free_ports(1)
    connection = {"bootstrap.servers": f"{HOST}:{port}", "log_level": "0"}
    return SinkAddress(connection, "orders_out", "i1", "out")


@pytest.mark.parametrize(
    "asked",
    [
        partition_count,
        lambda address: read_markers(address, [0], patience_seconds=0.5),
        lambda address: kafka_opening._waiting_partitions(address, 2),
        kafka_tail._is_compacted,
        lambda address: kafka_tail.read_tail(address, 2, -1),
    ],
)
def test_who_asks_is_told_that_the_broker_is_away(
    address: SinkAddress, asked: Callable[[SinkAddress], object]
) -> None:
    with pytest.raises(Unreachable) as error:
        asked(address)
    assert "sink out" in error.value.message
    assert error.value.found
