"""A broker that has died says nothing: what is asked of it ends as Lockstep's own error, and soon."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from lockstep.adapters import verify_records
from lockstep.adapters.embedded.ports import HOST, free_ports
from lockstep.adapters.verify_records import read_ranges
from lockstep.control.kafka_options import KafkaConnection
from lockstep.control.model import OffsetRange
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


@pytest.mark.parametrize("request_seconds", [0.2, 60.0])
def test_who_verifies_is_told_so_too(
    address: SinkAddress, monkeypatch: pytest.MonkeyPatch, request_seconds: float
) -> None:
    """Whether the client gives up first, or who waits for it."""

    class Patient(AdminClient):
        def describe_topics(self, topics: Any, request_timeout: float) -> Any:
            del request_timeout
            return super().describe_topics(topics, request_timeout=request_seconds)

    monkeypatch.setattr(verify_records, "AdminClient", Patient)
    monkeypatch.setattr(verify_records, "TIMEOUT_SECONDS", 0.5)
    connection = KafkaConnection(address.connection["bootstrap.servers"], {})
    with pytest.raises(Unreachable, match="does not describe topic orders") as error:
        list(read_ranges(connection, "orders", "id", [OffsetRange(0, 0, 1)]))
    assert error.value.found
