"""The store under faults: killed between statements, raced by processes, locked, broken."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from control_builders import FILES, SINKS, at, attempt, deploy, interval, life, store_url
from sqlalchemy import event

from lockstep.adapters import sql_tables
from lockstep.adapters.memory_store import MemoryStore
from lockstep.adapters.sql_store import SqlStore
from lockstep.control.changes import (
    BeginAttempt,
    CommitVersion,
    Deploy,
    IntendPublish,
    Landed,
    Outcome,
    RecordInterval,
    Rejected,
    SetDesired,
    TakeLease,
)
from lockstep.control.model import AttemptState, PipelineState, RunState, SinkState, Version
from lockstep.errors import NotDeployed, StateDiverged, Unreachable, WrongUse

FORK = multiprocessing.get_context("fork")


def in_processes(count: int, act: Callable[[int, Any], object]) -> list[Any]:
    """What `act(number, barrier)` gives in each of several processes that start together."""
    answers, barrier = FORK.Queue(), FORK.Barrier(count)
    processes = [
        FORK.Process(target=lambda n=n: answers.put((n, act(n, barrier)))) for n in range(count)
    ]
    for process in processes:
        process.start()
    found = dict(answers.get(timeout=60) for _ in processes)
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    return [found[n] for n in range(count)]


def model(intervals: int, revision: int) -> tuple[PipelineState, MemoryStore]:
    """The state after so many changes of an undisturbed life, in memory."""
    memory = MemoryStore()
    for change in life(intervals)[:revision]:
        assert isinstance(memory.apply("p", change), Landed)
    return memory.read("p"), memory


def check_against_model(folder: Path, intervals: int, at_least: int, at_most: int) -> None:
    with sqlite3.connect(folder / "control.db") as plain:
        assert plain.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    plain.close()
    store = SqlStore(store_url(folder))
    state = store.read("p")
    assert at_least <= state.revision <= at_most
    expected, memory = model(intervals, state.revision)
    assert state == expected
    assert store.divisions("p", 0, 10**9) == memory.divisions("p", 0, 10**9)
    # What was left can be carried on.
    for change in life(intervals)[state.revision :][:12]:
        assert store.apply("p", change) == memory.apply("p", change)


def live_until_killed(folder: Path, intervals: int, statements: int) -> None:
    """Make every change of a life, and die right before one of the statements."""
    store, count = SqlStore(store_url(folder)), 0

    def die_in_time(*_: object) -> None:
        nonlocal count
        count += 1
        if count > statements:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(store._engine, "before_cursor_execute", die_in_time)
    event.listen(store._engine, "commit", die_in_time)
    for change in life(intervals):
        assert isinstance(store.apply("p", change), Landed)


def killed_at(folder: Path, intervals: int, statements: int) -> bool:
    child = FORK.Process(target=live_until_killed, args=(folder, intervals, statements))
    child.start()
    child.join(60)
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode != 0


def test_a_kill_between_any_two_statements_leaves_a_state_of_the_model(tmp_path: Path) -> None:
    intervals, statements, kills = 4, 0, 0
    pace = random.Random(5)
    while True:
        folder = tmp_path / str(statements)
        folder.mkdir()
        if not killed_at(folder, intervals, statements):
            break
        kills += 1
        if SqlStore(store_url(folder)).pipelines():
            check_against_model(folder, intervals, 1, len(life(intervals)))
        # All of the first ones, where tables are made and rows are first written, then some.
        statements += 1 if statements < 40 else pace.randrange(15, 45)
    assert kills > 45


def test_what_was_answered_survives_a_kill_at_any_moment(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import sys
        from control_builders import life
        from lockstep.adapters.sql_store import SqlStore
        store = SqlStore(sys.argv[1])
        for number, change in enumerate(life(200)):
            store.apply("p", change)
            print(number + 1, flush=True)
    """)
    pace = random.Random(7)
    for round_ in range(4):
        folder = tmp_path / str(round_)
        folder.mkdir()
        child = subprocess.Popen(
            [sys.executable, "-c", program, store_url(folder)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        )
        assert child.stdout is not None
        answered = int(child.stdout.readline())
        time.sleep(pace.uniform(0.0, 0.4))
        child.kill()
        answered = max([answered, *(int(line) for line in child.stdout if line.endswith(b"\n"))])
        child.wait()
        check_against_model(folder, 200, answered, answered + 1)


def test_two_processes_begin_and_commit_and_one_lands(tmp_path: Path) -> None:
    url, rounds = store_url(tmp_path), 12
    SqlStore(url).apply("p", deploy())

    def work(number: int, barrier: Any) -> list[tuple[Outcome, Outcome]]:
        store, answers = SqlStore(url), []
        for round_ in range(rounds):
            barrier.wait()
            store.apply("p", RecordInterval(interval(round_, 1)))
            base = store.read("p").version.attempt
            barrier.wait()
            name = f"r{round_}_{number}"
            begun = store.apply("p", BeginAttempt(attempt(name, round_, round_, base)))
            barrier.wait()
            version = Version(round_ + 1, name, round_, 0, {"t": number})
            answers.append((begun, store.apply("p", CommitVersion(version, base))))
        return answers

    answers = in_processes(2, work)
    state = SqlStore(url).read("p")
    assert [version.number for version in state.versions] == list(range(rounds + 1))
    for round_ in range(rounds):
        outcomes = [answers[number][round_] for number in range(2)]
        assert all(isinstance(begun, Landed) for begun, _ in outcomes)
        landed = [n for n, (_, done) in enumerate(outcomes) if isinstance(done, Landed)]
        assert [state.versions[round_ + 1].tables["t"]] == landed
        (lost,) = [done for _, done in outcomes if isinstance(done, Rejected)]
        assert (
            f"only a running attempt commits; attempt r{round_}_{1 - landed[0]} is" in lost.reason
        )
    ends = [a.state for a in state.attempts]
    assert ends.count(AttemptState.COMMITTED) == ends.count(AttemptState.ABANDONED) == rounds


def test_changes_of_several_processes_are_not_lost(tmp_path: Path) -> None:
    url, sinks = store_url(tmp_path), tuple(SinkState(f"s{n}", "v", "kafka") for n in range(4))
    store, steps = SqlStore(url), 20
    for change in life(1, steps)[:5]:
        store.apply("p", Deploy(FILES, "i1", sinks) if isinstance(change, Deploy) else change)
    before = store.read("p").revision

    def work(number: int, barrier: Any) -> int:
        mine = SqlStore(url)
        barrier.wait()
        return sum(
            isinstance(mine.apply("p", IntendPublish(f"s{number}", 0, step)), Landed)
            for step in range(steps)
        )

    assert in_processes(4, work) == [steps] * 4
    after = store.read("p")
    assert after.revision == before + 4 * steps
    assert [s.intent.last_step for s in after.sinks if s.intent] == [steps - 1] * 4


def test_processes_that_meet_an_empty_folder_make_one_store(tmp_path: Path) -> None:
    url = store_url(tmp_path / "not" / "there")

    def work(number: int, barrier: Any) -> str:
        barrier.wait()
        outcome = SqlStore(url).apply("p", deploy(f"i{number}"))
        assert isinstance(outcome, Landed)
        return outcome.state.incarnation

    assert len(set(in_processes(5, work))) == 1


def test_one_of_many_holders_takes_the_lease(tmp_path: Path) -> None:
    url = store_url(tmp_path)
    SqlStore(url).apply("p", deploy())

    def work(number: int, barrier: Any) -> bool:
        store = SqlStore(url)
        barrier.wait()
        return isinstance(store.apply("p", TakeLease(f"h{number}", at(0), at(60))), Landed)

    assert in_processes(5, work).count(True) == 1


def test_tables_of_the_code_are_those_of_the_migrations(tmp_path: Path) -> None:
    store = SqlStore(store_url(tmp_path))
    assert store.pipelines() == ()
    with store._engine.connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, sql_tables.METADATA) == []
    config = Config()
    folder = Path(sql_tables.__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder))
    assert ScriptDirectory.from_config(config).get_current_head() == sql_tables.HEAD


