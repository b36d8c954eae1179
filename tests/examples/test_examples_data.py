"""The data that the examples send: the flights in order and as JSON, Nexmark in its proportions."""

from __future__ import annotations

import importlib.util
import json
import sys
from itertools import islice
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock

import pytest

from lockstep.sql.project import parse_project, read_project_files

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(path: str) -> ModuleType:
    """A script of the examples, as a module under a name of its own."""
    name = "example_" + path.replace("/", "_").removesuffix(".py")
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def replay() -> ModuleType:
    return load("flights/replay.py")


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    return load("nexmark/generate.py")


def test_flights_are_all_there_in_the_order_of_departure(replay: ModuleType) -> None:
    flights = replay.departures()
    assert len(flights) == 336_776
    hours = flights["time_hour"]
    assert not hours.is_monotonic_increasing, "delayed flights come after those of later hours"
    assert hours.iloc[0][:10] == "2013-01-01"


def test_replay_creates_every_topic_that_the_flights_read_or_write(
    replay: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = Mock()
    admin.create_topics.return_value = {}
    monkeypatch.setattr(replay, "AdminClient", lambda _: admin)
    replay.create_topics("b:1")
    (wanted,) = admin.create_topics.call_args.args
    files = read_project_files(EXAMPLES / "flights")
    project = parse_project(files, {"lockstep.kafka": "b:1"})
    named = [source.topic for source in project.sources]
    named += [sink.options["topic"] for sink in project.sinks]
    assert sorted(topic.topic for topic in wanted) == sorted(named)


def test_flight_record_holds_whole_numbers_and_explicit_nulls(replay: ModuleType) -> None:
    flights = replay.departures()
    cancelled = flights[flights["dep_time"].isna()].head(1)
    key, value = next(replay.records(replay.FLIGHTS, cancelled))
    record = json.loads(value)
    assert set(record) == set(replay.FLIGHTS.columns)
    assert record["dep_delay"] is None
    assert isinstance(record["distance"], int)
    assert key.decode() == f"{record['carrier']}{record['flight']}"


def test_bad_records_are_as_many_as_asked_and_each_kind_is_there(replay: ModuleType) -> None:
    good = list(islice(replay.records(replay.FLIGHTS, replay.departures().head(90)), 90))
    stream = list(replay.with_bad_records(good, 90, 6))
    bad = [value for _, value in stream if value not in {value for _, value in good}]
    assert (len(stream), len(bad)) == (96, 6)
    with pytest.raises(json.JSONDecodeError):
        json.loads(bad[0])
    assert "carrier" not in json.loads(bad[1])
    assert json.loads(bad[2])["flight"] > 2**31


def test_nexmark_has_its_proportions_and_field_names(generate: ModuleType) -> None:
    people = auctions = bids = 0
    for block in generate.blocks(100_000):
        people, auctions = people + len(block.person), auctions + len(block.auction)
        bids += len(block.bid)
        for rows in (block.person, block.auction, block.bid):
            json.loads(rows[0])
    assert (people, auctions, bids) == (2_000, 6_000, 92_000)
    assert set(json.loads(block.bid[0])) == {
        "auction",
        "bidder",
        "price",
        "channel",
        "url",
        "dateTime",
        "extra",
    }


def test_nexmark_longer_run_begins_with_the_shorter(generate: ModuleType) -> None:
    short = list(generate.blocks(50_152))
    long = list(generate.blocks(100_000))
    assert short[0] == long[0]
    assert short[1].bid == long[1].bid[: len(short[1].bid)]
    counts = len(short[1].person), len(short[1].auction), len(short[1].bid)
    assert counts == (4, 10, 138)
    assert sum(counts) == 152


def test_nexmark_half_of_the_bids_go_to_hot_auctions(generate: ModuleType) -> None:
    bids = [json.loads(row) for block in generate.blocks(50_000) for row in block.bid]
    hot = sum(bid["auction"] % 100 == 0 for bid in bids) / len(bids)
    assert 0.48 < hot < 0.53
    assert all(100 <= bid["price"] <= 100_000_000 for bid in bids)
