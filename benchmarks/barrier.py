"""How long after the last arrival a barrier lets all go: threads, processes, Spark's tasks.

    python benchmarks/barrier.py

Workers work for a random time of up to 5 ms, take the time, wait at the barrier, take the time again.
What counts of a round is from the last arrival until the last has left; all clocks are the machine's
one monotonic clock. For comparison, the same with Spark's own `BarrierTaskContext.barrier`.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from lockstep.adapters.coordination import SqlCarrier
from lockstep.adapters.embedded import connect, process
from lockstep.adapters.embedded.ports import free_ports
from lockstep.adapters.jars import jar_paths
from lockstep.adapters.sql_store import SqlStore
from lockstep.control.coordination.barrier import Barrier
from lockstep.control.coordination.memory import MemoryCarrier
from lockstep.threads import processors
from lockstep_engine.coordination import met

if TYPE_CHECKING:
    import pyarrow as pa

WORKERS = (2, 4, 8)
ROUNDS = 300
ROUNDS_OF_SPARK = 10
WORK_SECONDS = 0.005
FORK = multiprocessing.get_context("fork")

Times = list[tuple[int, int]]
"""Of each round, when a worker arrived and left, in ns."""


def times_of(wait: Callable[[], object], rounds: int) -> Times:
    """One worker's rounds, after one that does not count."""
    wait()
    found = []
    for _ in range(rounds):
        time.sleep(random.uniform(0, WORK_SECONDS))
        arrived = time.monotonic_ns()
        wait()
        found.append((arrived, time.monotonic_ns()))
    return found


def threads(names: Collection[str]) -> list[Times]:
    """Carried by memory."""
    carrier = MemoryCarrier()
    with ThreadPoolExecutor(len(names)) as pool:
        return list(
            pool.map(lambda name: times_of(Barrier(carrier, name, names).wait, ROUNDS), names)
        )


def processes(names: Collection[str]) -> list[Times]:
    """Carried by a control store on SQLite."""
    answers = FORK.Queue()
    with tempfile.TemporaryDirectory(prefix="lockstep-barrier-") as folder:

        def one(name: str) -> None:
            carrier = SqlCarrier(SqlStore(f"sqlite:///{folder}/control.db"), "p", "rounds")
            answers.put(times_of(Barrier(carrier, name, names).wait, ROUNDS))

        children = [FORK.Process(target=one, args=(name,)) for name in names]
        for child in children:
            child.start()
        found = [answers.get() for _ in children]
        for child in children:
            child.join()
    return found


def tasks(spark: SparkSession, names: Collection[str], *, is_ours: bool) -> list[Times]:
    """Carried by task 0, or Spark's own barrier."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import BarrierTaskContext

        for _ in batches:
            pass
        if is_ours:
            with met() as groups:
                barrier = Barrier(groups.carrier("rounds"), groups.worker, groups.workers)
                found = times_of(barrier.wait, ROUNDS)
        else:
            found = times_of(BarrierTaskContext.get().barrier, ROUNDS_OF_SPARK)
        yield pa.record_batch([[json.dumps(found)]], names=["found"])

    count = len(names)
    frame = spark.range(0, count, 1, count).mapInArrow(task, "found string", barrier=True)
    return [json.loads(row.found) for row in frame.collect()]


def figures(found: list[Times]) -> dict[str, Any]:
    """In milliseconds, over the rounds; p99 is the smallest that 99 of 100 do not exceed."""
    late = sorted(
        max(left for _, left in one) - max(arrived for arrived, _ in one)
        for one in zip(*found, strict=True)
    )
    return {
        "rounds": len(late),
        "median_ms": round(statistics.median(late) / 1e6, 2),
        "p99_ms": round(late[math.ceil(len(late) * 0.99) - 1] / 1e6, 2),
    }


def measure(ways: Mapping[str, Callable[[Collection[str]], list[Times]]]) -> dict[str, Any]:
    """Each way with each number of workers."""
    found: dict[str, Any] = {"cpus": processors()}
    for way, run in ways.items():
        found[way] = {}
        for count in WORKERS:
            found[way][str(count)] = figures(run([str(number) for number in range(count)]))
            print(way, count, json.dumps(found[way][str(count)]), flush=True)
    return found


def main() -> None:
    """Measure all, print, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", type=Path, default=Path(__file__).with_name("barrier.json"))
    asked = parser.parse_args()
    # Forked before there is a Spark session, whose threads a fork would not have.
    found = measure({"threads": threads, "processes": processes})
    with tempfile.TemporaryDirectory(prefix="lockstep-barrier-") as name:
        folder = Path(name)
        options = connect.ConnectOptions(
            port=free_ports(1)[0], master=f"local[{max(WORKERS)}]", driver_memory="1g"
        )
        server = connect.start(folder, jar_paths("spark"), options, folder / "connect.log")
        try:
            connect.wait_ready(server, options.port, folder / "connect.log")
            spark = SparkSession.builder.remote(options.remote).create()
            found |= measure(
                {
                    "Spark tasks": lambda names: tasks(spark, names, is_ours=True),
                    "Spark's barrier()": lambda names: tasks(spark, names, is_ours=False),
                }
            )
            spark.stop()
        finally:
            process.stop(server, connect.STOP_SECONDS)
    asked.save.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
