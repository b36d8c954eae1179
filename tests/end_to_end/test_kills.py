"""The order of stages holds under a kill -9 at each named point.

One pipeline lives through all points: before each, new records are sent; a process is killed at the
point; the interval is run again by another process. At the end the independent reader finds each
step's output once, in the outbox, in the Iceberg views and in the Kafka topic. `make torture` does
this to the servers and to Airflow's tasks too, at random moments, and for long.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
import reader
from driven import kill_at, own_settings, run_again
from long_lived import Totals

from lockstep.control.interval import Point
from lockstep.control.model import Division, OffsetRange, TopicSlice


@pytest.mark.spark
@pytest.mark.kafka
def test_each_steps_output_is_there_once_after_a_kill_at_every_point(
    tmp_path: Path, spark_server, broker, database
) -> None:
    settings = own_settings(spark_server, broker, tmp_path / "home")
    totals = Totals(settings, prefix=f"{database}_", seed=20131)
    totals.deploy(tmp_path / "totals")
    for point in Point:
        totals.change(rows=70)
        kill_at(point, "totals", totals.settings)
        run_again("totals", totals.settings)
    assert totals.is_settled
    findings = totals.check(totals.sent)
    assert findings.clean, findings


@pytest.mark.parametrize("fault", ["lost", "duplicated", "unexpected"])
def test_the_reader_can_fail(fault: str) -> None:
    expected = {0: Counter({("a", 1): 1}), 1: Counter({("a", 1): -1, ("a", 2): 1})}
    found = {step: Counter(delta) for step, delta in expected.items()}
    if fault == "lost":
        del found[1][("a", 2)]
    elif fault == "duplicated":
        found[1][("a", 2)] = 2
    else:
        found[1][("b", 9)] = 1
    findings = reader.compare(found, expected)
    assert len(getattr(findings, fault)) == 1
    assert not findings.clean


def record(partition: int, offset: int, step: int, shard: bytes) -> SimpleNamespace:
    headers = [("lockstep-step", str(step).encode()), ("lockstep-sink", shard)]
    return SimpleNamespace(partition=partition, offset=offset, headers=headers)


def test_the_reader_sees_steps_out_of_order_in_a_shard() -> None:
    in_order = [
        record(0, 0, 3, b"out/0/2"),
        record(0, 1, 2, b"out/1/2"),
        record(1, 0, 1, b"out/0/2"),
    ]
    assert reader.disorder(in_order).clean
    found = reader.disorder([*in_order, record(0, 2, 2, b"out/0/2")])
    assert found.out_of_order == [(2, (0, 2))]


def test_the_reader_sees_what_no_step_reads() -> None:
    def division(step: int, start: int, end: int) -> Division:
        slice_ = TopicSlice("orders", "orders", "id", (OffsetRange(0, start, end),))
        return Division(step, datetime(2026, 1, 1, tzinfo=UTC), (slice_,))

    reader.check_positions([division(0, 0, 5), division(1, 5, 7)])
    with pytest.raises(AssertionError, match="from 6, not from 5"):
        reader.check_positions([division(0, 0, 5), division(1, 6, 7)])
    with pytest.raises(AssertionError, match="from 2, not from 0"):
        reader.check_positions([division(0, 2, 5)])
    with pytest.raises(AssertionError, match="step 1 is missing"):
        reader.check_positions([division(0, 0, 5), division(2, 5, 7)])


def test_an_upsert_sink_is_expected_to_send_the_newest_row_of_a_key_or_none() -> None:
    deltas = {4: Counter({("a", 1): -1, ("a", 2): 1, ("b", 1): -1, ("c", 7): 1})}
    expected = reader.expected_upserts(deltas)
    assert expected == {4: Counter({("a", "a", 2): 1, ("b",): 1, ("c", "c", 7): 1})}
