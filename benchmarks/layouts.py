"""What moves when a worker comes: least, by the layouts of Lockstep, and by `hash % W`.

    python benchmarks/layouts.py

A million keys get their places from Spark's hash, as they do in a pipeline. For each number of workers
from 1 to 64 one more joins, and each key whose owner is another one then is counted, for dynamic
sharding (1/10), for 1,024 fixed shards, and for a worker chosen by `hash % W`, as DBSP
does. The least that any layout can move is what the new worker has to own: its part of the shards. A
row of a trace moves as its key does, and rows of one trace have about one size, so that shares of keys
are shares of rows and of bytes. Nothing here depends on the machine.

Then every host of a pipeline is replaced, as a rolling upgrade does: by a host that joins and another
that leaves after it, or by one change of layout for each. Counted are
the keys that get to another host, over all of it, in parts of all keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.control.layout.layouts import Join, Layout, Leave, Reshard, after
from lockstep.control.layout.sharding import Dynamic, Fixed, Sharding

KEYS = 1_000_000
MOST_WORKERS = 64
SHOWN = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
SHARDINGS: Mapping[str, Sharding] = {"dynamic": Dynamic(Fraction(1, 10)), "fixed": Fixed(1024)}
RESULT = Path(__file__).with_name("layouts.json")


def hashes() -> Any:
    """The hash of each key, as the engine's."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    try:
        found = spark.range(KEYS).select(F.xxhash64("id").alias("hash")).toArrow()
    finally:
        spark.stop()
    return found["hash"].to_numpy().astype(np.uint64)


def owners(layout: Layout, keys: Any) -> Any:
    """The worker of each key."""
    shift = np.uint64(64 - (len(layout.owners).bit_length() - 1))
    shards = (
        (keys >> shift).astype(np.int64) if len(layout.owners) > 1 else np.zeros(len(keys), int)
    )
    return np.array(layout.owners)[shards]


def grown(sharding: Sharding) -> Sequence[Layout]:
    """Layouts with 1, 2, 3, ... workers, each made of the one before."""
    layouts = [after(Layout(), Reshard(sharding), Join({0: "a"}))]
    for worker in range(1, MOST_WORKERS + 1):
        layouts.append(after(layouts[-1], Join({worker: "a"})))
    return layouts


def moves(layouts: Sequence[Layout], keys: Any) -> list[dict[str, float]]:
    """By the number of workers before: the shards then, the share of keys that move to another worker,
    the least possible, and how much more than its part the most loaded worker has afterwards."""
    found = []
    for before, later in pairwise(layouts):
        workers, shards = len(later.hosts), len(later.owners)
        old, new = owners(before, keys), owners(later, keys)
        loads = np.bincount(new, minlength=workers)
        found.append(
            {
                "shards": shards,
                "moved": float(np.mean(old != new)),
                "least": shards // workers / shards,
                "most_loaded": float(loads.max() * workers / len(keys)),
            }
        )
    return found


def modulo(keys: Any, workers: int) -> float:
    """The share of keys that move where the worker is the hash modulo their number."""
    return float(np.mean(keys % np.uint64(workers) != keys % np.uint64(workers + 1)))


def upgraded(hosts: int, keys: Any, *, at_once: bool) -> float:
    """How often all keys get to another host while each of so many, with two workers, is replaced."""
    there = {worker: f"host-{worker // 2}" for worker in range(2 * hosts)}
    layout = after(Layout(), Join(there))
    moved = 0.0
    for number in range(hosts):
        old = frozenset({2 * number, 2 * number + 1})
        new = Join({worker + 2 * hosts: f"host-{number + hosts}" for worker in old})
        for changes in ((new, Leave(old)),) if at_once else ((new,), (Leave(old),)):
            later = after(layout, *changes)
            moved += float(np.mean(on_hosts(layout, keys) != on_hosts(later, keys)))
            layout = later
    return moved


def on_hosts(layout: Layout, keys: Any) -> Any:
    """The host of each key, by its number."""
    numbers = np.full(max(layout.hosts) + 1, -1)
    for worker, host in layout.hosts.items():
        numbers[worker] = int(host.removeprefix("host-"))
    return numbers[owners(layout, keys)]


def upgrade_table(result: Mapping[str, Any]) -> str:
    """For people."""
    lines = [
        "| hosts | scaled out and in | one change a host | ratio |",
        "|---|---|---|---|",
        *(
            f"| {one['hosts']} | {one['scaled']:.2f} | {one['changed']:.2f} | "
            f"{one['scaled'] / one['changed']:.2f} |"
            for one in result["upgrades"]
        ),
    ]
    return "\n".join(lines) + "\n"


def table(result: Mapping[str, Any]) -> str:
    """For people."""
    lines = [
        "| workers | moved, dynamic | least | shards | moved, 1,024 fixed | least | moved, hash % W |",
        "|---|---|---|---|---|---|---|",
    ]
    for workers in SHOWN:
        dynamic, fixed = (result[name][workers - 1] for name in SHARDINGS)
        lines.append(
            f"| {workers} to {workers + 1} | {dynamic['moved']:.1%} | {dynamic['least']:.1%} | "
            f"{dynamic['shards']:,} | {fixed['moved']:.1%} | {fixed['least']:.1%} | "
            f"{result['modulo'][workers - 1]:.1%} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    keys = hashes()
    result: dict[str, Any] = {"keys": KEYS}
    result |= {name: moves(grown(sharding), keys) for name, sharding in SHARDINGS.items()}
    result["modulo"] = [modulo(keys, workers) for workers in range(1, MOST_WORKERS + 1)]
    result["upgrades"] = [
        {
            "hosts": hosts,
            "scaled": upgraded(hosts, keys, at_once=False),
            "changed": upgraded(hosts, keys, at_once=True),
        }
        for hosts in (2, 3, 4, 8, 16)
    ]
    RESULT.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(table(result))
    print(upgrade_table(result))


if __name__ == "__main__":
    main()
