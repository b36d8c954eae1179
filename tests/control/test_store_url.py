"""The control store's password is in no message; its file is its user's alone."""

from __future__ import annotations

import stat
import sys
import traceback
from pathlib import Path

import pytest
from control_builders import deploy, store_url

from lockstep.adapters.sql_store import SqlStore
from lockstep.errors import LockstepError, Unreachable, WrongUse

WORDS = ("hidden", "veiled")


def said_of(error: LockstepError) -> str:
    """All that a terminal, a log or a page of Airflow may show of it."""
    return str(error) + "".join(traceback.format_exception(error))


def refusal_of(url: str) -> WrongUse:
    with pytest.raises(WrongUse) as refused:
        SqlStore(url)
    assert not [word for word in WORDS if word in said_of(refused.value)]
    return refused.value


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgres://me:hidden@db/control", "postgres://***@db/control"),
        ("mysql+pymysql://me:hidden@db/control", "mysql+pymysql://***@db/control"),
        ("postgresql+none://me:hidden@db/control", "postgresql+none://***@db/control"),
        ("postgresql+none://me:hid@veiled@db/c", "postgresql+none://***@db/c"),
        ("postgresql+none://me:h@/veiled@db/c", "postgresql+none://***@db/c"),
        ("postgresql+none://db/c?u=m&password=hidden", "postgresql+none://db/c?u=m&password=***"),
        ("sqlite://me:hidden@db/control.db", "sqlite://***@db/control.db"),
    ],
)
def test_a_url_that_cannot_be_used_is_shown_without_its_password(url: str, shown: str) -> None:
    assert refusal_of(url).message == f"the control store's URL '{shown}' cannot be used"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql+psycopg://me:hid@den:veiled@db/control", "postgresql+psycopg://…"),
        ("postgresql+psycopg://me:hidden", "postgresql+psycopg://…"),
        ("postgresql:me:hidden@db/control", "…"),
        ("host=db user=me password=hidden", "…"),
    ],
)
def test_what_is_no_url_is_shown_up_to_where_a_password_may_be(url: str, shown: str) -> None:
    refused = refusal_of(url)
    assert refused.message == f"the control store's URL '{shown}' cannot be used"
    assert "in a password, @ is written %40" in refused.found


def test_what_is_of_postgresql_is_told_how_to_begin() -> None:
    for scheme in ("postgres", "postgresql+none"):
        assert refusal_of(f"{scheme}://me:hidden@db/control").next_step == (
            f"begin LOCKSTEP_STORE_URL with postgresql+psycopg:// in place of {scheme}://"
        )


def test_a_driver_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    refused = refusal_of("postgresql+psycopg://me:hidden@db/no-driver")
    assert "psycopg" in refused.found
    assert refused.next_step == "install psycopg, or set LOCKSTEP_STORE_URL"


def test_a_database_that_is_away_is_shown_without_its_password() -> None:
    store = SqlStore("postgresql+psycopg://me:hidden@127.0.0.1:1/control?sslpassword=veiled")
    with pytest.raises(Unreachable) as away:
        store.pipelines()
    assert away.value.message == (
        "the control store postgresql+psycopg://***@127.0.0.1:1/control?sslpassword=*** "
        "does not answer"
    )
    assert not [word for word in WORDS if word in said_of(away.value)]


def rights(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


def test_a_store_is_made_for_its_user_alone(tmp_path: Path) -> None:
    """It holds every project's text, with what its sources sign in by."""
    store = SqlStore(store_url(tmp_path))
    store.apply("p", deploy())
    assert rights(tmp_path) == {"control.db": 0o600}
    with store.at_hand():
        store.apply("q", deploy())
        beside = ("control.db-wal", "control.db-shm")
        assert rights(tmp_path) == dict.fromkeys(("control.db", *beside), 0o600)


def test_the_rights_of_a_store_that_is_there_are_its_owner_s(tmp_path: Path) -> None:
    """A group may share it."""
    SqlStore(store_url(tmp_path)).apply("p", deploy())
    (tmp_path / "control.db").chmod(0o660)
    SqlStore(store_url(tmp_path)).apply("q", deploy())
    assert rights(tmp_path) == {"control.db": 0o660}
