"""A warm Spark Connect server with Iceberg and Kafka, set for small intervals, on loopback."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lockstep.adapters.embedded import process
from lockstep.adapters.embedded.java import java_command
from lockstep.adapters.embedded.ports import HOST, listens
from lockstep.adapters.embedded.process import Process
from lockstep.errors import WrongUse

__all__ = [
    "ENGINE",
    "JAVA_OPTIONS",
    "SERVER",
    "STOP_SECONDS",
    "ConnectOptions",
    "answers",
    "package_folder",
    "program",
    "start",
    "wait_ready",
]

NAME = "the Spark Connect server"
LOG_CONFIGURATION = Path(__file__).with_name("connect_log4j2.properties")
# With these, which a shell may have, and a process that has been a client has, Spark's Python program
# would itself be a client, and so would its workers.
OF_CLIENTS = {"SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE"}
READY_SECONDS = 120
STOP_SECONDS = 20
ANSWER_SECONDS = 5
DEFAULT_MEMORY = "4g"

# Measured on intervals of 10,000 records: without these one takes 16 s instead of half a second.
SMALL_INTERVALS: Mapping[str, str] = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.iceberg.locality.enabled": "false",
    "spark.sql.iceberg.aggregate-push-down.enabled": "false",
    "spark.sql.iceberg.read.adaptive-split-size.enabled": "false",
    # A project of fifty operators has some hundreds of generated classes; Spark keeps 100.
    "spark.sql.codegen.cache.maxEntries": "5000",
    # Each task that sorts or hashes takes a page, by default of 64 MiB, which the JVM must clear.
    "spark.buffer.pageSize": "4m",
    # Python workers live for a minute of rest, and importing what they need takes two seconds.
    "spark.python.daemon.module": "lockstep_engine.python_workers",
    # Over TCP each end of a task waits for the other's acknowledgement, 40 ms at a time.
    "spark.python.unix.domain.socket.enabled": "true",
}

# What Spark has generated for a pipeline stays with its session: through a night without intervals.
KEPT_SESSIONS: Mapping[str, str] = {"spark.connect.session.manager.defaultSessionTimeout": "26h"}

# Generated code fills the default 240 MiB within an hour, and is then compiled over and over.
# The parallel collector leaves a tenth more of two cores to the work than G1 does (TPC-H q3).
JAVA_OPTIONS = "-XX:ReservedCodeCacheSize=512m -XX:+UseParallelGC"

# A client that was killed leaves its query running; with these it is gone 11 s later.
ORPHANS_END: Mapping[str, str] = {
    "spark.connect.execute.manager.detachedTimeout": "4s",
    "spark.connect.execute.manager.maintenanceInterval": "1s",
    "spark.connect.execute.reattachable.senderMaxStreamDuration": "10s",
}

# The server lives for weeks: what it remembers for its pages is bounded.
BOUNDED_MEMORY: Mapping[str, str] = {
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "200",
    "spark.ui.retainedTasks": "5000",
    "spark.sql.ui.retainedExecutions": "50",
    "spark.connect.ui.retainedSessions": "50",
    "spark.connect.ui.retainedStatements": "50",
}

# Of every Spark that runs intervals, a server or one that is submitted.
ENGINE: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.ui.showConsoleProgress": "false",
    **SMALL_INTERVALS,
}

# Of every server, wherever it runs: `docker/spark.sh` starts one with these, too.
SERVER: Mapping[str, str] = {
    **ENGINE,
    **ORPHANS_END,
    **KEPT_SESSIONS,
    **BOUNDED_MEMORY,
}

# AnalyzePlan(spark_version) is the cheapest call that goes through the whole server. Its message
# is written out, so that asking does not need Spark's Python package (1.7 s to import): field 1 is
# the session id, 2 the user (its field 1 the user id), 10 the empty message `spark_version`.
ANALYZE = "/spark.connect.SparkConnectService/AnalyzePlan"
ASK_VERSION = b"\n\x24%s\x12\x0a\n\x08lockstepR\x00"


@dataclass(frozen=True)
class ConnectOptions:
    """What can be chosen. `ui_port` 0 means no UI; `conf` is added last and wins."""

    port: int
    ui_port: int = 0
    master: str = "local[2]"
    driver_memory: str = DEFAULT_MEMORY
    conf: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def remote(self) -> str:
        return f"sc://{HOST}:{self.port}"


def start(folder: Path, jars: Sequence[Path], options: ConnectOptions, log: Path) -> Process:
    """Start the server in `folder`; the process id is that of its JVM."""
    java = java_command()
    # What a server that was killed had no time to delete.
    shutil.rmtree(folder / "scratch", ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    spark_home = package_folder("pyspark")
    environment = {
        **{name: value for name, value in os.environ.items() if name not in OF_CLIENTS},
        "SPARK_HOME": str(spark_home),
        # The Java that was found good, whatever a shell has in JAVA_HOME.
        "JAVA_HOME": str(Path(java).resolve().parent.parent),
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    return process.start(_command(spark_home, folder, jars, options), log, environment, folder)


def wait_ready(server: Process, port: int, log: Path) -> None:
    """Wait until a call is answered. Raises LockstepError, Unreachable."""
    process.wait_ready(server, NAME, log, lambda: answers(port), READY_SECONDS)


def answers(port: int) -> bool:
    """Whether a Spark Connect server answers there, within a few seconds."""
    if not listens(port):
        return False
    import grpc

    with grpc.insecure_channel(
        f"{HOST}:{port}", options=[("grpc.enable_http_proxy", 0)]
    ) as channel:
        ask = channel.unary_unary(ANALYZE)
        try:
            ask(ASK_VERSION % str(uuid.uuid4()).encode(), timeout=ANSWER_SECONDS)
        except grpc.RpcError:
            return False
    return True


def _command(
    spark_home: Path, folder: Path, jars: Sequence[Path], options: ConnectOptions
) -> list[str]:
    conf = {
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(options.port),
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS}"
        f" -Dlog4j2.configurationFile=file:{LOG_CONFIGURATION} -Dderby.system.home={folder}",
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.warehouse.dir": (folder / "spark-warehouse").as_uri(),
        "spark.ui.enabled": "true" if options.ui_port else "false",
        "spark.ui.port": str(options.ui_port or 4040),
        "spark.port.maxRetries": "0",
        "spark.sql.shuffle.partitions": "2",
        **SERVER,
        **options.conf,
    }
    return [
        str(spark_home / "bin" / "spark-submit"),
        *("--name", "lockstep", "--master", options.master),
        *("--driver-memory", options.driver_memory),
        *("--jars", ",".join(str(jar) for jar in jars)),
        *(word for key, value in conf.items() for word in ("--conf", f"{key}={value}")),
        str(program()),
    ]


def program() -> Path:
    """What spark-submit is given to start a server."""
    return package_folder("lockstep_engine") / "connect_server.py"


def package_folder(name: str) -> Path:
    """Where an installed package is, without importing it. Raises WrongUse."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise WrongUse(
            f"the Python package {name} is not installed beside Lockstep",
            expected="the packages of Lockstep's requirements.txt",
            found=f"no {name} for {sys.executable}",
            next_step="install the requirements into this environment",
        )
    return Path(spec.origin).parent
