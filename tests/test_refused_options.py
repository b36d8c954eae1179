"""Statements that read well, and that no stage could use or nobody would expect to be run as they are:
a plan and a deploy refuse them, before any step is recorded. What was deployed when nobody looked can be
read, and replaced."""

from __future__ import annotations

from pathlib import Path

import pytest
from shop_project import installed, written

from lockstep import deploying, runtime
from lockstep.adapters.settings import Settings
from lockstep.adapters.sql_store import SqlStore
from lockstep.control.changes import Deploy, Landed
from lockstep.errors import LockstepError, ProjectError, WrongUse
from lockstep.sql.project import read_project_files

SQL = """\
CREATE TABLE orders (a INT, b INT) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = 'b', subscribe = 'orders'%s);
CREATE MATERIALIZED VIEW w AS SELECT a, b AS Amount FROM orders;
CREATE SINK out FROM W USING kafka OPTIONS ('kafka.bootstrap.servers' = 'b', topic = 'o'%s);
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return installed(tmp_path / "home")


def write(folder: Path, of_source: str = "", of_sink: str = "") -> str:
    return written(folder, SQL % (of_source, of_sink))


def refusal(folder: str, settings: Settings) -> LockstepError:
    """What a plan and a deploy say alike, after which nothing is recorded."""
    found = []
    for action in (deploying.propose, deploying.deploy):
        with pytest.raises((ProjectError, WrongUse)) as refused:
            action(folder, settings)
        found.append(refused.value)
    assert str(found[0]) == str(found[1])
    assert runtime.deployed(settings) == ()
    return found[0]


@pytest.mark.parametrize("start", ["5", "", "first", '{"orders": {"0": 5}}'])
def test_a_source_begins_at_either_end(tmp_path: Path, settings: Settings, start: str) -> None:
    error = refusal(write(tmp_path, f", startingOffsets = '{start}'"), settings)
    assert str(error) == (
        "sql/shop.sql:1:1: orders has an option 'startingOffsets' that can't be read\n"
        "  expected: 'earliest' (the first record that the topic holds) or 'latest' (the first one that "
        "is sent after the first plan)\n"
        f"  found: {start or 'nothing'}\n"
        "  next: write one of the two; to leave out others of its records, declare 'metadata' = "
        "'offset AS o', and filter by that in a view"
    )


@pytest.mark.parametrize("url", ["registry:8081", "http:/registry", "ftp://registry", ""])
def test_a_registry_has_an_address(tmp_path: Path, settings: Settings, url: str) -> None:
    options = f", format = 'avro', 'schema.registry.url' = '{url}'"
    error = refusal(write(tmp_path, options), settings)
    assert str(error) == (
        "sql/shop.sql:1:1: orders has an option 'schema.registry.url' that can't be read\n"
        "  expected: an address that begins with http:// or https://\n"
        f"  found: {url or 'nothing'}\n"
        "  next: write it as 'http://host:8081'"
    )


@pytest.mark.parametrize("shards", ["abc", "0", "-1", "1.5", "", " 2"])
def test_shards_are_a_number(tmp_path: Path, settings: Settings, shards: str) -> None:
    error = refusal(write(tmp_path, of_sink=f", shards = '{shards}'"), settings)
    assert str(error) == (
        "sql/shop.sql:4:1: out has an option 'shards' that can't be read\n"
        "  expected: a whole number, from 1 to the partitions of the topic\n"
        f"  found: {shards or 'nothing'}\n"
        "  next: write 'shards' = '2' for two producers, or leave it out for one"
    )


@pytest.mark.parametrize("key", ["c", "a, C", "a b"])
def test_a_sinks_key_is_of_columns_of_its_view(
    tmp_path: Path, settings: Settings, key: str
) -> None:
    error = refusal(write(tmp_path, of_sink=f", key = '{key}'"), settings)
    assert error.message == "sql/shop.sql:4:1: out has an option 'key' that can't be read"
    assert error.expected.startswith("columns of w, with commas between: ")
    assert {"a", "Amount"} <= set(error.expected.replace(":", ",").split(", "))
    assert error.found == key.removeprefix("a, ")
    assert error.next_step == "correct the name, or have the view w give a column of that name"


@pytest.mark.parametrize("key", ["", ", key = ''", ", key = ' ,'"])
def test_an_upsert_has_a_key(tmp_path: Path, settings: Settings, key: str) -> None:
    error = refusal(write(tmp_path, of_sink=f", format = 'Upsert'{key}"), settings)
    assert error.message == (
        "sql/shop.sql:4:1: out has 'format' = 'upsert', and no 'key' that tells its rows apart"
    )
    assert error.expected == "'key' = 'a', or more of a, Amount with commas between"
    assert error.next_step == "name the columns of the key, or write 'format' = 'changelog'"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("'kafka.security.protocol' = 'TLS'", "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("'kafka.ssl.truststore.location' = 'x'", "PEM, which every client can read"),
        ("'kafka.ssl.keystore.type' = 'PKCS12'", "PEM, which every client can read"),
    ],
)
@pytest.mark.parametrize("owner", ["source orders", "sink out"])
def test_a_client_can_connect_by_what_is_said(
    tmp_path: Path, settings: Settings, owner: str, option: str, said: str
) -> None:
    options = (f", {option}", "") if owner == "source orders" else ("", f", {option}")
    error = refusal(write(tmp_path, *options), settings)
    assert error.message.startswith(f"{owner} has an option 'kafka.s")
    assert error.expected == said
    assert f"of {owner} and deploy again" in error.next_step


@pytest.mark.parametrize(
    "options",
    [
        ", startingOffsets = 'Latest'",
        ", 'startingoffsets' = 'earliest'",
        ", format = 'avro', 'schema.registry.url' = 'HTTPS://user:secret@registry/path/'",
    ],
)
def test_what_a_source_may_say_is_not_refused(
    tmp_path: Path, settings: Settings, options: str
) -> None:
    assert deploying.deploy(write(tmp_path, options), settings).name == "shop"


@pytest.mark.parametrize(
    "options",
    [
        ", shards = 4, key = 'AMOUNT , a'",
        ", shards = '007', format = 'Debezium'",
        ", format = 'upsert', key = 'a,'",
        ", 'kafka.security.protocol' = 'ssl', 'kafka.ssl.truststore.type' = 'pem'",
    ],
)
def test_what_a_sink_may_say_is_not_refused(
    tmp_path: Path, settings: Settings, options: str
) -> None:
    assert deploying.deploy(write(tmp_path, of_sink=options), settings).name == "shop"


@pytest.mark.parametrize("words", ["TEMPORARY MATERIALIZED", "OR REPLACE TEMP MATERIALIZED"])
def test_a_view_is_published_or_it_is_not(tmp_path: Path, settings: Settings, words: str) -> None:
    folder = write(tmp_path)
    sql = tmp_path / "sql" / "shop.sql"
    sql.write_text(sql.read_text("utf-8").replace("MATERIALIZED", words), "utf-8")
    assert str(refusal(folder, settings)) == (
        "sql/shop.sql:3:1: the view w is TEMPORARY and MATERIALIZED\n"
        "  expected: CREATE TEMPORARY VIEW w, for other views to read and without a table, or CREATE "
        "MATERIALIZED VIEW w, which is published\n"
        "  found: CREATE TEMPORARY MATERIALIZED VIEW w\n"
        "  next: leave out one of the two words"
    )


def test_what_was_deployed_when_nobody_looked_can_be_replaced(
    tmp_path: Path, settings: Settings
) -> None:
    """A stage refuses it; until it is corrected it can be read."""
    write(tmp_path, ", startingOffsets = '5'", ", shards = 'abc', key = 'c'")
    sql = tmp_path / "sql" / "shop.sql"
    sql.write_text(sql.read_text("utf-8").replace("CREATE MAT", "CREATE TEMP MAT"), "utf-8")
    change = Deploy(read_project_files(tmp_path), "life", (), ("orders",))
    assert isinstance(SqlStore(settings.store_url).apply("shop", change), Landed)
    with runtime.open_pipeline("shop", settings) as pipeline:
        [sink] = pipeline.project.sinks
        [view] = pipeline.project.views
    assert (sink.options["shards"], view.published) == ("abc", True)
    state = deploying.deploy(write(tmp_path, of_sink=", shards = '2'"), settings)
    assert "shards = '2'" in dict(state.files.files)["sql/shop.sql"]
