"""The process from which Spark forks its Python workers, with what they need imported in it.

Spark ends workers that rest for a minute, so that at an interval a minute each interval would begin
with new ones, and these with seconds of imports. What stands imported in their parent they have from
birth. Set as `spark.python.daemon.module`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from importlib import import_module

from pyspark import daemon

NEEDED = (
    "pandas",
    "lockstep_engine.operators.exact_sums",
    "lockstep_engine.operators.extremes",
    "lockstep_engine.sinks.kafka",
    "lockstep_engine.sources.file_rows",
)
"""Where what runs in tasks is defined, and pandas, which Spark's worker imports for some of it."""


def main() -> None:
    """Serve Spark until it ends this process."""
    for module in NEEDED:
        import_module(module)
    # A worker collects garbage after every task; what came from here is none.
    gc.collect()
    gc.freeze()
    serve: Callable[[], None] = daemon.manager
    serve()


if __name__ == "__main__":
    main()
