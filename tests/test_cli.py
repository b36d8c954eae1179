"""The command line without any server: help, projects, errors and their exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import click
import pytest

from lockstep import runtime
from lockstep.adapters.embedded.parts import PORTS
from lockstep.adapters.settings import Settings
from lockstep.cli import main as cli_main
from lockstep.cli import operate
from lockstep.cli import stack as cli_stack
from lockstep.cli.main import cli, main
from lockstep.cli.output import table

HEAVY = ("airflow", "confluent_kafka", "duckdb", "grpc", "pandas", "pyiceberg", "pyspark")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh installation that knows the address of a broker nobody answers at."""
    folder = tmp_path / "home"
    monkeypatch.setenv("LOCKSTEP_HOME", str(folder))
    monkeypatch.setenv("LOCKSTEP_KAFKA", "127.0.0.1:1")
    return folder


@pytest.fixture
def shop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The project that `init` writes."""
    folder = str(tmp_path / "shop")
    assert run("init", folder) == 0
    capsys.readouterr()
    return folder


def run(*arguments: str) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def commands(group: click.Group) -> Iterator[click.Command]:
    for command in group.commands.values():
        if isinstance(command, click.Group):
            yield from commands(command)
        else:
            yield command


def test_every_command_has_an_output_option_and_an_example() -> None:
    for command in commands(cli):
        names = {name for option in command.params for name in option.opts}
        assert "--output" in names, command.name
        help_text = command.get_help(click.Context(command))
        assert f"lockstep {command.name}" in help_text or "Example" in help_text, command.name


def test_the_commands_are_those_of_the_design() -> None:
    wanted = "init plan deploy up down status run trigger backfill steps versions rollback receipt"
    assert {*wanted.split(), "verify", "bench"} <= set(cli.commands)


def test_help_loads_nothing_heavy() -> None:
    code = f"import sys, lockstep.cli.main; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_port_options_are_the_ports_of_the_stack() -> None:
    assert {name: port.default for name, port in PORTS.items()} == cli_stack.PORTS


def test_init_writes_a_project_that_compiles(shop: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan", shop) == 0
    assert "totals (customer, orders, spent)" in capsys.readouterr().out
    assert run("plan", shop, "--output", "json") == 0
    assert json.loads(capsys.readouterr().out)["database"] == "shop"


def test_init_leaves_a_folder_with_files_alone(
    shop: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("init", shop, "--output", "json") == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["exit_code"] == 2
    assert answer["error"]["type"] == "WrongUse"
    assert answer["error"]["message"].endswith("is not empty")


def test_init_makes_a_name_of_any_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("init", str(tmp_path / "2nd Shop"), "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["name"] == "p_2nd_shop"


def test_deploy_records_and_shows(shop: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("deploy", shop) == 0
    assert "pipeline shop is deployed, at version 0" in capsys.readouterr().out
    assert run("versions", "shop", "-o", "json") == 0
    (zero,) = json.loads(capsys.readouterr().out)
    assert (zero["number"], zero["lacking"], zero["dropped"]) == (0, [], False)
    assert run("steps", shop) == 0
    assert "no recorded steps yet" in capsys.readouterr().out


def test_before_the_first_version_a_source_is_forgotten_and_nothing_made_anew(
    shop: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("deploy", shop) == 0
    capsys.readouterr()
    assert run("reconcile", "shop") == 2
    assert "pipeline shop has no version yet" in capsys.readouterr().err
    assert run("reconcile", "shop", "--forget", "orders") == 0
    assert capsys.readouterr().out == (
        "shop has no state yet, and reads orders from what it holds now\n"
        "next: lockstep trigger shop --once, or lockstep run DIR --once\n"
    )


def test_no_broker_is_taken_for_granted(
    shop: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`plan` needs none; what is recorded or read is never that of a broker that happens to be there."""
    monkeypatch.delenv("LOCKSTEP_KAFKA")
    assert run("plan", shop) == 0
    capsys.readouterr()
    for words in (("deploy", shop), ("run", shop, "--once")):
        assert run(*words, "-o", "json") == 2
        error = json.loads(capsys.readouterr().out)["error"]
        assert error["type"] == "WrongUse"
        assert error["message"] == "pipeline shop names ${lockstep.kafka}, and no broker is known"
        assert (
            error["next_step"] == "set LOCKSTEP_KAFKA to the broker's address, or run `lockstep up`"
        )
        assert runtime.deployed(Settings.load()) == ()


