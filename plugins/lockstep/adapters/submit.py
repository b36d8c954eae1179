"""The engine through spark-submit: a job file in, a result file out, a Spark driver in between.

The result file decides, not the exit code: cluster managers and Airflow's provider fold all
failures into one. The driver runs in client mode, next to the caller: both read the same files::

    job file      {"kind": "IntervalJob" | "PublishJob" | …, "job": {…}}   (control.codec)
    result file   {"result": {…}}  or  {"error": {"type", "message", …}}
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lockstep import errors
from lockstep.adapters.embedded.connect import ENGINE, package_folder
from lockstep.adapters.pods import placed_template
from lockstep.adapters.settings import Settings
from lockstep.control import codec
from lockstep.control.job import (
    CompareJob,
    CompareResult,
    ExpireJob,
    IntervalJob,
    IntervalResult,
    MergeJob,
    Placement,
    PreviewJob,
    PublishJob,
    PublishResult,
    ViewDifference,
)
from lockstep.control.ports import Progress
from lockstep.errors import EngineFailed, LockstepError, ProjectError, Refused, WrongUse

__all__ = ["Launch", "SubmitArguments", "SubmitEngine", "submit_arguments", "submit_by_subprocess"]

LOG_CONFIGURATION = Path(__file__).with_name("spark_log4j2.properties")
POD_TEMPLATE = "spark.kubernetes.executor.podTemplateFile"
TAIL_LINES = 30
STOP_SECONDS = 10


@dataclass(frozen=True)
class SubmitArguments:
    """What spark-submit is given, apart from the master: the caller knows that.

    `environment` is what to set on top of the caller's own.
    """

    application: str
    arguments: tuple[str, ...]
    conf: Mapping[str, str] = field(hash=False)
    jars: tuple[str, ...]
    environment: Mapping[str, str] = field(hash=False)

    def with_setting(self, key: str, value: str) -> SubmitArguments:
        """The same with one more of Spark's settings."""
        return replace(self, conf={**self.conf, key: value})

    def command(self, master: str) -> list[str]:
        """The whole command line, for a shell without Airflow."""
        conf = [text for key, value in self.conf.items() for text in ("--conf", f"{key}={value}")]
        jars = ["--jars", ",".join(self.jars)] if self.jars else []
        return [
            *("spark-submit", "--master", master, "--deploy-mode", "client"),
            *jars,
            *conf,
            self.application,
            *self.arguments,
        ]


Launch = Callable[[SubmitArguments, Progress], str]
"""Runs spark-submit to its end; answers with the last lines it wrote, for a failure's message."""


def submit_arguments(
    job_file: Path, result_file: Path, jars: Sequence[str], placement: Placement | None = None
) -> SubmitArguments:
    """The arguments for one job, whoever launches it; with a placement it asks for an executor on each
    host, with a core for each worker. Raises WrongUse where Spark is missing."""
    spark_home = package_folder("pyspark")
    here = str(Path(sys.executable).parent)
    return SubmitArguments(
        application=str(_application()),
        arguments=("--job", str(job_file), "--result", str(result_file)),
        conf={
            **ENGINE,
            **({} if placement is None else _resources(placement)),
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{LOG_CONFIGURATION}",
        },
        jars=tuple(jars),
        environment={
            "SPARK_HOME": str(spark_home),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            # A virtual environment that nobody activated still has its spark-submit.
            "PATH": os.pathsep.join((here, os.environ.get("PATH", os.defpath))),
        },
    )


