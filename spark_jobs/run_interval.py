"""Entry point for spark-submit: a job file → the engine → a result file and an exit code.

::

    spark-submit … run_interval.py --job JOB.json --result RESULT.json

Exit codes are those of Lockstep's errors: 0 done, 1 failed and can be retried, 2 refused. The files
are described in `lockstep.adapters.submit`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, get_args

from pyspark.sql import SparkSession

from lockstep.adapters.iceberg_tables import IcebergTables
from lockstep.control import codec
from lockstep.control.job import (
    CompareJob,
    ExpireJob,
    IntervalJob,
    MergeJob,
    PreviewJob,
    PublishJob,
)
from lockstep.errors import LockstepError, WrongUse
from lockstep_engine.compaction import merge_traces
from lockstep_engine.comparison import compare_outboxes
from lockstep_engine.expiry import expire_snapshots
from lockstep_engine.failures import SPARK_ERRORS, plain_error
from lockstep_engine.job import preview_rebuild, run_interval
from lockstep_engine.publishing import publish_sinks

Job = IntervalJob | PreviewJob | PublishJob | CompareJob | MergeJob | ExpireJob
KINDS: dict[str, type[Job]] = {kind.__name__: kind for kind in get_args(Job)}

CLIENT_VARIABLES = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE")
"""PySpark knows a client of Spark Connect by them, and what a client starts inherits them."""


def main(arguments: list[str] | None = None) -> int:
    """Do the job; the exit code."""
    parser = argparse.ArgumentParser(description="Run one Lockstep job under spark-submit.")
    parser.add_argument("--job", type=Path, required=True, help="JSON file with the job")
    parser.add_argument("--result", type=Path, required=True, help="JSON file to write")
    files = parser.parse_args(arguments)
    try:
        answer, exit_code = {"result": codec.encode(_do(_read(files.job)))}, 0
    except LockstepError as error:
        print(error, file=sys.stderr)
        answer, exit_code = {"error": _fields(error)}, error.exit_code
    _write(files.result, answer)
    return exit_code


def _read(file: Path) -> Job:
    data = json.loads(file.read_text("utf-8"))
    kind = KINDS.get(data.get("kind"))
    if kind is None:
        raise WrongUse(
            f"{file} holds no job of Lockstep",
            expected=f"a kind among {sorted(KINDS)}",
            found=repr(data.get("kind")),
            next_step="submit it with the same version of Lockstep that wrote it",
        )
    return codec.decode(kind, data.get("job"))


def _do(job: Job) -> object:
    for name in CLIENT_VARIABLES:
        # Here is the driver itself, whoever has submitted it.
        os.environ.pop(name, None)
    settings = job.interval.catalog if isinstance(job, PreviewJob) else job.catalog
    state = IcebergTables(settings)
    spark = _sized(SparkSession.builder.appName(f"lockstep {job.pipeline}").getOrCreate())
    try:
        match job:
            case IntervalJob():
                return run_interval(spark, job, state, _say)
            case PreviewJob():
                return preview_rebuild(spark, job.interval, state, _say)
            case PublishJob():
                return publish_sinks(spark, job, state, _say)
            case CompareJob():
                return compare_outboxes(spark, job, state, _say)
            case MergeJob():
                return merge_traces(spark, job, state, _say)
            case ExpireJob():
                return expire_snapshots(spark, job)
    except SPARK_ERRORS as error:
        raise plain_error(job.pipeline, error) from error
    finally:
        spark.stop()


def _sized(spark: SparkSession) -> SparkSession:
    """Shuffle into as many partitions as there are task slots: Spark's own 200 make a small job
    slow, and a large interval sets its number by its records."""
    spark.conf.set("spark.sql.shuffle.partitions", spark.sparkContext.defaultParallelism)
    return spark


def _say(line: str) -> None:
    print(line, flush=True)


def _fields(error: LockstepError) -> dict[str, Any]:
    return {
        "type": type(error).__name__,
        "exit_code": error.exit_code,
        "message": error.message,
        "expected": error.expected,
        "found": error.found,
        "next_step": error.next_step,
    }


def _write(file: Path, answer: dict[str, Any]) -> None:
    """In one move: a reader sees the whole answer or none."""
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps(answer), "utf-8")
    os.replace(draft, file)


if __name__ == "__main__":
    sys.exit(main())
