"""The process from which Spark forks its Python workers, with what they need imported in it.

Spark ends workers that rest for a minute, so that at an interval a minute each interval would begin
with new ones, and these with seconds of imports. What stands imported in their parent they have from
birth. Set as `spark.python.daemon.module`.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from importlib import import_module
from zipimport import zipimporter

from pyspark import daemon

NEEDED = (
    "pandas",
    "lockstep_engine.operators.exact_sums",
    "lockstep_engine.operators.extremes",
    "lockstep_engine.sinks.kafka",
    "lockstep_engine.sources.file_rows",
    "lockstep_engine.sources.plain_reading",
)
"""Where what runs in tasks is defined, and pandas, which Spark's worker imports for some of it."""


def keep_archives() -> None:
    """The archives that are on the path by now, Spark's own, are taken to stay as they are.

    A worker looks for new modules before every task, and Python 3.11 then reads the directories of all
    archives again (https://github.com/python/cpython/issues/103200): 0.14 s a task.
    """
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, zipimporter):
            finder.invalidate_caches = lambda: None  # type: ignore[method-assign]


def main() -> None:
    """Serve Spark until it ends this process."""
    for module in NEEDED:
        import_module(module)
    keep_archives()
    # A worker collects garbage after every task; what came from here is none.
    gc.collect()
    gc.freeze()
    serve: Callable[[], None] = daemon.manager
    serve()


if __name__ == "__main__":
    main()
