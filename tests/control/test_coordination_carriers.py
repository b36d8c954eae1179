"""One contract for all that carries barrier and sequencer: threads, processes, Spark's tasks."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import coordination_life
import pytest
from control_builders import store_url
from coordination_life import ROUNDS, life

from lockstep.adapters.coordination import SqlCarrier
from lockstep.adapters.sql_store import SqlStore
from lockstep.control.coordination.barrier import Barrier
from lockstep.control.coordination.memory import MemoryCarrier
from lockstep.control.coordination.progress import Carrier, Notice, Progress
from lockstep.control.coordination.sequencer import Sequencer
from lockstep.errors import Unreachable, WrongUse

if TYPE_CHECKING:
    import pyarrow as pa

FORK = multiprocessing.get_context("fork")

Told = Mapping[str, dict[str, Any]]


def sql_carrier(folder: Path, group: str) -> Carrier:
    return SqlCarrier(SqlStore(store_url(folder)), "p", group)


def in_threads(workers: Collection[str], carrier_of: Callable[[str], Carrier]) -> Told:
    with ThreadPoolExecutor(len(workers)) as pool:
        lives = {name: pool.submit(life, name, workers, carrier_of) for name in workers}
    return {name: one.result() for name, one in lives.items()}


def memory_in_threads(workers: Collection[str]) -> Told:
    carriers = {group: MemoryCarrier() for group in ("rounds", "order", "work")}
    return in_threads(workers, carriers.__getitem__)


def sql_in_threads(workers: Collection[str], folder: Path) -> Told:
    store = SqlStore(store_url(folder))
    return in_threads(workers, lambda group: SqlCarrier(store, "p", group))


def sql_in_processes(workers: Collection[str], folder: Path) -> Told:
    answers = FORK.Queue()

    def one(name: str) -> None:
        answers.put((name, life(name, workers, partial(sql_carrier, folder))))

    children = [FORK.Process(target=one, args=(name,), daemon=True) for name in workers]
    for child in children:
        child.start()
    told = dict(answers.get(timeout=100) for _ in children)
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    return told


def in_spark_tasks(workers: Collection[str], spark: Any) -> Told:
    from pyspark import cloudpickle

    # Spark's workers have not the folder of the tests.
    cloudpickle.register_pickle_by_value(coordination_life)

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from lockstep_engine.coordination import met

        for _ in batches:
            pass
        with met() as groups:
            told = json.dumps(life(groups.worker, groups.workers, groups.carrier))
        yield pa.record_batch([[groups.worker], [told]], names=["worker", "told"])

    count = len(workers)
    rows = spark.range(0, count, 1, count).mapInArrow(
        task, "worker string, told string", barrier=True
    )
    return {row.worker: json.loads(row.told) for row in rows.collect()}


def check(told: Told, workers: Collection[str]) -> None:
    assert set(told) == set(workers)
    for number in range(ROUNDS):
        last_arrival = max(one["arrived"][number] for one in told.values())
        assert min(one["left"][number] for one in told.values()) >= last_arrival
    order = [[number, f"{name} in {number}"] for number in range(1, ROUNDS + 1) for name in workers]
    for one in told.values():
        assert one["given"] == order


@pytest.mark.parametrize(
    "carried",
    [
        "memory, threads",
        "sql, threads",
        "sql, processes",
        pytest.param("spark, tasks", marks=pytest.mark.spark),
    ],
)
def test_workers_leave_together_and_agree_on_the_order(
    carried: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    workers = ["0", "1"] if carried == "spark, tasks" else ["0", "1", "2", "3"]
    match carried:
        case "memory, threads":
            told = memory_in_threads(workers)
        case "sql, threads":
            told = sql_in_threads(workers, tmp_path)
        case "sql, processes":
            told = sql_in_processes(workers, tmp_path)
        case _:
            told = in_spark_tasks(workers, request.getfixturevalue("spark"))
    check(told, workers)


def rounds_in_a_file(folder: Path, name: str, workers: Collection[str], rounds: int) -> None:
    """Arrivals and departures, written down as they happen: lines of an earlier life stay."""
    random = Random(f"{name} {os.getpid()}")
    with (folder / name).open("a") as log:
        barrier = Barrier(sql_carrier(folder, "rounds"), name, workers)
        while (number := barrier.round) <= rounds:
            time.sleep(random.uniform(0, 0.01))
            print("arrives", number, time.monotonic_ns(), file=log, flush=True)
            barrier.wait()
            print("leaves", number, time.monotonic_ns(), file=log, flush=True)


def test_processes_that_are_killed_and_come_again_go_on_in_their_rounds(tmp_path: Path) -> None:
    workers, rounds, kills = ["a", "b", "c"], 40, 12

    def start(name: str) -> Any:
        about = (tmp_path, name, workers, rounds)
        child = FORK.Process(target=rounds_in_a_file, args=about, daemon=True)
        child.start()
        return child

    running, random = {name: start(name) for name in workers}, Random(11)
    for _ in range(kills):
        time.sleep(random.uniform(0, 0.06))
        name = random.choice(workers)
        os.kill(running[name].pid, signal.SIGKILL)
        running[name].join(60)
        running[name] = start(name)
    for child in running.values():
        child.join(100)
        assert child.exitcode == 0
    moments: dict[str, dict[int, list[int]]] = {"arrives": {}, "leaves": {}}
    for name in workers:
        lines = [line.split() for line in (tmp_path / name).read_text().splitlines()]
        first = {(word, int(number)): int(moment) for word, number, moment in reversed(lines)}
        assert len(first) == 2 * rounds
        for (word, number), moment in first.items():
            moments[word].setdefault(number, []).append(moment)
    for number in range(1, rounds + 1):
        assert max(moments["arrives"][number]) <= min(moments["leaves"][number])


def test_a_group_is_a_row_a_worker_and_goes_when_it_is_over(tmp_path: Path) -> None:
    store = SqlStore(store_url(tmp_path))
    order, other = SqlCarrier(store, "p", "order"), SqlCarrier(store, "p", "other")
    other.publish("a", Notice(1))
    sequencer = Sequencer(order, "a", ["a"])
    for step in range(50):
        sequencer.push(f"element {step}")
        sequencer.advance(step)
        while sequencer.next():
            pass
    with store.transaction(writes=False) as connection:
        rows = connection.exec_driver_sql("SELECT progress FROM coordination").fetchall()
    assert len(rows) == 2
    assert max(len(progress) for (progress,) in rows) < 400
    order.forget()
    assert order.read() == {}
    assert other.read() == {"a": Progress(1)}


def test_a_refused_element_leaves_the_row_as_it_was(tmp_path: Path) -> None:
    carrier = SqlCarrier(SqlStore(store_url(tmp_path)), "p", "order")
    carrier.publish("a", Notice(1, "a", {0: "x"}))
    before = carrier.read()
    with pytest.raises(WrongUse, match="place 0 of proposer a holds another element"):
        carrier.publish("a", Notice(2, "a", {0: "y"}))
    assert carrier.read() == before


def test_a_database_that_is_gone_is_unreachable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unreachable, match="does not answer"):
        Barrier(sql_carrier(tmp_path / "file", "rounds"), "a", ["a"])


@pytest.mark.spark
def test_what_task_0_refuses_the_asking_task_raises(spark: Any) -> None:
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from lockstep.control.coordination.progress import Notice
        from lockstep.errors import WrongUse
        from lockstep_engine.coordination import met

        for _ in batches:
            pass
        with met() as groups:
            try:
                groups.carrier("order").publish(groups.worker, Notice(0, "x", {5: "gap"}))
            except WrongUse as refused:
                said = refused.expected
        yield pa.record_batch([[said]], names=["said"])

    rows = spark.range(0, 2, 1, 2).mapInArrow(task, "said string", barrier=True).collect()
    assert [row.said for row in rows] == ["place 0, of a worker that has not left"] * 2
