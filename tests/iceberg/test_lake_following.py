"""Followed tables through PyIceberg alone: histories, declared columns, the files that differ."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from lake_builders import local_catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lockstep.control.table_history import Reading
from lockstep.errors import Position, ProjectError, SourceChanged
from lockstep.lake.changed_files import appended_files, changed_files
from lockstep.lake.file_batches import are_readable
from lockstep.lake.following import check_columns, load_followed, table_history
from lockstep.lake.opening import OpenCatalog
from lockstep.sql.circuit import SourceColumn, SourceTable

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "Name", StringType()),
)


def declared(*columns: tuple[str, str], nullable: bool = True) -> SourceTable:
    found = tuple(SourceColumn(name, type_, nullable) for name, type_ in columns)
    options = {"table": "lake.db.t", "append_only": "false"}
    return SourceTable("s", found, "iceberg", options, Position("sources.sql", 3, 1))


SOURCE = declared(("ID", "BIGINT"), ("name", "STRING"))


@pytest.fixture
def catalog(tmp_path: Path) -> OpenCatalog:
    return OpenCatalog(local_catalog(tmp_path))


def make(catalog: OpenCatalog, schema: Schema = SCHEMA) -> Table:
    catalog.connected().create_namespace_if_not_exists("db")
    return catalog.connected().create_table("db.t", schema)


def rows(*pairs: tuple[int, str]) -> pa.Table:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("Name", pa.string())])
    return pa.Table.from_pylist([{"id": id_, "Name": name} for id_, name in pairs], schema=schema)


def head(table: Table) -> int:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def test_a_table_that_is_not_there_is_named(catalog: OpenCatalog) -> None:
    with pytest.raises(SourceChanged) as caught:
        load_followed(catalog, SOURCE)
    assert caught.value.message == "source s: table lake.db.t does not exist"
    assert caught.value.next_step == "create it, or correct 'table' at sources.sql:3:1"


def test_a_history_counts_rows_by_the_snapshots_own_summaries(catalog: OpenCatalog) -> None:
    table = make(catalog)
    assert table_history(SOURCE, table.metadata).head is None
    table.append(rows((1, "a"), (2, "b")))
    first = head(table)
    table.append(rows((3, "c")))
    second = head(table)
    table.delete("id = 1")
    found = table_history(SOURCE, table.metadata)
    assert (found.table, found.table_id) == ("lake.db.t", str(table.metadata.table_uuid))
    assert found.reading(first, second) is Reading.APPENDS
    assert found.reading(second, found.head) is Reading.DIFFERENCE
    assert found.records(None, found.head) == 2
    assert found.records(first, second) == 1
    # One file of two rows was written anew with one of them.
    assert found.records(second, found.head) == 3


def test_a_snapshot_that_does_not_tell_its_total_may_have_rows(
    catalog: OpenCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(catalog)
    table.append(rows((1, "a"), (2, "b")))
    first = head(table)
    table.append(rows((3, "c")))
    for snapshot in table.metadata.snapshots:
        assert snapshot.summary is not None
        counts = snapshot.summary.additional_properties
        for key in [key for key in counts if key.endswith("-records")]:
            monkeypatch.delitem(counts, key)
    found = table_history(SOURCE, table.metadata)
    assert found.slice(None, first).records > 0
    assert found.slice(first, head(table)).records > 0
    # As after a rollback: neither is known to descend from the other.
    assert found.slice(head(table), first).records > 0


def test_main_has_shown_what_it_went_to(catalog: OpenCatalog) -> None:
    """By a commit to it, or to where a branch had come in several commits."""
    table = make(catalog)
    table.append(rows((1, "a")))
    first = head(table)
    with table.manage_snapshots() as change:
        change.create_branch(first, "beside")
    table.append(rows((2, "b")), branch="beside")
    table.append(rows((3, "c")), branch="beside")
    last = table.metadata.refs["beside"].snapshot_id
    before = table_history(SOURCE, table.metadata)
    with table.manage_snapshots() as change:
        change.set_current_snapshot(snapshot_id=last)
    found = table_history(SOURCE, table.metadata)
    assert [one.snapshot_id for one in found.log] == [first, last]
    assert [one.snapshot_id for one in before.log] == [first]
    assert found.log[1].time >= found.snapshots[last].time
    assert len(found.between(first, last) or ()) == 2
    assert list(found.pieces(first, last, 1)) == [last]


def test_of_a_commit_of_several_snapshots_main_has_shown_the_last(catalog: OpenCatalog) -> None:
    table = make(catalog)
    shown = list[int]()
    for number in range(3):
        table.overwrite(rows((number, "a"), (10 + number, "b")))
        shown.append(head(table))
    assert len(table.metadata.snapshots) == 5, "an overwrite deletes, and then appends"
    found = table_history(SOURCE, table.metadata)
    assert [one.snapshot_id for one in found.log] == shown
    assert list(found.pieces(shown[0], shown[2], 1)) == shown[1:]
    # How metadata came about is forgotten after a while: then the log is taken for what it says.
    forgotten = table.metadata.model_copy(update={"metadata_log": []})
    assert len(table_history(SOURCE, forgotten).log) == 5


EVERY_TYPE = (
    (BooleanType(), "BOOLEAN"),
    (IntegerType(), "INT"),
    (LongType(), "BIGINT"),
    (FloatType(), "FLOAT"),
    (DoubleType(), "DOUBLE"),
    (DecimalType(12, 3), "DECIMAL(12, 3)"),
    (DateType(), "DATE"),
    (TimestampType(), "TIMESTAMP_NTZ"),
    (TimestamptzType(), "TIMESTAMP"),
    (StringType(), "STRING"),
    (UUIDType(), "STRING"),
    (BinaryType(), "BINARY"),
    (FixedType(4), "BINARY"),
    (ListType(10, StringType()), "ARRAY<STRING>"),
    (MapType(11, StringType(), 12, DoubleType()), "MAP<STRING, DOUBLE>"),
    (
        StructType(NestedField(13, "a", IntegerType()), NestedField(14, "B c", DateType())),
        "STRUCT<a: INT, `B c`: DATE>",
    ),
)


def test_every_type_is_declared_as_spark_shows_it(catalog: OpenCatalog) -> None:
    fields = [NestedField(n, f"c{n}", t) for n, (t, _) in enumerate(EVERY_TYPE, start=100)]
    table = make(catalog, Schema(*fields))
    source = declared(*((f"c{n}", text) for n, (_, text) in enumerate(EVERY_TYPE, start=100)))
    check_columns(source, table.metadata)


def test_one_error_names_every_column_that_does_not_fit(catalog: OpenCatalog) -> None:
    schema = Schema(*SCHEMA.fields, NestedField(3, "at", TimeType()))
    table = make(catalog, schema)
    source = declared(("id", "INT"), ("name", "STRING"), ("gone", "DATE"), ("at", "STRING"))
    with pytest.raises(ProjectError) as caught:
        check_columns(source, table.metadata)
    assert caught.value.position == Position("sources.sql", 3, 1)
    assert caught.value.message == (
        "sources.sql:3:1: source s declares columns that table lake.db.t has not"
    )
    assert caught.value.expected == "id INT, gone DATE, at STRING"
    assert caught.value.found == "id BIGINT NOT NULL, no gone, at time"
    assert caught.value.next_step == "declare them as DESCRIBE lake.db.t shows them"


def test_a_column_that_may_be_null_is_not_declared_otherwise(catalog: OpenCatalog) -> None:
    table = make(catalog)
    check_columns(declared(("id", "BIGINT"), nullable=False), table.metadata)
    with pytest.raises(ProjectError) as caught:
        check_columns(declared(("name", "STRING"), nullable=False), table.metadata)
    assert (caught.value.expected, caught.value.found) == ("name STRING NOT NULL", "Name STRING")


def test_columns_that_come_later_do_not_matter_and_renamed_ones_do(catalog: OpenCatalog) -> None:
    table = make(catalog)
    table.append(rows((1, "a")))
    with table.update_schema() as change:
        change.add_column("more", StringType())
    check_columns(SOURCE, table.metadata)
    assert table_history(SOURCE, table.metadata).reading(None, head(table)) is Reading.ALL
    with table.update_schema() as change:
        change.rename_column("Name", "title")
    with pytest.raises(ProjectError) as caught:
        check_columns(SOURCE, table.metadata)
    assert caught.value.found == "no name"


def test_a_column_that_was_made_anew_has_other_values(catalog: OpenCatalog) -> None:
    table = make(catalog)
    table.append(rows((1, "a")))
    with table.update_schema() as change:
        change.delete_column("Name")
    with table.update_schema() as change:
        change.add_column("name", StringType())
    check_columns(SOURCE, table.metadata)
    with pytest.raises(SourceChanged) as caught:
        table_history(SOURCE, table.metadata).reading(None, head(table))
    assert caught.value.message == (
        "source s: column name of table lake.db.t was added or made anew after snapshot "
        f"{head(table)}"
    )


def paths(table: Table) -> set[str]:
    return {task.file.file_path for task in table.scan().plan_files()}


def weights(table: Table, start: int | None, end: int | None) -> Counter[str]:
    found = changed_files(table, start, end)
    assert found is not None
    assert all(not change.deleted and change.unless is None for change in found)
    return Counter({change.file.file_path: change.weight for change in found})


def test_the_files_that_differ_and_no_other(catalog: OpenCatalog) -> None:
    table = make(catalog)
    seen: list[tuple[int | None, set[str]]] = [(None, set())]

    def remember() -> None:
        seen.append((head(table), paths(table)))

    for number in range(3):
        table.append(rows((number, "a"), (10 + number, "b")))
        remember()
    table.delete("id = 1")
    remember()
    table.overwrite(rows((7, "c")))
    remember()
    for start, before in seen:
        for end, after in seen:
            expected = Counter(dict.fromkeys(after - before, 1))
            expected.update(dict.fromkeys(before - after, -1))
            assert weights(table, start, end) == expected, (start, end)
    (_, first), (last, third) = seen[1], seen[3]
    assert last is not None
    appended = appended_files(table, seen[1][0], last)
    assert {file.file_path for file in appended} == third - first


def test_a_delete_reads_the_manifests_that_changed(
    catalog: OpenCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file of many is written anew: the others' manifests are not opened."""
    table = make(catalog)
    for number in range(6):
        table.append(rows((number, "a"), (10 + number, "b")))
    before = head(table)
    table.delete("id = 3")
    opened: list[str] = []
    original = type(table.io).new_input

    def new_input(self: object, location: str) -> object:
        opened.append(location)
        return original(self, location)  # type: ignore[arg-type]

    monkeypatch.setattr(type(table.io), "new_input", new_input)
    assert sorted(weights(table, before, head(table)).values()) == [-1, 1]
    manifests = [name for name in opened if name.endswith(".avro") and "snap-" not in name]
    assert len(manifests) <= 3


def test_equality_deletes_are_not_read_file_by_file(
    catalog: OpenCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(catalog)
    table.append(rows((1, "a")))
    first = head(table)
    table.append(rows((2, "b")))
    assert changed_files(table, first, head(table)) is not None
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    counts = snapshot.summary.additional_properties
    monkeypatch.setitem(counts, "total-equality-deletes", "1")
    assert changed_files(table, first, head(table)) is None
    monkeypatch.setitem(counts, "added-equality-deletes", "1")
    # One of them may match every row.
    assert table_history(SOURCE, table.metadata).records(first, head(table)) == 3


def test_uuids_are_left_to_spark(catalog: OpenCatalog) -> None:
    """Spark reads them as text, which Arrow does not make of them."""
    uuids = StructType(NestedField(4, "u", UUIDType()))
    table = make(catalog, Schema(*SCHEMA.fields, NestedField(3, "one", uuids)))
    assert are_readable(table, ("id", "name"), ())
    assert not are_readable(table, ("id", "one"), ())
