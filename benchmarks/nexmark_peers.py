"""The engines beside Lockstep: each a process of its own, which is asked one query after the other."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from string import Template

import pooch
from peers.task import ANSWER, Answer, Task
from peers.texts import own_text

from lockstep.adapters.embedded.java import java_command
from lockstep.adapters.jars import jar_paths
from lockstep.errors import WrongUse

__all__ = ["Ask", "dbsp", "flink_sql", "spark_batch", "structured_streaming"]

FOLDER = Path(__file__).parent
LAST_LINES = 15
END_SECONDS = 60
FLINK_MEMORY = "4g"

Ask = Callable[[Task], Answer]
"""Runs a query. Raises RuntimeError where the engine's process ends before it answers."""


class Peer:
    """A running process. What it says that is no answer goes to its log."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log

    def ask(self, line: str) -> Answer:
        """Send one line, wait for the answer. Raises RuntimeError where the process ends instead."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> Answer:
        """The next answer. Raises RuntimeError where the process ends instead."""
        assert self._process.stdout is not None
        with self._log.open("a") as log:
            for said in self._process.stdout:
                if said.startswith(ANSWER):
                    found = json.loads(said.removeprefix(ANSWER))
                    return Answer(tuple(found["seconds"]), found["refused"], found["failed"])
                log.write(said)
        last = "\n".join(self._log.read_text(errors="replace").splitlines()[-LAST_LINES:])
        raise RuntimeError(f"the process ended with {self._process.wait()}:\n{last}")


@contextmanager
def running(
    command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Peer]:
    """A process that ends with the body."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log"
    # A client of Spark Connect leaves in the environment that it is one: a peer has a Spark of its own.
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("SPARK_")}
    with log.open("a") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**inherited, **(environment or {})},
        )
    assert process.stdin is not None
    try:
        yield Peer(process, log)
    finally:
        try:
            process.stdin.close()
            process.wait(timeout=END_SECONDS)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()


@contextmanager
def _python(module: str, folder: Path, *arguments: str) -> Iterator[Ask]:
    """A module of `peers`, which is told its folder first."""
    paths = os.pathsep.join(filter(None, (str(FOLDER), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", f"peers.{module}", str(folder), *arguments]
    environment = {"PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable}
    with running(command, folder, environment) as peer:
        yield lambda task: peer.ask(task.as_json())


@contextmanager
def spark_batch(folder: Path, catalog: Mapping[str, str]) -> Iterator[Ask]:
    """Spark's batch queries; `catalog` are its settings of the one that holds decoded tables."""
    with _python("spark_batch", folder, json.dumps(dict(catalog))) as ask:
        yield ask


@contextmanager
def structured_streaming(folder: Path) -> Iterator[Ask]:
    """Spark Structured Streaming."""
    with _python("structured_streaming", folder) as ask:
        yield ask


@contextmanager
def flink_sql(folder: Path) -> Iterator[Ask]:
    """Flink SQL in one JVM, with the texts and the program in `peers/flink_sql`."""
    ours = FOLDER / "peers" / "flink_sql"
    java = java_command()
    if not Path(java).resolve().with_name("javac").exists():
        raise _without("flink_sql", "a JDK, which compiles Peer.java when it starts", java)
    jars = [*sorted(_flink_home().glob("pyflink/lib/*.jar")), *jar_paths("flink")]
    command = [
        java,
        f"-Xmx{FLINK_MEMORY}",
        *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "util")),
        f"-Dlog4j.configurationFile={ours / 'log4j2.properties'}",
        "-cp",
        os.pathsep.join(map(str, jars)),
        str(ours / "Peer.java"),
    ]
    with running(command, folder) as peer:
        yield lambda task: peer.ask(_flink_line(task))


def _flink_line(task: Task) -> str:
    """What `Peer.java` is told: it reads the SQL from a file."""
    options = {
        table: ",\n".join(
            f"  '{key}' = '{value}'"
            for key, value in {
                "connector": "kafka",
                "topic": task.prefix + table,
                "properties.bootstrap.servers": task.bootstrap,
                "scan.startup.mode": "earliest-offset",
                "scan.bounded.mode": "latest-offset",
                "format": "json",
                "json.timestamp-format.standard": "ISO-8601",
            }.items()
        )
        for table in ("person", "auction", "bid")
    }
    sources, query = (own_text("flink_sql", name) for name in ("sources", task.query))
    assert sources is not None, "the tables are declared"
    assert query is not None, "every query has a text for Flink"
    work = Path(task.work)
    work.mkdir(parents=True)
    sql = work / "query.sql"
    sql.write_text(f"{Template(sources).substitute(options)};\n{query}\n", "utf-8")
    return "\t".join([str(task.runs), task.work, str(sql), task.rows])


def _flink_home() -> Path:
    """Where the jars of Flink are: installed once, from the package that is locked."""
    home = _cache() / "flink"
    if not home.exists():
        locked = FOLDER / "peers" / "flink_sql" / "requirements.txt"
        new = home.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
        subprocess.run(
            [*pip, "--require-hashes", "--target", str(new), "-r", str(locked)], check=True
        )
        new.rename(home)
    return home


@contextmanager
def dbsp(folder: Path, events: Path) -> Iterator[Ask]:
    """The crate's circuits over a file of events; the program is built first: ten minutes, once."""
    if shutil.which("cargo") is None:
        raise _without("dbsp", "Rust's cargo, which builds the crate", "none on the PATH")
    target = _cache() / "dbsp"
    manifest = FOLDER / "peers" / "dbsp" / "Cargo.toml"
    subprocess.run(
        ["cargo", "build", "--release", "--locked", "--quiet", "--manifest-path", str(manifest)],
        env={**os.environ, "CARGO_TARGET_DIR": str(target)},
        check=True,
    )
    program = str(target / "release" / "nexmark-on-dbsp")

    def ask(task: Task) -> Answer:
        asked = [program, str(events), task.query, str(task.runs)]
        with running([*asked, task.rows] if task.rows else asked, folder) as peer:
            return peer.answer()

    yield ask


def _without(engine: str, expected: str, found: str) -> WrongUse:
    return WrongUse(
        f"{engine} cannot be run",
        expected=expected,
        found=found,
        next_step="install it, or name the other engines with --engines",
    )


def _cache() -> Path:
    """Beside the jars' cache, which `LOCKSTEP_CACHE` moves."""
    return Path(os.environ.get("LOCKSTEP_CACHE") or str(pooch.os_cache("lockstep"))) / "peers"
