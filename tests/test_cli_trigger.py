"""`lockstep trigger` before a server that answers as it is told: Airflow, or another one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from lockstep.cli import operate
from lockstep.cli.main import main

TOKEN = ("POST", "/auth/token")
DAG = ("GET", "/api/v2/dags/shop")
RUNS = ("POST", "/api/v2/dags/shop/dagRuns")
RUN = ("GET", "/api/v2/dags/shop/dagRuns/manual__1")

Answers = dict[tuple[str, str], list[tuple[int, str]]]


class Server(HTTPServer):
    """Has a list of answers by method and path, of which the last stays; all others are 404."""

    answers: Answers
    asked: list[tuple[str, str]]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer("POST")

    def _answer(self, method: str) -> None:
        asked = (method, self.path)
        self.server.asked.append(asked)
        code, body = 404, "<h1>nothing here</h1>"
        if answers := self.server.answers.get(asked):
            code, body = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(code)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        return


def answering(**found: object) -> list[tuple[int, str]]:
    return [(200, json.dumps(found))]


def airflow() -> Answers:
    """What Airflow says whose DAG `shop` is not paused, and whose run takes a while."""
    states = ("queued", "running", "success")
    runs = [(200, json.dumps({"dag_run_id": "manual__1", "state": state})) for state in states]
    return {
        TOKEN: [(201, json.dumps({"access_token": "t0k3n"}))],
        DAG: answering(dag_id="shop", is_paused=False),
        RUNS: runs[:1],
        RUN: runs[1:],
    }


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answers], Server]]:
    """Start the server that the command line is told of."""
    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setattr(operate, "POLL_SECONDS", 0.01)
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    monkeypatch.setenv("LOCKSTEP_AIRFLOW_URL", f"http://127.0.0.1:{server.server_port}")

    def told(answers: Answers) -> Server:
        server.answers, server.asked = answers, []
        return server

    yield told
    server.shutdown()
    thread.join()
    server.server_close()


def trigger(*options: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(("trigger", "shop", *options))
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_it_waits_until_the_run_has_ended(
    serve: Callable[[Answers], Server], capsys: pytest.CaptureFixture[str]
) -> None:
    server = serve(airflow())
    assert trigger("--wait") == 0
    assert "run manual__1 is success" in capsys.readouterr().out
    assert server.asked == [TOKEN, DAG, RUNS, TOKEN, RUN, TOKEN, RUN]


@pytest.mark.parametrize("options", [(), ("--wait",)])
def test_a_paused_dag_is_asked_for_no_run(
    serve: Callable[[Answers], Server],
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
) -> None:
    """It would be queued for as long as the DAG is paused."""
    server = serve({**airflow(), DAG: answering(dag_id="shop", is_paused=True)})
    assert trigger(*options) == 2
    said = capsys.readouterr().err
    assert "the DAG of the pipeline shop is paused in Airflow" in said
    assert "expected: a DAG that is not paused" in said
    page = f"http://127.0.0.1:{server.server_port}/dags/shop"
    assert f"next: unpause it by the switch at {page}, or by `airflow dags unpause shop`" in said
    assert RUNS not in server.asked


def test_once_and_until_are_refused_at_once(
    serve: Callable[[Answers], Server], capsys: pytest.CaptureFixture[str]
) -> None:
    server = serve(airflow())
    assert trigger("--once", "--until", "2026-01-01") == 2
    said = capsys.readouterr().err
    assert "--once and --until exclude each other" in said
    assert "next: lockstep trigger shop --once" in said
    assert server.asked == []


@pytest.mark.parametrize(
    "answer", [(404, "<h1>nothing here</h1>"), (200, "<h1>a page</h1>"), (501, "no POST here")]
)
def test_another_server_is_told_from_a_dag_that_is_missing(
    serve: Callable[[Answers], Server],
    capsys: pytest.CaptureFixture[str],
    answer: tuple[int, str],
) -> None:
    server = serve({TOKEN: [answer]})
    assert trigger() == 2
    said = capsys.readouterr().err
    assert f"what answers at http://127.0.0.1:{server.server_port} is no Airflow 3" in said
    assert f"found: status {answer[0]}: {answer[1]}" in said
    assert "next: set LOCKSTEP_AIRFLOW_URL" in said
    assert "has no DAG" not in said

    missing = [(404, json.dumps({"detail": "The Dag with ID: `shop` was not found"}))]
    serve({**airflow(), DAG: missing})
    assert trigger() == 2
    said = capsys.readouterr().err
    assert "has no DAG of the pipeline shop" in said
    assert "found: " in said
    assert "was not found" in said


def test_who_is_not_let_in_and_who_fails_are_named(
    serve: Callable[[Answers], Server], capsys: pytest.CaptureFixture[str]
) -> None:
    serve({TOKEN: [(401, "Invalid credentials")]})
    assert trigger() == 2
    assert "does not let this user in" in capsys.readouterr().err
    serve({TOKEN: [(503, "later")]})
    assert trigger() == 1
    assert "failed with status 503" in capsys.readouterr().err
