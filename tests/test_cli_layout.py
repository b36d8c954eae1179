"""`scale` and `layout`, on a store of their own: what is shown, what is recorded, what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from threading import Timer
from typing import Any
from xml.etree import ElementTree

import pytest

from lockstep.adapters.settings import Settings
from lockstep.adapters.sql_store import SqlStore
from lockstep.cli.main import main
from lockstep.control.changes import (
    BeginAttempt,
    CommitVersion,
    Deploy,
    Landed,
    RecordInterval,
)
from lockstep.control.layout.autoscaling import Load
from lockstep.control.model import AttemptState, Division, Interval, RunStatus, Version
from lockstep.sql.circuit import ProjectFiles

sys.path.insert(0, str(Path(__file__).parent / "control"))
from control_builders import SINKS, at, attempt, interval, slice_of

SPEC = """
name: p
storage: unused
libraries: [{glob: {include: sql/**}}]
configuration: {lockstep.partition_grouping: %s}
"""
SQL = """
CREATE TABLE s (id INT, a INT) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = 'b', subscribe = 'topic_s', 'format' = 'upsert', 'key' = 'id');
CREATE TABLE r (a INT) USING kafka OPTIONS ('kafka.bootstrap.servers' = 'b', subscribe = 'topic_r');
CREATE MATERIALIZED VIEW v AS SELECT a FROM s;
"""


def deploy(grouping: str = "partition") -> Deploy:
    files = ProjectFiles(SPEC % grouping, (("sql/a.sql", SQL),), "/projects/p")
    return Deploy(files, "i1", SINKS, ("r", "s"))


Capture = pytest.CaptureFixture[str]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlStore:
    """With pipeline `p`, of which nothing is recorded."""
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    made = SqlStore(Settings.load().store_url)
    assert isinstance(made.apply("p", deploy()), Landed)
    return made


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def text(capsys: Capture, *arguments: str) -> str:
    assert run(*arguments) == 0
    return capsys.readouterr().out


def result(capsys: Capture, *arguments: str) -> Any:
    return json.loads(text(capsys, *arguments, "-o", "json"))


def error(capsys: Capture, *arguments: str) -> str:
    assert run(*arguments) == 2
    return capsys.readouterr().err


@pytest.mark.usefixtures("store")
def test_a_pipeline_begins_without_workers(capsys: Capture) -> None:
    assert text(capsys, "layout", "show", "p") == (
        "layout 0, from step 0: no workers are named, as many tasks work as Spark has\n"
    )


def test_scaling_shows_who_owns_what(store: SqlStore, capsys: Capture) -> None:
    shown = text(capsys, "scale", "p", "--workers", "3", "--hosts", "2", "--shards", "8")
    assert shown.splitlines() == [
        "layout 0 to 1: nothing moves",
        "holds from step 0 on",
        "layout 1, from step 0: 3 workers on 2 hosts, 8 shards (fixed)",
        "worker  host    shards  of the hash space",
        "     0  host-0       3  ███·····",
        "     1  host-0       3  ···███··",
        "     2  host-1       2  ······██",
    ]
    assert "is so already" in text(capsys, "scale", "p", "--workers", "3")
    assert len(store.read("p").layouts) == 2


def test_what_a_change_moves_is_said_before_and_after(store: SqlStore, capsys: Capture) -> None:
    run("scale", "p", "--workers", "2", "--shards", "8")
    capsys.readouterr()
    tried = text(capsys, "scale", "p", "--workers", "4", "--hosts", "2", "--dry-run")
    assert "layout 1 to 2: 50.0% of the state changes its worker, 50.0% its host" in tried
    assert "nothing is changed" in tried
    assert len(store.read("p").layouts) == 2
    run("scale", "p", "--workers", "4", "--hosts", "2")
    run("layout", "replace-host", "p", "host-1", "host-7")
    run("layout", "move", "p", "3", "3")
    capsys.readouterr()
    rows = text(capsys, "layout", "history", "p").splitlines()
    assert [line.split() for line in rows[1:]] == [
        ["0", "0", "0", "0", "1", "0.0%", "0.0%"],
        ["1", "0", "2", "1", "8", "0.0%", "0.0%"],
        ["2", "0", "4", "2", "8", "50.0%", "50.0%"],
        ["3", "0", "4", "2", "8", "0.0%", "50.0%"],
        ["4", "0", "4", "2", "8", "12.5%", "12.5%"],
    ]
    moved = result(capsys, "layout", "diff", "p", "3", "4")
    assert (moved["moved"], moved["layout"]["epoch"]) == (0.125, 4)
    assert moved["ranges"] == [{"low": 24576, "high": 32768, "worker": 3}]
    assert "12.5% of the state changes its worker" in text(capsys, "layout", "diff", "p", "3", "4")


def test_a_change_waits_for_the_interval_under_way(store: SqlStore, capsys: Capture) -> None:
    store.apply("p", RecordInterval(interval(0, 3)))
    store.apply("p", BeginAttempt(attempt("a", 0, 2)))
    assert "holds once steps 0..2 are committed" in text(capsys, "scale", "p", "--workers", "2")
    assert result(capsys, "layout", "show", "p")["epoch"] == 0
    assert "layout 1, waits for" in text(capsys, "layout", "show", "p", "--epoch", "1")
    store.apply("p", CommitVersion(Version(1, "a", 2, 0, {}), ""))
    assert result(capsys, "layout", "show", "p")["from_step"] == 3


def test_now_does_not_wait(store: SqlStore, capsys: Capture) -> None:
    store.apply("p", RecordInterval(interval(0, 3)))
    store.apply("p", BeginAttempt(attempt("a", 0, 2)))
    run("scale", "p", "--workers", "2")
    capsys.readouterr()
    shown = result(capsys, "scale", "p", "--workers", "2", "--now")
    assert (shown["layout"]["epoch"], shown["layout"]["from_step"]) == (1, 0)
    assert store.read("p").attempts[0].state is AttemptState.ABANDONED


def test_a_cold_change_is_made_in_a_paused_pipeline(store: SqlStore, capsys: Capture) -> None:
    store.apply("p", RecordInterval(interval(0, 3)))
    store.apply("p", BeginAttempt(attempt("a", 0, 2)))
    commit = CommitVersion(Version(1, "a", 2, 0, {}), "")
    ended = Timer(0.5, lambda: store.apply("p", commit))
    ended.start()
    assert run("scale", "p", "--workers", "2", "--cold") == 0
    ended.join()
    said = capsys.readouterr()
    assert "holds from step 3 on" in said.out
    assert "is paused before step 3; to go on: lockstep resume p" in said.err
    state = store.read("p")
    assert (state.status, state.layout.epoch) == (RunStatus.PAUSED, 1)
    assert "both now and cold" in error(capsys, "scale", "p", "--workers", "3", "--cold", "--now")
    run("scale", "p", "--workers", "3", "--cold", "--dry-run")
    run("resume", "p")
    assert store.read("p").status is RunStatus.RUN


def test_who_reads_which_partition_is_shown_as_it_is_recorded(
    store: SqlStore, capsys: Capture
) -> None:
    """Of s, which began with two partitions, and r, whose number is no multiple of what it was."""
    first = slice_of("r", (0, 0, 1), (1, 0, 1)), slice_of("s", (0, 0, 1), (1, 0, 1))
    grown = (
        slice_of("r", (0, 1, 1), (1, 1, 1), (2, 0, 4)),
        slice_of("s", (0, 1, 1), (1, 1, 1), (2, 0, 0), (3, 0, 0)),
    )
    steps = Interval((Division(0, at(0), first), Division(1, at(1), grown)))
    assert isinstance(store.apply("p", RecordInterval(steps)), Landed)
    assert text(capsys, "layout", "show", "p").splitlines() == [
        "layout 0, from step 0: no workers are named, as many tasks work as Spark has",
        "",
        "source  partition  task         worker",
        "r               0  partition 0  -",
        "r               1  partition 1  -",
        "r               2  partition 0  -",
        "s               0  partition 0  -",
        "s               1  partition 1  -",
        "s               2  partition 0  -",
        "s               3  partition 1  -",
    ]
    run("scale", "p", "--workers", "2", "--now")
    capsys.readouterr()
    shown = result(capsys, "layout", "show", "p")["partitions"]
    assert [(one["source"], one["partition"], one["worker"]) for one in shown] == [
        *(("r", 0, 0), ("r", 1, 1), ("r", 2, 0)),
        *(("s", 0, 0), ("s", 1, 1), ("s", 2, 0), ("s", 3, 1)),
    ]
    before = result(capsys, "layout", "show", "p", "--epoch", "0")["partitions"]
    assert {one["worker"] for one in before} == {None}
    assert isinstance(store.apply("p", deploy("source-partition")), Landed)
    shown = result(capsys, "layout", "show", "p")["partitions"]
    assert [one["task"] for one in shown] == ["r 0", "r 1", "r 0", "s 0", "s 1", "s 0", "s 1"]
    assert {one["task"]: one["worker"] for one in shown} == {"r 0": 0, "s 0": 0, "r 1": 1, "s 1": 1}


def test_what_autoscaling_would_do_is_shown(store: SqlStore, capsys: Capture) -> None:
    assert result(capsys, "layout", "propose", "p") == {"loads": [], "proposal": None}
    base = ""
    for number in range(3):
        store.apply("p", RecordInterval(interval(3 * number, 3)))
        last, name = 3 * number + 2, f"a{number}"
        store.apply("p", BeginAttempt(attempt(name, 3 * number, last, base)))
        version = Version(number + 1, name, last, 0, {})
        store.apply("p", CommitVersion(version, base, Load(last, 0, 50.0, 51.5)))
        base = name
    shown = text(capsys, "layout", "propose", "p").splitlines()
    assert shown[1].split() == ["2", "0", "50.0", "51.5"]
    assert shown[-1].endswith("lockstep scale p --workers 4")
    assert "83% of the 60 s between two" in shown[-1]
    assert result(capsys, "layout", "propose", "p")["proposal"]["workers"] == 4


@pytest.mark.usefixtures("store")
def test_the_picture_has_each_part_of_each_worker(tmp_path: Path) -> None:
    run("scale", "p", "--workers", "3", "--hosts", "2", "--shards", "8")
    file = tmp_path / "layout.svg"
    run("layout", "show", "p", "--svg", str(file))
    drawn = ElementTree.fromstring(file.read_text("utf-8"))
    parts = [
        (float(one.attrib["x"]), float(one.attrib["width"]))
        for one in drawn.iter("{http://www.w3.org/2000/svg}rect")
        if one.attrib["fill"].startswith("#") and one.attrib["fill"] != "#eeeeee"
    ]
    assert [round(width) for _, width in parts] == [270, 270, 180]
    assert [left for left, _ in parts] == [166, 166 + 270, 166 + 540]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("scale", "p", "--workers", "2", "--hosts", "3"),
            "2 workers run on 1 to 2 hosts, not on 3",
        ),
        (("scale", "p", "--workers", "2", "--shards", "6"), "a power of two up to 65536 is needed"),
        (("scale", "p", "--workers", "2", "--dynamic", "2"), "between 0 and 1, not at 2"),
        (("scale", "p", "--workers", "2", "--dynamic", "x"), "--dynamic x"),
        (
            ("scale", "p", "--workers", "2", "--dynamic", "1/5", "--shards", "8"),
            "--shards and --dynamic exclude each other",
        ),
        (("layout", "move", "p", "0", "1"), "shard 0 cannot move to worker 1, which is not there"),
        (("layout", "replace-host", "p", "a", "b"), "no worker runs on host a"),
        (("layout", "show", "p", "--epoch", "4"), "pipeline p has no layout 4"),
        (("layout", "diff", "p", "0", "1"), "pipeline p has no layout 1"),
    ],
)
def test_what_does_not_fit_is_refused(
    store: SqlStore, capsys: Capture, arguments: tuple[str, ...], message: str
) -> None:
    found = error(capsys, *arguments)
    assert message in found
    assert "lockstep layout " in found
    assert len(store.read("p").layouts) == 1