def _resources(placement: Placement) -> Mapping[str, str]:
    """What a cluster manager is asked for, and may not take back; a `local` master has the cores that it
    names. Hosts have equally many: where workers do not go into them evenly some have one more."""
    hosts = len(placement.hosts)
    cores = -(-placement.workers // hosts)
    return {
        "spark.dynamicAllocation.enabled": "false",
        "spark.executor.instances": str(hosts),
        "spark.executor.cores": str(cores),
        # For a standalone cluster, which knows no number of executors.
        "spark.cores.max": str(cores * hosts),
    }


def submit_by_subprocess(master: str) -> Launch:
    """Plain spark-submit as a child of this process; what it writes goes to the progress lines."""

    def launch(arguments: SubmitArguments, progress: Progress) -> str:
        environment = {**os.environ, **arguments.environment}
        if master.startswith("local"):
            environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        tail: deque[str] = deque(maxlen=TAIL_LINES)
        with subprocess.Popen(
            arguments.command(master),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as child:
            try:
                for line in child.stdout or ():
                    tail.append(line.rstrip())
                    progress(line.rstrip())
                child.wait()
            finally:
                _stop(child)
        return "\n".join(tail)

    return launch


class SubmitEngine:
    """Implements `control.ports.Engine`: each interval and each publish is a Spark application.

    `launch` is how spark-submit is run: as a child process here, through Airflow's provider there.
    """

    def __init__(
        self,
        settings: Settings,
        launch: Launch | None = None,
        jars: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        self._launch = launch or submit_by_subprocess(settings.spark_master)
        self._jars = jars or _locked_jars
        self._pod_template = settings.pod_template

    def run(self, job: IntervalJob, progress: Progress) -> IntervalResult:
        result: IntervalResult = self._submit(job, IntervalResult, progress)
        return result

    def preview(self, job: IntervalJob, progress: Progress) -> tuple[ViewDifference, ...]:
        kind = tuple[ViewDifference, ...]
        found: tuple[ViewDifference, ...] = self._submit(PreviewJob(job), kind, progress)
        return found

    def publish(self, job: PublishJob, progress: Progress) -> PublishResult:
        result: PublishResult = self._submit(job, PublishResult, progress)
        return result

    def compare(self, job: CompareJob, progress: Progress) -> CompareResult:
        result: CompareResult = self._submit(job, CompareResult, progress)
        return result

    def merge(self, job: MergeJob, progress: Progress) -> Mapping[str, int]:
        snapshots: Mapping[str, int] = self._submit(job, Mapping[str, int], progress)
        return snapshots

    def expire(self, job: ExpireJob, progress: Progress) -> int:
        deleted: int = self._submit(job, int, progress)
        return deleted

    def interrupt(self, session: str) -> None:
        """Nothing to reach: an attempt under spark-submit records no session, and a driver that is
        left alive is refused at its commit."""

    def session(self, recorded: str) -> str:
        """None: every job has a driver of its own."""
        del recorded
        return ""

    def _submit(
        self,
        job: IntervalJob | PreviewJob | PublishJob | CompareJob | MergeJob | ExpireJob,
        kind: Any,
        progress: Progress,
    ) -> Any:
        # The folder is readable by this user only: a job carries the catalog's credentials.
        with TemporaryDirectory(prefix="lockstep-job-") as folder:
            job_file, result_file = Path(folder, "job.json"), Path(folder, "result.json")
            job_file.write_text(
                json.dumps({"kind": type(job).__name__, "job": codec.encode(job)}), "utf-8"
            )
            placement = job.placement if isinstance(job, IntervalJob) else None
            arguments = submit_arguments(job_file, result_file, self._jars(), placement)
            if placement is not None and self._pod_template:
                pods = Path(folder, "executors.yml")
                pods.write_text(placed_template(Path(self._pod_template), placement.hosts), "utf-8")
                arguments = arguments.with_setting(POD_TEMPLATE, str(pods))
            tail = self._launch(arguments, progress)
            answer = _answer(job.pipeline, result_file, tail)
        if "error" in answer:
            raise _error(answer["error"])
        return codec.decode(kind, answer.get("result"))


def _answer(pipeline: str, result_file: Path, tail: str) -> Mapping[str, object]:
    try:
        answer = json.loads(result_file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise EngineFailed(
            f"{pipeline}: the Spark application ended without an answer",
            expected="a result or an error in its result file",
            found=tail or "no output either",
            next_step="run the interval again; if it stays, give the driver more memory",
        ) from error
    return dict(answer)


def _error(recorded: object) -> LockstepError:
    """The error that the driver met, as if it had been raised here."""
    fields = dict(recorded) if isinstance(recorded, Mapping) else {}
    kind = getattr(errors, str(fields.get("type")), None)
    plain: type[LockstepError] = Refused if fields.get("exit_code") == 2 else EngineFailed
    # A ProjectError wants a position, which stands in its message already.
    if isinstance(kind, type) and issubclass(kind, LockstepError):
        plain = plain if issubclass(kind, ProjectError) else kind
    details = {name: str(fields.get(name, "")) for name in ("expected", "found", "next_step")}
    return plain(str(fields.get("message", "")), **details)


def _locked_jars() -> Sequence[str]:
    from lockstep.adapters.jars import jar_paths

    return [str(path) for path in jar_paths("spark")]


def _application() -> Path:
    """run_interval.py: beside the engine's package in a checkout, inside it in a wheel."""
    engine = package_folder("lockstep_engine")
    for folder in (engine.parent, engine):
        if (folder / "run_interval.py").is_file():
            return folder / "run_interval.py"
    raise WrongUse(
        "the entry point for spark-submit is missing",
        expected=f"run_interval.py in {engine.parent} or {engine}",
        found="neither",
        next_step="install Lockstep's wheel again",
    )


def _stop(child: subprocess.Popen[str]) -> None:
    """End a driver that is still there because the reading of its output was interrupted."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
