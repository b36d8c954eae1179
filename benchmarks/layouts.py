"""What moves when a worker comes: least, by the layouts of Lockstep, and by `hash % W`.

    python benchmarks/layouts.py

A million keys get their places from Spark's hash, as they do in a pipeline. For each number of workers
from 1 to 64 one more joins, and each key whose owner is another one then is counted, for dynamic
sharding (1/10), for 1,024 fixed shards, and for a worker chosen by `hash % W`, as seed 000 has it in
DBSP. The least that any layout can move is what the new worker has to own: its part of the shards. A
row of a trace moves as its key does, and rows of one trace have about one size, so that shares of keys
are shares of rows and of bytes. Nothing here depends on the machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.control.layout.layouts import Join, Layout, Reshard, after
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
    RESULT.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(table(result))


if __name__ == "__main__":
    main()
