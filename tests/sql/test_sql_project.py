"""Project folders: the spec, the files, variables, positions, statements."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sql_builders import SOURCES, SPEC, files, project
from sqlglot import exp

from lockstep.errors import Position, ProjectError
from lockstep.sql.circuit import ProjectFiles, SourceColumn
from lockstep.sql.explain import explain
from lockstep.sql.incremental import build_circuit
from lockstep.sql.project import parse_project, read_project_files
from lockstep.sql.reading.spec import OWN_SETTINGS, check_name, parse_spec
from lockstep.sql.reading.syntax import SourceText

VIEW = "CREATE MATERIALIZED VIEW w AS SELECT a FROM t"


def folder(at: Path, spec: str = SPEC, **sql: str) -> Path:
    (at / "spark-pipeline.yml").write_text(spec, encoding="utf-8")
    for name, text in sql.items():
        path = at / "transformations" / f"{name.replace('__', '/')}.sql"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return at


def test_a_folder_is_read_as_text(tmp_path: Path) -> None:
    found = read_project_files(folder(tmp_path, b="-- b", a="-- a", deep__c="-- c"))
    assert found.spec == SPEC
    assert found.files == (
        ("transformations/a.sql", "-- a"),
        ("transformations/b.sql", "-- b"),
        ("transformations/deep/c.sql", "-- c"),
    )
    assert found.folder == str(tmp_path)


def test_hidden_and_compiled_files_are_not_read(tmp_path: Path) -> None:
    folder(tmp_path, a="-- a")
    (tmp_path / "transformations" / ".a.sql.swp").write_bytes(b"\xff")
    assert [name for name, _ in read_project_files(tmp_path).files] == ["transformations/a.sql"]


def test_no_project(tmp_path: Path) -> None:
    with pytest.raises(ProjectError) as caught:
        read_project_files(tmp_path)
    assert str(caught.value) == (
        "spark-pipeline.yml:1:1: the folder is no project\n"
        f"  expected: spark-pipeline.yml in {tmp_path}\n"
        "  next: lockstep init DIR"
    )


def test_no_sql_files(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="no file matches 'transformations/\\*\\*'"):
        read_project_files(folder(tmp_path))


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    folder(tmp_path, a="-- a")
    (tmp_path / "transformations" / "a.sql").write_bytes(b"-- \xff")
    with pytest.raises(ProjectError) as caught:
        read_project_files(tmp_path)
    assert str(caught.value) == (
        "transformations/a.sql:1:1: the file is no text\n"
        "  expected: UTF-8\n"
        "  found: the byte 0xff at offset 3\n"
        "  next: save it as UTF-8"
    )


@pytest.mark.parametrize("name", ["view.scala", "view.py.sql"])
def test_other_files_are_refused(tmp_path: Path, name: str) -> None:
    folder(tmp_path, a="-- a")
    (tmp_path / "transformations" / "view.py").write_text("", encoding="utf-8")
    assert [name for name, _ in read_project_files(tmp_path).files] == [
        "transformations/a.sql",
        "transformations/view.py",
    ]
    (tmp_path / "transformations" / name).write_text("", encoding="utf-8")
    with pytest.raises(ProjectError) as caught:
        read_project_files(tmp_path)
    assert str(caught.value) == (
        f"transformations/{name}:1:1: only SQL and Python files are read\n"
        "  expected: files that end in .sql or .py (not in .py.sql)\n"
        f"  found: {name}\n"
        "  next: write the view in SQL or Python, or move the file out of the library's folder"
    )


def test_two_quotes_in_a_text_stay_together() -> None:
    found = parse_project(files(f"{SOURCES}; CREATE VIEW w AS SELECT 'it''s' AS x FROM t"), {})
    assert "'it''s'" in str(found.views[0].plan)


def test_the_spec_has_sparks_fields() -> None:
    found = parse_spec(
        "name: n\nstorage: s\ncatalog: c\nschema: d\n"
        "libraries:\n- glob: {include: a.sql}\n- glob: {include: more/**}\n"
        'configuration:\n  lockstep.step: "5 seconds"\n'
    )
    assert (found.name, found.storage, found.catalog, found.database) == ("n", "s", "c", "d")
    assert found.include == ("a.sql", "more/**")
    assert found.configuration == {"lockstep.step": "5 seconds"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("name: [", "spark-pipeline.yml:1:8: the spec is not valid YAML"),
        ("- a", "spark-pipeline.yml:1:1: the spec has no fields"),
        ("name: n\nstorge: s", "spark-pipeline.yml:2:1: the spec has an unknown field 'storge'"),
        ("name: n", "spark-pipeline.yml:1:1: the spec's field 'storage' is missing or is no text"),
        (
            "name: 3\nstorage: s",
            "spark-pipeline.yml:1:1: the spec's field 'name' is missing or is no text",
        ),
        (
            "name: n\nstorage: s\ncatalog: 3",
            "spark-pipeline.yml:3:1: the spec's field 'catalog' is no text",
        ),
        ("name: n\nstorage: s", "spark-pipeline.yml:1:1: the spec names no files"),
        (
            "name: n\nstorage: s\nlibraries: [x]",
            "spark-pipeline.yml:3:1: the spec's field 'libraries' can't be read",
        ),
        (
            "name: n\nstorage: s\nlibraries: [{glob: {include: '**/*.sql'}}]",
            "spark-pipeline.yml:3:1: the glob '**/*.sql' is not one that Spark takes",
        ),
        (
            "name: n\nstorage: s\nlibraries: [{glob: {include: a}}]\nconfiguration: {k: [3]}",
            "spark-pipeline.yml:4:1: the configuration of 'k' is no text",
        ),
        (
            "name: n\nstorage: s\nlibraries: [{glob: {include: a}}]\n"
            "configuration: {lockstep.setp: '5 s'}",
            "spark-pipeline.yml:4:1: the spec has an unknown setting 'lockstep.setp'",
        ),
        (
            "name: n\nstorage: s\nlibraries: [{glob: {include: a}}]\n"
            "configuration: {lockstep.on_error: drop}",
            "spark-pipeline.yml:4:1: the configuration of 'lockstep.on_error' can't be read",
        ),
        (
            "name: n\nstorage: s\nlibraries: [{glob: {include: a}}]\nconfiguration: {k: }",
            "spark-pipeline.yml:4:1: the configuration of 'k' is no text",
        ),
        (
            "name: n\nstorage: s\nlibraries: [{glob: {include: a}}]\n"
            "configuration: {lockstep.partition_grouping: by partition}",
            "spark-pipeline.yml:4:1: the configuration of 'lockstep.partition_grouping' can't be read",
        ),
        (
            "name: n\nstorage: s\nlibraries: [{glob: {include: a}}]\n"
            "configuration: {lockstep.partition_mapper: modulus}",
            "spark-pipeline.yml:4:1: the configuration of 'lockstep.partition_mapper' can't be read",
        ),
    ],
)
def test_a_wrong_spec(spec: str, message: str) -> None:
    with pytest.raises(ProjectError) as caught:
        parse_spec(spec)
    assert str(caught.value).splitlines()[0] == message
    assert caught.value.expected


def test_settings_need_no_quotes_and_are_as_they_were_written() -> None:
    found = parse_spec(
        "name: n\nstorage: s\nlibraries: [{glob: {include: a}}]\nconfiguration:\n"
        "  lockstep.autoscale: off\n  lockstep.retain_versions: 12\n  n: 1_000\n  m: 010\n"
        "  price: 1.10\n  quoted: '7'\n  day: 2026-01-31\n"
    )
    assert found.configuration == {
        "lockstep.autoscale": "off",
        "lockstep.retain_versions": "12",
        "n": "1_000",
        "m": "010",
        "price": "1.10",
        "quoted": "7",
        "day": "2026-01-31",
    }


def test_the_settings_are_those_of_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text("utf-8")
    written = set(re.findall(r"^\| `(lockstep\.[a-z_.*]+)` \|", text, re.MULTILINE))
    assert written == {*OWN_SETTINGS, "lockstep.catalog.*"}


def test_what_the_project_says_comes_before_the_installation() -> None:
    text = SOURCES + "CREATE VIEW w AS SELECT '${broker}' AS b, ${n} AS n, a FROM t"
    found = parse_project(files(text), {"n": "7", "broker": "other:1"})
    assert found.sources[0].options["kafka.bootstrap.servers"] == "broker:9092"
    assert found.views[0].sql == "SELECT 'broker:9092' AS b, 7 AS n, a FROM t"
    assert found.configuration == {"broker": "broker:9092"}


def test_positions_are_those_of_the_file_as_written() -> None:
    text = "CREATE VIEW w AS\n  SELECT '${broker}' AS x, '${broker}' AS y, nope FROM t"
    with pytest.raises(ProjectError) as caught:
        parse_project(ProjectFiles(SPEC, (("a.sql", SOURCES), ("b.sql", text))), {})
    assert caught.value.position == Position("b.sql", 2, text.splitlines()[1].index("nope") + 1)


def test_sources_are_kept_as_declared() -> None:
    found = parse_project(
        files(
            "create or refresh table Orders (\n"
            "  Id bigint not null comment 'the key; of all',\n"
            "  price dec(10,2), tags array<struct<k: string, `v w` MAP<string,array<int>>>>, x long\n"
            ") COMMENT 'c' USING KAFKA OPTIONS (kafka.bootstrap.servers 'b', "
            "SUBSCRIBE = 'o', on_error = 'fail');"
            "CREATE VIEW w AS SELECT ID FROM orders;\n;"
        ),
        {},
    )
    [source] = found.sources
    assert (source.name, source.provider) == ("Orders", "kafka")
    assert source.columns == (
        SourceColumn("Id", "BIGINT", nullable=False),
        SourceColumn("price", "DECIMAL(10, 2)"),
        SourceColumn("tags", "ARRAY<STRUCT<k: STRING, `v w`: MAP<STRING, ARRAY<INT>>>>"),
        SourceColumn("x", "BIGINT"),
    )
    assert source.options == {
        "kafka.bootstrap.servers": "b",
        "subscribe": "o",
        "on_error": "fail",
        "format": "json",
    }
    assert source.position == Position("views.sql", 1, 1)
    assert found.views[0].columns == ("ID",)


@pytest.mark.parametrize(
    ("option", "absent_is_null"),
    [
        ("", False),
        (", missing_columns = 'error'", False),
        (", missing_columns = 'null'", True),
        (", MISSING_COLUMNS 'NULL'", True),
    ],
)
def test_missing_columns_is_error_or_null(option: str, absent_is_null: bool) -> None:
    text = (
        "CREATE TABLE s (a INT) USING kafka OPTIONS (kafka.bootstrap.servers 'b', subscribe 's'{})"
    )
    found = parse_project(files(f"{text.format(option)}; CREATE VIEW w AS SELECT a FROM s"), {})
    [source] = found.sources
    assert source.absent_is_null is absent_is_null
    # The engine compares the recorded text.
    assert source.options.get("missing_columns", "error") == ("null" if absent_is_null else "error")


def test_on_error_is_recorded_as_the_engine_reads_it() -> None:
    options = "kafka.bootstrap.servers 'b', subscribe 's', on_error 'FAIL'"
    source = f"CREATE TABLE s (a INT) USING kafka OPTIONS ({options})"
    found = parse_project(files(f"{source}; CREATE VIEW w AS SELECT a FROM s"), {})
    assert found.sources[0].options["on_error"] == "fail"


def test_semicolons_in_strings_and_comments_do_not_end_statements() -> None:
    found = project(
        "/* ; */ CREATE VIEW w AS SELECT ';' AS x, `a` FROM t -- ; here\n;\n-- ; the end\n"
    )
    assert found.views[0].sql == "SELECT ';' AS x, `a` FROM t"


def test_qualified_names_of_this_project() -> None:
    found = project("CREATE VIEW w AS SELECT a FROM shop.t UNION ALL SELECT a FROM lake.shop.u")
    assert found.views[0].columns == ("a",)


def test_sinks() -> None:
    found = project(
        VIEW + "; CREATE SINK k FROM W USING kafka OPTIONS"
        " ('kafka.bootstrap.servers' = '${broker}', topic = 'out', format = 'upsert', key = 'a')"
    )
    [sink] = found.sinks
    assert (sink.name, sink.view, sink.options["topic"]) == ("k", "W", "out")


# Words that Spark lets a column be called, and expressions whose text must not change its meaning.
_NAMES = [
    *("date", "timestamp", "first", "last", "filter", "left", "right", "year", "month", "day"),
    *("hour", "minute", "second", "user", "key", "value", "start", "end", "window", "count"),
    *("sum", "min", "max", "type", "name", "status", "rank", "row", "rows", "range", "time"),
    *("zone", "format", "comment", "data", "database", "schema", "source", "target", "index"),
    *("partition", "option", "location", "path", "position", "array", "map", "struct"),
    *("string", "int", "double", "boolean", "decimal", "level", "sets", "show", "table"),
    *("view", "version", "uuid", "now", "current", "replace", "text", "json", "lower", "upper"),
    *("floor", "ceil", "substring", "match", "mode", "names", "of", "only", "out", "week"),
    *("describe"),
]


@pytest.mark.parametrize("name", _NAMES)
def test_a_column_may_be_called(name: str) -> None:
    for text in (f"SELECT {name} FROM t", f"SELECT t.{name} + 1 AS x FROM t WHERE {name} > 1"):
        source = SourceText("views.sql", text)
        tree = source.parse(source.tokens, "it")
        columns = [column.name for column in tree.find_all(exp.Column)]
        assert columns == [name] * text.count(name)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("a+b*  2", "`a` + `b` * 2"),
        ("( a ) + 1", "(`a`) + 1"),
        ("a /* no */ - -b", "`a` - -`b`"),
        ("- - a", "- -`a`"),
        ("Upper( c )||'X'", "upper(`c`) || 'X'"),
        ("case when a>1 then 'A' else c end", "CASE WHEN `a` > 1 THEN 'A' ELSE `c` END"),
        ("cast( a as decimal(10,2) )", "CAST(`a` AS decimal(10, 2))"),
        ("a::string", "`a` :: string"),
        ("date_format( ts , 'yyyy-MM' )", "date_format(`ts`, 'yyyy-MM')"),
        ("ts + interval 1 day", "`ts` + INTERVAL 1 day"),
        ("extract(year from ts)", "extract(year FROM `ts`)"),
        ("c in('x' , 'y')", "`c` IN ('x', 'y')"),
        ("not a is null and b between 1 and 2", "NOT `a` IS NULL AND `b` BETWEEN 1 AND 2"),
        ("transform(array(a), b -> b + a)", "transform(array(`a`), b_1 -> b_1 + `a`)"),
        (
            "transform(array(a), (x, i) -> x + i + a)",
            "transform(array(`a`), (x, i) -> x + i + `a`)",
        ),
        ("named_struct('a', a, 'b', b).a", "named_struct('a', `a`, 'b', `b`).a"),
        ("map('k', a)['k']", "map('k', `a`)['k']"),
        ("2L + 1.5BD + 1e3 + x'1F'", None),
        ("r'\\d' || 'it\\'s' || \"q\"", None),
        ("if(a > 1, trim(both 'x' from c), substring(c, 1, 2))", None),
        ("c like '%a' escape '!' or c rlike '^a'", None),
        ("a <=> b", "`a` <=> `b`"),
        ("a % 2 = 1", "`a` % 2 = 1"),
        ("~a & b | 3 ^ 1", None),
    ],
)
def test_expressions_keep_their_words(written: str, text: str | None) -> None:
    [view] = project(f"CREATE VIEW w AS SELECT {written} AS x FROM t").views
    found = view.plan.outputs[0].expression.text  # type: ignore[union-attr]
    if text is not None:
        assert found == text
    source = SourceText("views.sql", f"SELECT {written} AS x FROM t")
    expected = source.parse(source.tokens, "it").sql("spark", identify=True, comments=False)
    again = SourceText("views.sql", f"SELECT {found} AS x FROM t")
    back = again.parse(again.tokens, "it").sql("spark", identify=True)
    assert back.lower().replace("b_1", "b") == expected.lower()


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (
            "SELECT struct(k, C) AS s FROM (SELECT a + 1 AS k, c FROM t)",
            "struct((`a` + 1) AS k, `c` AS C)",
        ),
        (
            "SELECT (x.a, y.a, 1) AS s FROM t x JOIN t y ON x.a = y.b",
            "struct(`a` AS a, `a_1` AS a, 1 AS col3)",
        ),
        ("SELECT struct(max(a), b) AS s FROM t GROUP BY b", "struct(`max_a` AS col1, `b` AS b)"),
        ("SELECT struct(`x y`) AS s FROM (SELECT a AS `x y` FROM t)", "named_struct('x y', `a`)"),
        (
            "SELECT struct(`select`) AS s FROM (SELECT a AS `select` FROM t)",
            "named_struct('select', `a`)",
        ),
        (
            "SELECT transform(array(a), b -> struct(b, a)) AS s FROM t",
            "transform(array(`a`), b_1 -> struct(b_1 AS b, `a` AS a))",
        ),
        ("SELECT a >> 1 << 2 >>> 3 AS s FROM t", "`a` >> 1 << 2 >>> 3"),
        (
            "SELECT CAST(c AS ARRAY<ARRAY<ARRAY<INT>>>) AS s FROM t",
            "CAST(`c` AS ARRAY < ARRAY < ARRAY < INT >>>)",
        ),
    ],
)
def test_fields_and_signs_go_to_spark_as_they_are_meant(query: str, text: str) -> None:
    [view] = project(f"CREATE VIEW w AS {query}").views
    assert view.plan.outputs[0].expression.text == text  # type: ignore[union-attr]


def test_an_audit_is_a_query_that_no_sink_can_read() -> None:
    found = project(
        "CREATE MATERIALIZED VIEW w AS SELECT a FROM t; CREATE AUDIT x AS SELECT b FROM t;"
    )
    circuit = build_circuit(found)
    assert [(o.view, o.audit) for o in circuit.outboxes] == [("w", False), ("x", True)]
    assert "audit x (b) = %" in explain(found, circuit)
    with pytest.raises(
        ProjectError, match="the sink s reads 'x', which is no view of this project"
    ):
        project(
            "CREATE MATERIALIZED VIEW w AS SELECT a FROM t; CREATE AUDIT x AS SELECT b FROM t;"
            "CREATE SINK s FROM x USING kafka OPTIONS (topic = 'o', "
            "'kafka.bootstrap.servers' = 'b');"
        )
    with pytest.raises(ProjectError, match="publishes nothing"):
        project("CREATE AUDIT x AS SELECT b FROM t;")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("my shop", "' '"),
        ("shop~eu/1", "'/', '~'"),
        ("shop\n", "'\\n'"),
        ("s" * 238, "238 characters"),
        (
            "shop__maintenance",
            "__maintenance at its end, as the DAG that maintains another pipeline",
        ),
    ],
)
def test_a_name_that_no_dag_can_have(name: str, found: str) -> None:
    with pytest.raises(ProjectError) as refused:
        check_name(name, 3)
    lines = str(refused.value).splitlines()
    assert (
        lines[0] == f"spark-pipeline.yml:3:1: the name {name!r} cannot be that of a DAG in Airflow"
    )
    assert lines[1] == (
        "  expected: up to 237 letters, digits, dots, dashes and underscores, without __maintenance at "
        "their end"
    )
    assert lines[2].startswith(f"  found: {found}")
    assert lines[3] == "  next: write another `name:` in spark-pipeline.yml, as shop"


def test_the_line_of_the_name_is_known() -> None:
    spec = parse_spec("# a shop\n" + SPEC)
    assert (spec.name, spec.name_line) == ("shop", 2)
