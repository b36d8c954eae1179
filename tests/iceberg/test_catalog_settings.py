"""The two sides of one catalog: what Spark and what PyIceberg are told, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.adapters.catalogs import catalog_settings
from lockstep.adapters.iceberg import IcebergState
from lockstep.adapters.settings import Settings
from lockstep.control.job import CopySettings
from lockstep.errors import Unreachable, WrongUse


def of(tmp_path: Path, **keys: str):
    settings = Settings.load({"LOCKSTEP_HOME": str(tmp_path)})
    return catalog_settings(
        "lake", "shop", {f"lockstep.catalog.{k}": v for k, v in keys.items()}, settings
    )


def test_the_default_is_one_sqlite_file_for_both(tmp_path: Path) -> None:
    catalog = of(tmp_path)
    assert catalog.spark["type"] == "jdbc"
    assert catalog.spark["uri"].startswith(f"jdbc:sqlite:{tmp_path}/catalog.db?busy_timeout=")
    assert "journal_mode=WAL" in catalog.spark["uri"]
    assert catalog.spark["jdbc.schema-version"] == "V1"
    assert catalog.spark["cache-enabled"] == "false"
    assert catalog.pyiceberg["uri"].startswith(f"sqlite:///{tmp_path}/catalog.db?timeout=")
    assert catalog.spark["warehouse"] == catalog.pyiceberg["warehouse"]


def test_a_rest_catalog_keeps_its_keys_and_translates_those_of_s3(tmp_path: Path) -> None:
    catalog = of(
        tmp_path,
        uri="https://catalog.example/api",
        warehouse="prod",
        credential="id:secret",
        **{"s3.region": "eu-west-1", "s3.access-key-id": "k"},
    )
    assert catalog.pyiceberg["type"] == catalog.spark["type"] == "rest"
    assert catalog.spark["credential"] == "id:secret"
    assert catalog.spark["client.region"] == catalog.pyiceberg["s3.region"] == "eu-west-1"
    assert catalog.spark["io-impl"].endswith("S3FileIO")
    assert "s3.region" not in catalog.spark


def test_postgresql_gives_its_password_to_jdbc_apart_from_the_address(tmp_path: Path) -> None:
    catalog = of(
        tmp_path, uri="postgresql+psycopg2://me:p%40ss@db.example:6543/lake", warehouse="s3://b/w"
    )
    assert catalog.spark["uri"] == "jdbc:postgresql://db.example:6543/lake"
    assert catalog.spark["jdbc.user"] == "me"
    assert catalog.spark["jdbc.password"] == "p@ss"
    assert catalog.pyiceberg["uri"].startswith("postgresql+psycopg2://me:p%40ss@")


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (
            {"type": "hive", "uri": "thrift://h", "warehouse": "w"},
            "lockstep.catalog.type is 'hive'",
        ),
        ({"uri": "http://h"}, "lockstep.catalog.warehouse is missing"),
        ({"warehouse": "file:///w"}, "lockstep.catalog.uri is missing"),
        ({"uri": "mysql://h/d", "warehouse": "w"}, "a database that the catalog cannot be in"),
        ({"uri": "sqlite://", "warehouse": "w"}, "names no file"),
    ],
)
def test_refusals_name_the_key(tmp_path: Path, keys: dict[str, str], says: str) -> None:
    with pytest.raises(WrongUse, match=says):
        of(tmp_path, **keys)


@pytest.mark.parametrize(("catalog", "database"), [("spark_catalog", "d"), ("lake", "a.b")])
def test_refusals_name_catalog_and_database(tmp_path: Path, catalog: str, database: str) -> None:
    with pytest.raises(WrongUse, match=r"spark-pipeline\.yml"):
        catalog_settings(catalog, database, {}, Settings.load({"LOCKSTEP_HOME": str(tmp_path)}))


@pytest.mark.parametrize(
    "keys",
    [
        {"uri": "sqlite:////nowhere/at/all/catalog.db", "warehouse": "file:///nowhere"},
        {"uri": "http://127.0.0.1:9/api", "warehouse": "w"},
    ],
)
def test_a_catalog_that_does_not_answer_is_named(tmp_path: Path, keys: dict[str, str]) -> None:
    state = IcebergState(of(tmp_path, **keys))
    with pytest.raises(Unreachable, match="catalog lake does not answer"):
        state.tables()
    with pytest.raises(Unreachable, match="catalog lake does not answer"):
        state.refs("orders")


def test_no_password_stands_in_a_message(tmp_path: Path) -> None:
    catalog = of(tmp_path, uri="postgresql+nodriver://me:hidden@db/lake", warehouse="w")
    with pytest.raises(Unreachable) as refused:
        IcebergState(catalog).tables()
    assert "hidden" not in str(refused.value)
    with pytest.raises(WrongUse, match="without a scheme") as unknown:
        of(tmp_path, uri="//me:hidden@db/lake", warehouse="w")
    assert "hidden" not in str(unknown.value)


def test_copies_are_kept_at_home_as_far_as_the_settings_say(tmp_path: Path) -> None:
    def with_copies(**environment: str):
        settings = Settings.load({"LOCKSTEP_HOME": str(tmp_path), **environment})
        return catalog_settings("lake", "shop", {}, settings).copies

    assert with_copies() == CopySettings(f"{tmp_path}/copies", 16 << 30)
    assert with_copies(LOCKSTEP_COPIES_GIB="0.5") == CopySettings(f"{tmp_path}/copies", 1 << 29)
    assert with_copies(LOCKSTEP_COPIES_GIB="0") is None
    for wrong in ("much", "-1", "inf", "nan"):
        with pytest.raises(WrongUse, match="LOCKSTEP_COPIES_GIB"):
            with_copies(LOCKSTEP_COPIES_GIB=wrong)
