"""Processes by identity, ports by name, Java and jars by version: the small parts of the stack."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest

from lockstep.adapters import jars
from lockstep.adapters.embedded import java, ports, process
from lockstep.adapters.embedded.process import Process
from lockstep.adapters.embedded.record import Record, Started
from lockstep.errors import LockstepError, Refused, Unreachable, WrongUse

SLEEP = "import time; time.sleep(600)"
# A parent that leaves a child behind which does not listen to SIGTERM.
PARENT = f"""
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", {SLEEP!r}])
signal.signal(signal.SIGTERM, signal.SIG_DFL)
print(child.pid, flush=True)
time.sleep(600)
"""


def started(tmp_path: Path, code: str) -> Process:
    return process.start([sys.executable, "-c", code], tmp_path / "log", os.environ, tmp_path)


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_stop_ends_a_process_once(tmp_path: Path) -> None:
    running = started(tmp_path, SLEEP)
    assert process.alive(running)
    assert process.stop(running, 10)
    assert gone(running.pid)
    assert not process.stop(running, 10)


def test_stop_never_ends_another_process_of_the_same_id(tmp_path: Path) -> None:
    running = started(tmp_path, SLEEP)
    before_it = replace(running, started=running.started - 100)
    assert not process.alive(before_it)
    assert not process.stop(before_it, 1)
    assert process.alive(running)
    process.stop(running, 10)


def test_stop_ends_what_the_process_left_in_its_session(tmp_path: Path) -> None:
    running = started(tmp_path, PARENT)
    log = tmp_path / "log"
    process.wait_ready(running, "the parent", log, lambda: log.read_text().endswith("\n"), 30)
    child = int(log.read_text())
    assert process.stop(running, 10)
    for _ in range(100):
        if gone(child):
            break
        time.sleep(0.05)
    assert gone(child)


def test_an_early_end_shows_the_log(tmp_path: Path) -> None:
    running = started(tmp_path, "raise SystemExit('no room at the inn')")
    with pytest.raises(LockstepError, match="no room at the inn") as caught:
        process.wait_ready(running, "the inn", tmp_path / "log", lambda: False, 30)
    assert "the inn ended while it started" in str(caught.value)


def test_a_late_start_is_told_and_left_alone(tmp_path: Path) -> None:
    running = started(tmp_path, SLEEP)
    with pytest.raises(Unreachable, match=r"the inn was not ready after 0\.2 s"):
        process.wait_ready(running, "the inn", tmp_path / "log", lambda: False, 0.2)
    assert process.stop(running, 10)


def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind((ports.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert ports.listens(port)
        with pytest.raises(WrongUse) as caught:
            ports.check_free({"the Kafka broker": (port, "--kafka-port")})
    assert f"port {port} for the Kafka broker is taken" in str(caught.value)
    assert "next: lockstep up --kafka-port" in str(caught.value)
    ports.check_free({"the Kafka broker": (port, "--kafka-port")})


def test_a_port_that_stays_taken_is_named_after_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "RELEASE_SECONDS", 0.3)
    with socket.socket() as taken:
        taken.bind((ports.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        since = time.monotonic()
        with pytest.raises(WrongUse, match=f"port {port} for the Kafka broker is taken"):
            ports.check_free({"the Kafka broker": (port, "--kafka-port")}, {port})
        assert time.monotonic() - since >= 0.3


def test_record_survives_and_a_dead_part_keeps_its_port(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.add("broker", Started(Process(2**22 - 1, 5.0), {"kafka": 1234}))
    record.set_addresses({"kafka": "127.0.0.1:1234"})
    again = Record(tmp_path)
    assert again.parts == record.parts
    assert again.addresses == {"kafka": "127.0.0.1:1234"}
    assert again.ports() == {"kafka": 1234}
    assert not again.alive("broker")


def test_the_ports_of_a_part_outlive_it(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.add("broker", Started(Process(2**22 - 1, 5.0), {"kafka": 1234}))
    record.set_addresses({"kafka": "127.0.0.1:1234"})
    record.forget("broker")
    record.set_addresses({})
    again = Record(tmp_path)
    assert again.parts == {}
    assert again.addresses == {}
    assert again.ports() == {"kafka": 1234}
    again.add("broker", Started(Process(2**22 - 1, 6.0), {"kafka": 4321}))
    assert Record(tmp_path).ports() == {"kafka": 4321}


def test_a_record_that_has_ports_by_parts_alone_is_read(tmp_path: Path) -> None:
    broker = {"pid": 2**22 - 1, "started": 5.0, "ports": {"kafka": 1234}}
    (tmp_path / "stack.json").write_text(json.dumps({"kafka": "x", "parts": {"broker": broker}}))
    record = Record(tmp_path)
    assert record.ports() == {"kafka": 1234}
    assert record.addresses == {"kafka": "x"}


@pytest.mark.parametrize(
    ("said", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_401"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("not a java", 0),
    ],
)
def test_java_version_is_read(said: str, major: int) -> None:
    assert java.major_version(said) == major


def test_missing_and_old_java_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(WrongUse, match="Java is missing") as caught:
        java.java_command()
    assert "install Java 17 or newer" in str(caught.value)
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    with pytest.raises(WrongUse, match="is version 11"):
        java.java_command()


class Repository(BaseHTTPRequestHandler):
    """Answers every path with the same few bytes."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"not that jar")

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A Maven repository of wrong files, and an empty cache."""
    server = HTTPServer((ports.HOST, 0), Repository)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    address = f"http://{ports.HOST}:{server.server_port}"
    monkeypatch.setenv("LOCKSTEP_MAVEN_URL", address)
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path / "cache"))
    yield address
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_jar_that_is_not_the_locked_one_is_refused(repository: str, tmp_path: Path) -> None:
    lines: list[str] = []
    with pytest.raises(Refused, match="is not the file that is locked") as caught:
        jars.jar_paths("spark", lines.append)
    assert repository in str(caught.value)
    assert sorted(lines) == sorted(f"fetching {j.file_name}" for j in jars.locked_jars("spark"))
    assert not list(tmp_path.glob("cache/**/*.jar"))


def test_groups_of_jars_are_complete_and_pinned() -> None:
    spark = {jar.artifact: jar.version for jar in jars.locked_jars("spark")}
    assert spark["iceberg-spark-runtime-4.1_2.13"] == "1.12.0"
    broker = jars.locked_jars("broker")
    assert "kafka_2.13" in {jar.artifact for jar in broker}
    assert all(len(jar.sha256) == 64 for jar in broker)
    with pytest.raises(WrongUse, match="expected: broker, flink, queries, spark"):
        jars.locked_jars("storm")