def test_sqlite_writes_are_durable_and_readers_do_not_wait(tmp_path: Path) -> None:
    store = SqlStore(store_url(tmp_path))
    store.apply("p", deploy())
    with store._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    writer = sqlite3.connect(tmp_path / "control.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("UPDATE pipelines SET desired = 'pause'")
    assert store.read("p").desired is RunState.RUN
    writer.execute("COMMIT")
    writer.close()
    assert store.read("p").desired is RunState.PAUSE


def test_a_store_at_hand_brings_nothing_home_until_it_is_left(tmp_path: Path) -> None:
    """SQLite empties its log, and drops it, where the last connection is closed."""
    store, log = SqlStore(store_url(tmp_path)), tmp_path / "control.db-wal"
    store.apply("p", deploy())
    assert not log.exists()
    with store.at_hand():
        store.apply("q", deploy())
        assert log.stat().st_size > 0
        assert SqlStore(store_url(tmp_path)).pipelines() == ("p", "q")
    assert not log.exists()
    assert store.pipelines() == ("p", "q")


def test_a_store_that_does_not_answer_is_not_at_hand(tmp_path: Path) -> None:
    (tmp_path / "control.db").mkdir()
    with pytest.raises(Unreachable), SqlStore(store_url(tmp_path)).at_hand():
        pass


def test_up_to_date_tables_are_used_without_alembic(tmp_path: Path) -> None:
    SqlStore(store_url(tmp_path)).apply("p", deploy())
    program = (
        "import sys; from lockstep.adapters.sql_store import SqlStore; "
        "SqlStore(sys.argv[1]).read('p'); print('alembic' in sys.modules)"
    )
    ran = [sys.executable, "-c", program, store_url(tmp_path)]
    assert subprocess.run(ran, capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_database_that_cannot_be_opened_is_unreachable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for url in (store_url(tmp_path / "file"), f"sqlite:///{tmp_path}"):
        with pytest.raises(Unreachable) as failed:
            SqlStore(url).read("p")
        assert failed.value.message == f"the control store {url} does not answer"
        assert "LOCKSTEP_STORE_URL" in failed.value.next_step


def test_a_file_that_is_no_database_is_unreachable(tmp_path: Path) -> None:
    (tmp_path / "control.db").write_text("something else, and long enough to be looked at" * 99)
    with pytest.raises(Unreachable) as failed:
        SqlStore(store_url(tmp_path)).apply("p", deploy())
    assert "not a database" in failed.value.found


def test_a_locked_database_is_unreachable_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockstep.adapters.sql_store._BUSY_TIMEOUT_SECONDS", 0.2)
    store = SqlStore(store_url(tmp_path))
    store.apply("p", deploy())
    before = store.read("p")
    other = sqlite3.connect(tmp_path / "control.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unreachable, match="database is locked"):
        store.apply("p", SetDesired(RunState.PAUSE))
    other.close()
    assert store.read("p") == before


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://x/y", "nonsense"])
def test_urls_that_cannot_be_used_are_refused(url: str) -> None:
    with pytest.raises(WrongUse) as refused:
        SqlStore(url)
    assert refused.value.message == f"the control store's URL '{url}' cannot be used"
    assert "postgresql+psycopg://" in refused.value.expected


def test_tables_of_a_newer_lockstep_are_left_alone(tmp_path: Path) -> None:
    SqlStore(store_url(tmp_path)).apply("p", deploy())
    with sqlite3.connect(tmp_path / "control.db") as plain:
        plain.execute("UPDATE alembic_version SET version_num = '9999'")
    plain.close()
    with pytest.raises(StateDiverged) as refused:
        SqlStore(store_url(tmp_path)).read("p")
    assert "was made by a newer Lockstep" in refused.value.message
    assert refused.value.found == "revision 9999"


@pytest.mark.parametrize("kind", ["sql", "memory"])
def test_what_is_not_deployed_is_said_by_name(tmp_path: Path, kind: str) -> None:
    store = SqlStore(store_url(tmp_path)) if kind == "sql" else MemoryStore()
    store.apply("other", Deploy(FILES, "i", SINKS))
    for act in (
        lambda: store.read("p"),
        lambda: store.apply("p", SetDesired(RunState.RUN)),
        lambda: store.divisions("p", 0, 1),
        lambda: store.versions("p"),
    ):
        with pytest.raises(NotDeployed) as refused:
            act()
        assert refused.value.message == "no pipeline p is deployed"
        assert refused.value.found == "other"
    assert store.pipelines() == ("other",)
    assert store.apply("p", deploy("")) == Rejected(
        "the first deploy of p needs an incarnation", None
    )
