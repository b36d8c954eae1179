"""What a view says of itself and of its columns is what its table says, and no row moves for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lake_builders import Lake, Outbox, local_catalog
from sql_builders import SPEC

from lockstep.adapters.iceberg_tables import IcebergTables
from lockstep.control.job import PublishJob, SinkTarget
from lockstep.sql.circuit import ProjectFiles
from lockstep_engine.publishing import publish_sinks
from lockstep_engine.tables import table_name

COLUMNS = pa.schema([("id", pa.int64()), ("a.b", pa.string())])


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(local_catalog(tmp_path))
    made.state.make("v", COLUMNS, {"k": "1"}, {"lockstep.step": "-1"})
    return made


def said(lake: Lake) -> tuple[str | None, dict[str, str | None]]:
    table = lake.table("v")
    return table.properties.get("comment"), {c.name: c.doc for c in table.schema().fields}


def test_a_table_says_what_it_was_told(lake: Lake) -> None:
    before = lake.table("v")
    lake.state.describe("v", "it's all", {"id": "who", "a.b": "dotted"})
    assert said(lake) == ("it's all", {"id": "who", "a.b": "dotted"})
    after = lake.table("v")
    assert after.properties["k"] == "1"
    assert after.snapshots() == before.snapshots()
    assert after.metadata.refs == before.metadata.refs
    ids = [[(c.field_id, c.field_type) for c in t.schema().fields] for t in (before, after)]
    assert ids[0] == ids[1]
    lake.state.describe("v", "", {"id": "who it is"})
    assert said(lake) == ("", {"id": "who it is", "a.b": "dotted"})


def test_what_nothing_is_said_of_stays(lake: Lake) -> None:
    lake.state.describe("v", "by hand", {"id": "who"})
    lake.state.describe("v", None, {"a.b": "more", "gone": "dropped by who was later"})
    assert said(lake) == ("by hand", {"id": "who", "a.b": "more"})


def test_what_is_said_already_is_not_written_again(lake: Lake) -> None:
    for _ in range(2):
        lake.state.describe("v", "all", {"id": "who"})
    assert len(lake.table("v").metadata.metadata_log) == 1


def test_where_somebody_else_was_first_it_is_done_on_what_is_there_now(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, load = lake.state, lake.state._load
    others = iter([IcebergTables(lake.settings)])

    def overtaken(table: str) -> Any:
        found = load(table)
        for other in others:
            other.describe("v", "theirs", {"id": "theirs", "a.b": "theirs"})
        return found

    monkeypatch.setattr(mine, "_load", overtaken)
    mine.describe("v", "mine", {"id": "mine"})
    assert said(lake) == ("mine", {"id": "mine", "a.b": "theirs"})


def publish(outbox: Outbox, step: int, words: str) -> None:
    """Publish as a stage does, with these words behind the view's name."""
    sql = (
        "CREATE TABLE t (id BIGINT, name STRING) USING kafka OPTIONS "
        "('kafka.bootstrap.servers' = 'b', subscribe = 't');\n"
        f"CREATE MATERIALIZED VIEW {outbox.view} {words} AS SELECT id, name FROM t;"
    )
    job = PublishJob(
        pipeline="shop",
        incarnation=outbox.incarnation,
        version=step + 1,
        last_step=step,
        tables={outbox.table: outbox.snapshot},
        sinks=(SinkTarget(outbox.view, outbox.view, "iceberg", step, step),),
        files=ProjectFiles(SPEC, (("views.sql", sql),)),
        variables={},
        catalog=outbox.lake.settings,
    )
    publish_sinks(outbox.spark, job, outbox.lake.state, lambda _: None)


def shown(outbox: Outbox) -> tuple[str | None, str | None, str | None]:
    """What Spark shows of the view's table, and of its two columns."""
    name = table_name(outbox.lake.settings, outbox.view)
    found = {
        row["col_name"]: row
        for row in reversed(outbox.spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect())
    }
    comment = found["Comment"]["data_type"] if "Comment" in found else None
    return comment, found["id"]["comment"], found["name"]["comment"]


@pytest.mark.spark
def test_a_publish_tells_the_table_what_its_view_says(new_outbox: Any) -> None:
    outbox = new_outbox("id bigint, name string")
    outbox.add([(1, "a", 1, 0)])
    publish(outbox, 0, "(id COMMENT 'who', name) COMMENT 'it\\'s all'")
    assert shown(outbox) == ("it's all", "who", None)
    outbox.add([(1, "a", -1, 1), (1, "b", 2, 1)])
    publish(outbox, 1, "(id, name COMMENT 'of it') COMMENT 'more'")
    assert shown(outbox) == ("more", "who", "of it")
    outbox.add([(1, "b", -1, 2), (2, "c", 1, 2)])
    publish(outbox, 2, "")
    assert shown(outbox) == ("more", "who", "of it")
    assert outbox.rows() == outbox.rows_by_spark() == {(1, "b"): 1, (2, "c"): 1}


@pytest.mark.spark
def test_a_view_without_words_leaves_its_table_alone(new_outbox: Any) -> None:
    outbox = new_outbox("id bigint, name string")
    outbox.add([(1, "a", 1, 0)])
    publish(outbox, 0, "")
    assert shown(outbox) == (None, None, None)
    name = table_name(outbox.lake.settings, outbox.view)
    outbox.spark.sql(f"COMMENT ON TABLE {name} IS 'by hand'")
    outbox.add([(2, "a", 1, 1)])
    publish(outbox, 1, "")
    assert shown(outbox) == ("by hand", None, None)
