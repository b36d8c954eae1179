"""`lockstep versions` and `lockstep rollback`, on a record whose tables nobody has made."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from control_builders import life

from lockstep import runtime
from lockstep.adapters.settings import Settings
from lockstep.adapters.sql_store import SqlStore
from lockstep.cli import main as cli_main
from lockstep.control.changes import (
    IntendPublish,
    Landed,
    RecordPublished,
    TrimSteps,
    TrimVersions,
)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The project that `init` writes, in a fresh installation."""
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LOCKSTEP_KAFKA", "127.0.0.1:1")
    folder = str(tmp_path / "shop")
    assert run("init", folder) == 0
    return folder


def run(*arguments: str) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as ended:
        cli_main.main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def with_versions(shop: str) -> Settings:
    """The deployed shop with three recorded versions, whose tables nobody has made."""
    assert run("deploy", shop) == 0
    settings = Settings.load()
    store = SqlStore(settings.store_url)
    for change in life(3)[1:]:
        if not isinstance(change, IntendPublish | RecordPublished | TrimVersions | TrimSteps):
            assert isinstance(store.apply("shop", change), Landed)
    return settings


def test_a_version_that_cannot_be_opened_says_which_tables_lack_it(
    shop: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with_versions(shop)
    capsys.readouterr()
    assert run("versions", "shop") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("can be opened")
    assert lines[1].endswith("yes")
    assert lines[2].endswith("no: t0, t1, t2")
    assert run("rollback", "shop", "--to-version", "2") == 2
    assert "version 2 cannot be opened" in capsys.readouterr().err


def test_a_rollback_is_asked_for_in_words_and_can_be_taken_back(
    shop: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = with_versions(shop)
    before = runtime.recorded("shop", settings)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert run("rollback", "shop", "--to-version", "0") == 2
    said = capsys.readouterr().err
    assert "pipeline shop was not rolled back: it was not approved" in said
    assert "next: lockstep rollback shop --to-version 0 --yes" in said
    assert "pipeline shop goes back to version 0, which ends at step -1" in said
    assert "dropped: 1..3" in said
    assert "steps 0..8, an interval for each version dropped" in said
    assert runtime.recorded("shop", settings) == before
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert run("rollback", "shop", "--to-version", "0") == 2, "nobody is there to say yes"
    assert runtime.recorded("shop", settings) == before
    capsys.readouterr()

    assert run("rollback", "shop", "--to-version", "0", "--yes", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["dropped"] == [1, 2, 3]
    after = runtime.recorded("shop", settings)
    assert (after.version.number, len(after.dropped), after.lease) == (0, 3, None)
    assert run("versions", "shop") == 0
    assert "steps 0..8 are replayed after a rollback" in capsys.readouterr().out
    # The tables that the versions name were never made, so there is nothing to return to.
    assert run("rollback", "shop", "--undo", "--yes") == 2
    assert "no version can be opened" in capsys.readouterr().err


def test_wrong_use_of_rollback(shop: str, capsys: pytest.CaptureFixture[str]) -> None:
    with_versions(shop)
    capsys.readouterr()
    assert run("rollback", "shop") == 2
    assert "--to-version and --undo exclude each other" in capsys.readouterr().err
    assert run("rollback", "shop", "--to-version", "3") == 2
    assert "3, which is the newest" in capsys.readouterr().err
    assert run("rollback", "shop", "--to-version", "9") == 2
    assert "one of the versions 0..2" in capsys.readouterr().err
    assert run("rollback", "shop", "--undo") == 2
    assert "has no rollback that could be taken back" in capsys.readouterr().err
    assert run("backfill", "shop", "--from", "yesterday", "--to", "2026-01-01") == 2
    assert "ISO 8601" in capsys.readouterr().err
