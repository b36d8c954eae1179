"""spark-submit as an engine: what is submitted, and how the result file is believed."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from airflow_fakes import job

from lockstep.adapters.settings import Settings
from lockstep.adapters.submit import (
    Launch,
    SubmitArguments,
    SubmitEngine,
    submit_arguments,
    submit_by_subprocess,
)
from lockstep.control import codec
from lockstep.control.job import (
    IntervalResult,
    Placement,
    PublishJob,
    PublishResult,
    TableWrite,
)
from lockstep.control.layout.layouts import Layout, after
from lockstep.control.layout.scaling import scaled
from lockstep.control.ports import Progress
from lockstep.errors import BadRecord, EngineFailed, Refused, SourceChanged

RESULT = IntervalResult({"counts": 5}, (TableWrite("counts", "a1:counts", 5, 9),), {"append": 0.5})


def named(arguments: SubmitArguments, option: str) -> Path:
    return Path(arguments.arguments[arguments.arguments.index(option) + 1])


def answering(answer: object) -> Launch:
    """A driver that writes this answer, or none where it is None."""

    def launch(arguments: SubmitArguments, progress: Progress) -> str:
        progress("working")
        if answer is not None:
            named(arguments, "--result").write_text(json.dumps(answer))
        return "java.lang.OutOfMemoryError"

    return launch


def engine(launch: Launch) -> SubmitEngine:
    return SubmitEngine(Settings.load({}), launch, jars=lambda: ["/jars/a.jar", "/jars/b.jar"])


def test_a_job_goes_out_whole_and_its_result_comes_back() -> None:
    seen: list[object] = []

    def launch(arguments: SubmitArguments, progress: Progress) -> str:
        file = named(arguments, "--job")
        seen.append(json.loads(file.read_text()))
        seen.append(stat.S_IMODE(file.parent.stat().st_mode))
        return answering({"result": codec.encode(RESULT)})(arguments, progress)

    lines: list[str] = []
    assert engine(launch).run(job(), lines.append) == RESULT
    assert seen[0] == {"kind": "IntervalJob", "job": codec.encode(job())}
    # A job carries the catalog's credentials.
    assert seen[1] == 0o700
    assert lines == ["working"]


def test_publishing_is_a_job_of_another_kind() -> None:
    result = PublishResult({"counts": 5}, {"counts": 9}, {"counts": 0.5})
    whole = job()
    publishing = PublishJob("shop", "9f", 1, 5, {"counts": 5}, (), whole.files, {}, whole.catalog)
    back = engine(answering({"result": codec.encode(result)})).publish(publishing, print)
    assert back.markers == {"counts": 5}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "BadRecord", "exit_code": 1}, BadRecord),
        ({"type": "SourceChanged", "exit_code": 2}, SourceChanged),
        ({"type": "ProjectError", "exit_code": 2}, Refused),
        ({"type": "NotSupported", "exit_code": 2}, Refused),
        ({"type": "FromAnotherVersion", "exit_code": 1}, EngineFailed),
        ({"type": "FromAnotherVersion", "exit_code": 2}, Refused),
        ({"type": "annotations", "exit_code": 1}, EngineFailed),
    ],
)
def test_the_driver_s_error_is_raised_here(error: dict[str, object], kind: type) -> None:
    written = {"message": "orders is wrong", "expected": "x", "found": "y", "next_step": "z"}
    with pytest.raises(kind) as raised:
        engine(answering({"error": {**written, **error}})).run(job(), print)
    assert type(raised.value) is kind
    assert str(raised.value) == "orders is wrong\n  expected: x\n  found: y\n  next: z"


def test_a_driver_that_died_is_a_failure_with_its_last_words() -> None:
    with pytest.raises(EngineFailed, match="ended without an answer") as failed:
        engine(answering(None)).run(job(), print)
    assert "OutOfMemoryError" in failed.value.found


def test_nothing_is_left_of_a_job() -> None:
    folders: list[Path] = []

    def launch(arguments: SubmitArguments, progress: Progress) -> str:
        folders.append(named(arguments, "--job").parent)
        return answering(None)(arguments, progress)

    with pytest.raises(EngineFailed):
        engine(launch).run(job(), print)
    assert not folders[0].exists()


def test_the_command_line_names_what_is_installed_here(tmp_path: Path) -> None:
    arguments = submit_arguments(tmp_path / "j", tmp_path / "r", ["/jars/a.jar", "/jars/b.jar"])
    command = arguments.command("local[2]")
    assert command[:5] == ["spark-submit", "--master", "local[2]", "--deploy-mode", "client"]
    assert command[command.index("--jars") + 1] == "/jars/a.jar,/jars/b.jar"
    assert command[-5:] == [
        arguments.application,
        *("--job", str(tmp_path / "j")),
        *("--result", str(tmp_path / "r")),
    ]
    assert Path(arguments.application).name == "run_interval.py"
    assert arguments.environment["PYSPARK_PYTHON"] == sys.executable
    log = arguments.conf["spark.driver.extraJavaOptions"].removeprefix(
        "-Dlog4j2.configurationFile=file:"
    )
    assert Path(log).is_file()


def test_a_layout_asks_for_its_hosts_and_workers() -> None:
    asked: list[Mapping[str, str]] = []

    def launch(arguments: SubmitArguments, progress: Progress) -> str:
        asked.append(arguments.conf)
        return answering(None)(arguments, progress)

    layout = after(Layout(), *scaled(Layout(), workers=5, hosts=2))
    for placement in (None, Placement.of(layout)):
        with pytest.raises(EngineFailed):
            engine(launch).run(replace(job(), placement=placement), print)
    plain, placed = asked
    assert not [key for key in plain if "executor." in key or "dynamicAllocation" in key]
    assert placed.items() - plain.items() == {
        ("spark.dynamicAllocation.enabled", "false"),
        ("spark.executor.instances", "2"),
        ("spark.executor.cores", "3"),
        ("spark.cores.max", "6"),
    }


@pytest.fixture
def on_path(tmp_path: Path) -> Callable[[str], SubmitArguments]:
    """Put a spark-submit made of shell lines first on the path."""

    def make(script: str) -> SubmitArguments:
        program = tmp_path / "spark-submit"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        path = os.pathsep.join((str(tmp_path), os.environ["PATH"]))
        # The program is looked up on the path of the child's environment.
        return SubmitArguments("app.py", ("x",), {}, (), {"PATH": path, "MARK": "set"})

    return make


def test_a_child_s_lines_are_progress_and_its_end_is_kept(
    on_path: Callable[[str], SubmitArguments],
) -> None:
    lines: list[str] = []
    arguments = on_path('echo "$MARK $*"; for i in $(seq 40); do echo $i >&2; done; exit 2')
    tail = submit_by_subprocess("local[2]")(arguments, lines.append)
    assert lines[0] == "set --master local[2] --deploy-mode client app.py x"
    assert lines[1:] == [str(i) for i in range(1, 41)]
    assert tail.splitlines() == [str(i) for i in range(11, 41)]


def test_a_child_does_not_outlive_the_one_who_waits(
    on_path: Callable[[str], SubmitArguments],
) -> None:
    arguments = on_path("echo $$; exec sleep 600")
    pids: list[int] = []

    def interrupted(line: str) -> None:
        pids.append(int(line))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        submit_by_subprocess("yarn")(arguments, interrupted)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_the_kind_of_a_job_must_be_known_to_the_entry_point(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps({"kind": "Sweep", "job": {}}))
    application = submit_arguments(tmp_path, tmp_path, []).application
    files = ("--job", str(tmp_path / "job.json"), "--result", str(tmp_path / "result.json"))
    ended = subprocess.run(
        [sys.executable, application, *files], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2, ended.stderr
    assert "holds no job of Lockstep" in ended.stderr
    error = json.loads((tmp_path / "result.json").read_text())["error"]
    assert (error["type"], error["exit_code"]) == ("WrongUse", 2)
