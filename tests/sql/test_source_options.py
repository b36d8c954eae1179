"""Options of sources by format: what is taken, and how what is not is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from sql_builders import SPEC, files

from lockstep.control.growth import Growth
from lockstep.errors import ProjectError
from lockstep.sql.circuit import Project, SourceTable, TraceKind
from lockstep.sql.explain import explain
from lockstep.sql.incremental import build_circuit
from lockstep.sql.plans.nodes import CHANGE_COLUMNS, Scan, Upsert
from lockstep.sql.project import parse_project, read_project_files
from lockstep.sql.sources.source_layout import (
    Layout,
    layout_of,
    read_fields,
    read_metadata,
    read_names,
)

AVRO = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}'


def declared(columns: str, options: str = "") -> Project:
    """A project of the source `s` and a view of one of its columns."""
    name = columns.split(maxsplit=1)[0]
    return parse_project(
        files(
            f"CREATE TABLE s ({columns}) USING kafka OPTIONS (kafka.bootstrap.servers 'b', "
            f"subscribe 's'{options}); CREATE MATERIALIZED VIEW w AS SELECT {name} FROM s"
        ),
        {},
    )


def source(columns: str, options: str = "") -> SourceTable:
    return declared(columns, options).sources[0]


def refusal(columns: str, options: str) -> tuple[str, str, str]:
    """Message, expected, found, of a declaration that is refused."""
    with pytest.raises(ProjectError) as caught:
        source(columns, options)
    return caught.value.message, caught.value.expected, caught.value.found


def test_metadata_is_a_list_of_names() -> None:
    text = "partition AS p, OFFSET as `o o`, topic,key As K"
    found = read_metadata(text)
    assert found == {"p": "partition", "o o": "offset", "topic": "topic", "k": "key"}
    for wrong in ("partition p", "a.b", "topic, topic", "key AS"):
        with pytest.raises(ValueError, match=wrong.split(",", maxsplit=1)[0].split(".")[0]):
            read_metadata(wrong)


def test_fields_are_paths() -> None:
    assert read_fields("Id = _id, `a b`=meta.`x,y`.z") == {
        "id": ("_id",),
        "a b": ("meta", "x,y", "z"),
    }
    for wrong in ("id", "id = ", "id = a..b", "id = a, ID = b"):
        with pytest.raises(ValueError, match=r"id|ID"):
            read_fields(wrong)


def test_names_are_listed_once() -> None:
    assert read_names("a, `B c`") == ("a", "b c")
    for wrong in ("a b", "a, A"):
        with pytest.raises(ValueError, match=r"a|A"):
            read_names(wrong)


def test_each_column_is_read_from_one_place() -> None:
    columns = "a INT, k BINARY, at TIMESTAMP"
    found = source(columns, ", metadata 'key AS k', fields 'at = meta.ts'")
    layout = layout_of(found)
    expected = Layout("rows", "json", "json", {"k": "key"}, {"at": ("meta", "ts")}, ())
    assert layout == expected
    a, k, at = found.columns
    assert [layout.is_of_value(column) for column in (a, k, at)] == [True, False, True]
    assert [layout.path(column) for column in (a, at)] == [("a",), ("meta", "ts")]


@pytest.mark.parametrize(
    ("columns", "options", "message", "expected", "found"),
    [
        ("a INT", ", format 'jsn'", "has a format that is not supported", "'json'", "'jsn'"),
        ("a INT, p INT", ", metadata 'part AS p'", "'metadata' that can't", "partition", "part"),
        ("a INT", ", metadata 'offset AS o'", "'metadata' that can't be read", "a", "o"),
        ("a INT, o INT", ", metadata 'offset AS o'", "column o shows the offset", "BIGINT", "INT"),
        (
            "a INT, k INT",
            ", metadata 'key AS k'",
            "column k shows the key",
            "k BINARY or STRING",
            "INT",
        ),
        ("o BIGINT", ", metadata 'offset AS o'", "no column of the value", "'metadata'", "o"),
        ("a INT", ", fields 'b = x'", "'fields' that can't be read", "a", "b"),
        ("a INT", ", fields 'a = '", "'fields' that can't be read", "id = _id", "a ="),
        ("a INT, b INT", ", fields 'b = A'", "'fields'", "a field of its own", "a = a"),
        (
            "a INT, b INT",
            ", fields 'b = a.c'",
            "'fields'",
            "a field of its own",
            "a = a, which another",
        ),
        (
            "a INT, b INT",
            ", fields 'a = m.x, b = M.y'",
            "'fields'",
            "without regard to case",
            "a = m.x, which another",
        ),
        (
            "a INT, o BIGINT",
            ", metadata 'offset AS o', fields 'o = x'",
            "'fields'",
            "of the value",
            "o, which is metadata",
        ),
        ("a INT, b INT", ", format 'raw'", "'raw' records, which are one", "BINARY", "b INT"),
        ("a INT", ", format 'raw'", "'raw' records, which are one", "BINARY", "a INT"),
        (
            "a STRING",
            ", format 'raw', fields 'a = b'",
            "'fields' that is not supported with 'format' = 'raw'",
            "subscribe",
            "fields",
        ),
        ("a INT, b INT", ", format 'upsert'", "no option 'key'", "'key' = 'id'", "format"),
        ("a INT, b INT", ", format 'upsert', key 'c'", "'key' that can't", "a, b", "c"),
        ("a INT, b INT", ", format 'upsert', key 'a b'", "'key' that can't", "each once", "a b"),
        ("a INT", ", format 'upsert', key 'a'", "no column of the value", "nor 'key' names", "a"),
        (
            "a ARRAY<INT>, b INT",
            ", format 'upsert', key 'a'",
            "'key' that can't be read",
            "no ARRAY",
            "a ARRAY<INT>",
        ),
        (
            "a BIGINT, b INT",
            ", format 'upsert', key 'a', metadata 'offset AS a'",
            "'key' that can't be read",
            "columns of the record",
            "which is metadata",
        ),
        (
            "a INT, b STRUCT<c: MAP<STRING, INT>>",
            ", format 'debezium', key 'a'",
            "a type without equality",
            "another type than MAP",
            "MAP<STRING, INT>",
        ),
        (
            "a INT, o BIGINT",
            ", format 'debezium', metadata 'offset AS o'",
            "'metadata' that can't be read",
            "an option 'key'",
            "offset AS o",
        ),
        ("a INT, b INT", ", format 'upsert', key.format 'x', key 'a'", "a format", "'raw'", "'x'"),
        (
            "a INT, b INT",
            ", format 'upsert', key.format 'raw', key 'a'",
            "'raw' records, which are one column",
            "BINARY or STRING",
            "a INT",
        ),
        ("a ARRAY<INT>", ", format 'csv'", "type that CSV cannot hold", "no ARRAY", "ARRAY<INT>"),
        ("a INT", ", format 'csv', header 'true'", "'header', which", "one line", "'true'"),
        ("a INT", ", format 'csv', sep ';', delimiter ';'", "'delimiter'", "not both", ";"),
        ("a INT", ", format 'csv', delimiter ''", "'delimiter' that", "one character", ""),
        ("a INT", ", format 'csv', sep '\"'", "'sep' that", "the separator another", '"'),
        ("a INT", ", format 'csv', escape 'ab'", "'escape' that", "one character", "ab"),
        ("a DATE", ", format 'csv', dateformat 'd.M.yy'", "'dateformat'", "yyyy, MM", "d"),
        ("a DATE", ", format 'csv', dateformat 'dd.MM'", "'dateformat'", "yyyy", "yyyy 0 times"),
        ("a DATE", ", format 'csv', dateformat 'yyyyMMddHH'", "'dateformat'", "a date alone", "HH"),
        (
            "a TIMESTAMP",
            ", format 'csv', timestampformat 'yyyy-MM-dd HH:mm X XX'",
            "'timestampformat' that can't be read",
            "X, XX or XXX",
            "X twice",
        ),
        ("a INT", ", format 'avro'", "by which schema", "either 'avro.schema'", "neither"),
        ("a INT", ", format 'avro', avro.schema 'x.avsc'", "'avro.schema'", "a file", "x.avsc"),
        ("a INT", ", format 'avro', avro.schema '{'", "'avro.schema'", "of a record", "no JSON"),
        (
            "a INT",
            f", format 'avro', avro.schema '{AVRO}', schema.registry.url 'x'",
            "by which schema",
            "either",
            "both",
        ),
        (
            "b INT",
            f", format 'avro', avro.schema '{AVRO}'",
            "'avro.schema'",
            "a field b",
            "none of that name",
        ),
        (
            "a INT",
            f", format 'avro', avro.schema '{AVRO}'",
            "'avro.schema'",
            "a type of a that fits INT",
            "Avro's long",
        ),
        (
            "a STRUCT<b: INT>",
            f", format 'avro', avro.schema '{AVRO}'",
            "not read from Avro",
            "without STRUCT",
            "STRUCT<b: INT>",
        ),
        ("a INT", ", key 'a'", "'key' that is not supported with 'format' = 'json'", "sub", "key"),
        (
            "a INT, b INT",
            ", format 'upsert', key 'a', partition_growth 'all'",
            "'partition_growth' that can't be read",
            "'multiple' (a topic grows to a multiple of its partitions) or 'any'",
            "all",
        ),
        (
            "a INT",
            ", format 'debezium', partition_growth 'any'",
            "'partition_growth' that can't be read",
            "an option 'key' beside it",
            "any",
        ),
        (
            "a INT",
            ", partition_growth 'any'",
            "'partition_growth' that is not supported with 'format' = 'json'",
            "subscribe",
            "partition_growth",
        ),
    ],
)
def test_refused(columns: str, options: str, message: str, expected: str, found: str) -> None:
    parts = refusal(columns, options)
    for part, text in zip((message, expected, found), parts, strict=True):
        assert part in text


def test_views_share_the_table_of_a_keyed_source() -> None:
    """Nothing is pruned or filtered below it, so that there is one state, and filters see the last
    rows alone."""
    project = parse_project(
        files(
            "CREATE TABLE s (id BIGINT, a INT, b INT) USING kafka OPTIONS (kafka.bootstrap.servers "
            "'b', subscribe 's', format 'debezium', key 'ID');"
            "CREATE MATERIALIZED VIEW w AS SELECT id FROM s WHERE a > 1 AND id > 0;"
            "CREATE MATERIALIZED VIEW v AS SELECT a, count(*) AS n FROM s GROUP BY a"
        ),
        {},
    )
    circuit = build_circuit(project)
    [upsert] = [one for one in circuit.operators if isinstance(one.node, Upsert)]
    assert upsert.node.columns == ("id", "a", "b")
    assert upsert.node.input == Scan("s", ("id", "a", "b", *CHANGE_COLUMNS))
    assert [(t.kind, t.key, t.columns) for t in upsert.traces] == [
        (TraceKind.ROWS, ("id",), ("a", "b"))
    ]
    assert (circuit.operators[0].append_only, upsert.append_only) == (True, False)
    text = explain(project, circuit)
    assert "  s: kafka topic s, debezium by id\n" in text
    assert "%1 = upsert %0 by id\n" in text


def test_change_events_without_keys_are_not_append_only() -> None:
    circuit = build_circuit(declared("a INT, b INT", ", format 'debezium'"))
    assert [(type(one.node), one.append_only) for one in circuit.operators] == [(Scan, False)]


def test_an_upsert_refuses_what_is_no_keyed_input() -> None:
    with pytest.raises(ValueError, match="ends in _partition, _offset, _deleted"):
        Upsert(Scan("s", ("a",)), ("a",))
    keyed = Scan("s", ("a", *CHANGE_COLUMNS))
    with pytest.raises(ValueError, match="at least one key"):
        Upsert(keyed, ())
    with pytest.raises(ValueError, match="refers to _offset"):
        Upsert(keyed, ("_offset",))


def test_what_decodes_records_names_the_trace() -> None:
    def names(options: str) -> list[str]:
        project = parse_project(
            files(
                "CREATE TABLE s (a STRING, b BIGINT) USING kafka OPTIONS (kafka.bootstrap.servers "
                f"'b', subscribe 's'{options}); "
                "CREATE MATERIALIZED VIEW w AS SELECT a, count(*) AS n FROM s GROUP BY a"
            ),
            {},
        )
        return [trace.table for trace in build_circuit(project).traces]

    plain = names("")
    assert names(", on_error 'fail', missing_columns 'null', kafka.x 'y'") == plain
    keyed = names(", format 'upsert', key 'a'")
    assert names(", format 'upsert', key 'a', partition_growth 'any'") == keyed != plain
    assert names(", metadata 'offset AS b'") != plain
    assert names(", fields 'a = c'") != plain


def test_what_a_topic_may_grow_to_is_said_by_its_source() -> None:
    def kind(options: str) -> Growth:
        return Growth.of(source("a INT, b INT", options))

    assert kind("") is kind(", format 'debezium'") is Growth.FREE
    assert kind(", format 'debezium', key 'a'") is Growth.MULTIPLE
    assert kind(", format 'upsert', key 'a', partition_growth 'MULTIPLE'") is Growth.MULTIPLE
    assert kind(", format 'upsert', key 'a', partition_growth 'any'") is Growth.ANY


def test_a_schema_from_a_file_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "spark-pipeline.yml").write_text(SPEC)
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "s.sql").write_text(
        "CREATE TABLE s (a BIGINT) USING kafka OPTIONS (kafka.bootstrap.servers 'b', subscribe 's', "
        "format 'avro', avro.schema 'schemas/r.avsc'); CREATE VIEW w AS SELECT a FROM s"
    )
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "r.avsc").write_text(AVRO.replace(",", ",\n  "))
    found = read_project_files(tmp_path)
    assert [name for name, _ in found.files] == ["schemas/r.avsc", "transformations/s.sql"]
    [declared_source] = parse_project(found, {}).sources
    assert declared_source.options["avro.schema"] == (
        '{"fields":[{"name":"a","type":"long"}],"name":"R","type":"record"}'
    )
