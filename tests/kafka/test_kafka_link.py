"""The producers of a sink's shards against a real broker: fenced, kept between stages, freed."""

from __future__ import annotations

import gc
import time
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka_builders import committed_records, new_topic, sink

from lockstep_engine.sinks.kafka_link import SinkAddress, SinkClient, TransactionLink, linked
from lockstep_engine.sinks.kafka_opening import sink_address
from lockstep_engine.sinks.kafka_plan import FencedError, Marker, Message

pytestmark = pytest.mark.kafka

ROW = Message(0, 0, None, b"{}")
PATIENCE_SECONDS = 20.0


@pytest.fixture
def address(broker: Any, incarnation: str) -> SinkAddress:
    return sink_address(sink(broker.bootstrap, new_topic(broker.bootstrap, 2)), incarnation)


def take_over(address: SinkAddress, marker: Marker) -> None:
    with linked(address, 0, marker.shards) as other:
        other.open()
        other.begin()
        other.commit(marker)


def producers() -> list[Producer]:
    gc.collect()
    # By type: to ask a weak proxy whose object is gone for its class is an error.
    return [one for one in gc.get_objects() if issubclass(type(one), Producer)]


def send_until_it_fails(link: TransactionLink) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        link.send(ROW)
        time.sleep(0.01)


def test_who_is_fenced_while_it_sends_is_overtaken(address: SinkAddress) -> None:
    with SinkClient(address) as client:
        client.fence([0])
        assert client.markers([0]) == {}
        link = client.link(0, 1)
        assert link.open() is None
        take_over(address, Marker(3, 1))
        link.begin()
        with pytest.raises(FencedError, match="another publish has taken over sink out"):
            send_until_it_fails(link)
        with pytest.raises(FencedError, match="another publish has taken over sink out"):
            link.commit(Marker(0, 1))
    assert committed_records(address.connection["bootstrap.servers"], address.topic) == []


def test_a_kept_producer_that_was_fenced_commits_nothing(address: SinkAddress) -> None:
    """Not even a marker without rows; the next one of the same client goes on from what is there."""
    with SinkClient(address) as client:
        client.fence([0])
        client.markers([0])
        take_over(address, Marker(3, 1))
        kept = client.link(0, 1)
        kept.begin()
        with pytest.raises(FencedError):
            kept.commit(Marker(0, 1))
        client.fence([0])
        assert client.markers([0]) == {0: Marker(3, 1)}
        link = client.link(0, 1)
        assert link is not kept
        assert link.open() == Marker(3, 1)
        link.begin()
        link.commit(Marker(4, 1))
        assert client.markers([0]) == {0: Marker(4, 1)}


def test_a_marker_that_was_read_before_the_fence_is_read_again(address: SinkAddress) -> None:
    with SinkClient(address) as client:
        link = client.link(0, 1)
        assert client.markers([0]) == {}
        take_over(address, Marker(3, 1))
        assert link.open() == Marker(3, 1)


def test_producers_are_freed_though_messages_never_went_out(address: SinkAddress) -> None:
    before = producers()
    with suppress(FencedError), SinkClient(address) as client:
        client.fence([0, 1])
        client.markers([0, 1])
        take_over(address, Marker(3, 1))
        link = client.link(0, 1)
        link.begin()
        send_until_it_fails(link)
    # Those of other tests may be freed at any time, so long as nobody holds them.
    assert not [one for one in producers() if all(one is not other for other in before)]