def test_run_of_a_deployed_pipeline_refuses_before_it_starts_spark(
    shop: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("deploy", shop) == 0
    monkeypatch.delenv("LOCKSTEP_KAFKA")
    monkeypatch.setattr(operate, "spark_for", None)
    capsys.readouterr()
    assert run("run", shop, "--once") == 2
    assert "no broker is known" in capsys.readouterr().err
    # What is recorded can be read without one.
    assert run("steps", shop) == 0
    assert run("receipt", shop, "orders", "0", "17") == 0


def test_before_the_first_step_a_receipt_is_pending(
    shop: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("deploy", shop) == 0
    capsys.readouterr()
    assert run("receipt", shop, "orders", "0", "17") == 0
    assert capsys.readouterr().out == "source orders: pending, in no step yet\n"
    assert run("receipt", shop, "orders", "0", "17", "-o", "json") == 0
    (receipt,) = json.loads(capsys.readouterr().out)
    assert (receipt["status"], receipt["waiting"]) == ("pending", ["totals"])
    assert run("receipt", shop, "order", "0", "17", "-o", "json") == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert "does not read topic order" in error["message"]
    assert error["expected"] == "orders"


def test_a_pipeline_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("versions", "nobody") == 2
    assert "no pipeline nobody is deployed" in capsys.readouterr().err


def test_status_and_down_where_nothing_was_ever_started(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("status", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {part["state"] for part in found["parts"]} == {"not started"}
    assert found["pipelines"] == []
    assert run("down") == 0
    assert "nothing was running" in capsys.readouterr().out


def test_wrong_use_of_the_command_line(shop: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("versions") == 2
    assert "Missing argument" in capsys.readouterr().err
    assert run("run", shop, "--once", "--follow") == 2
    assert "exclude each other" in capsys.readouterr().err
    assert run("run", shop, "--until", "tomorrow") == 2
    assert "ISO 8601" in capsys.readouterr().err
    assert run("up", "--kafka-port", "70000") == 2
    assert "70000" in capsys.readouterr().err


def test_who_runs_for_long_maintains(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    class Recorded:
        """Stands for the pipeline: what is asked of it is looked at, not what it does."""

        project = SimpleNamespace(configuration={"lockstep.interval": "1 second"})

        def __getattr__(self, stage: str) -> Any:
            answer = SimpleNamespace(interval=None, behind=False, markers={})
            return lambda *_: calls.append(stage) or answer

        @contextmanager
        def held(self, _: object) -> Iterator[None]:
            calls.append("held")
            yield
            calls.append("given back")

    monkeypatch.setattr(operate, "_opened", lambda *_: nullcontext(Recorded()))
    assert run("run", shop, "--once") == 0
    assert calls == ["held", "plan", "publish", "given back"]
    calls.clear()
    monkeypatch.setattr(operate, "MAINTENANCE_SECONDS", 2)
    end = datetime.now(UTC) + timedelta(seconds=4)
    assert run("run", shop, "--until", end.isoformat()) == 0
    assert 0 < calls.count("maintain") < calls.count("publish")


def test_an_unexpected_error_says_what_to_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(runtime, "recorded", broken)
    assert run("versions", "shop", "-o", "json") == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["error"] == {"type": "ZeroDivisionError", "message": "planted"}
    assert "This is a bug in Lockstep" in shown.err
    assert "Traceback" in shown.err


def test_an_interrupt_has_its_own_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runtime, "recorded", interrupted)
    assert run("versions", "shop") == cli_main.INTERRUPTED


def test_tables_align_numbers_to_the_right() -> None:
    assert table(("name", "rows"), [("a", 5), ("bb", 12000)]) == (
        "name    rows\na          5\nbb    12,000"
    )


class FakeAirflow(BaseHTTPRequestHandler):
    """Signs in `admin` and knows one DAG, `shop`, whose run succeeds at the second question."""

    asked: ClassVar[list[tuple[str, Any]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, body))
        if self.path == "/auth/token":
            self._answer(201, {"access_token": "t0k3n"})
        elif self.headers["Authorization"] != "Bearer t0k3n":
            self._answer(401, {})
        elif self.path == "/api/v2/dags/shop/dagRuns":
            self._answer(200, {"dag_run_id": "manual__1", "state": "queued"})
        else:
            self._answer(404, {"detail": "no such DAG"})

    def do_GET(self) -> None:
        self._answer(200, {"dag_run_id": "manual__1", "state": "failed"})

    def _answer(self, code: int, body: object) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def airflow_url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The double's address, known to the command line."""
    server = HTTPServer(("127.0.0.1", 0), FakeAirflow)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    FakeAirflow.asked.clear()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("LOCKSTEP_AIRFLOW_URL", url)
    monkeypatch.setenv("LOCKSTEP_AIRFLOW_PASSWORD", "secret")
    yield url
    server.shutdown()
    thread.join()
    server.server_close()


def test_trigger_starts_a_run(airflow_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("trigger", "shop", "--until", "2026-01-01", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "pipeline": "shop",
        "run_id": "manual__1",
        "state": "queued",
        "url": f"{airflow_url}/dags/shop/runs/manual__1",
    }
    assert FakeAirflow.asked == [
        ("/auth/token", {"username": "admin", "password": "secret"}),
        (
            "/api/v2/dags/shop/dagRuns",
            {"logical_date": None, "conf": {"until": "2026-01-01T00:00:00+00:00"}},
        ),
    ]


@pytest.mark.usefixtures("airflow_url")
def test_trigger_tells_failure_and_absence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("trigger", "shop", "--wait") == 1
    assert "run manual__1 of pipeline shop failed" in capsys.readouterr().err
    assert run("trigger", "other") == 2
    assert "has no DAG of the pipeline other" in capsys.readouterr().err


def test_trigger_without_airflow(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("trigger", "shop") == 2
    assert "next: lockstep up" in capsys.readouterr().err
