"""Python functions in views: what they give on Spark, in SQL, and in the engine that verifies."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from frame_views import TYPES, python_functions, rows_of

from lockstep.adapters.python_views import with_python_views
from lockstep.adapters.verify_functions import make_functions
from lockstep.errors import WrongUse
from lockstep.sql.circuit import Project, ProjectFiles
from lockstep.sql.duckdb_text import duckdb_statements
from lockstep.sql.project import parse_project, read_project_files
from lockstep_engine.python_functions import register_functions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(__file__).parent / "functions"
VIEWS = (
    *("by_row", "by_text", "by_batch", "by_arrow", "grouped"),
    *("by_group", "by_group_in_arrow", "of_all", "of_nothing", "over_windows"),
)


@cache
def made() -> tuple[ProjectFiles, Project]:
    files = with_python_views(read_project_files(FOLDER), {})
    return files, parse_project(files, {})


def bag(rows: Any) -> Counter[str]:
    return Counter(repr(list(row)) for row in rows)


def test_each_function_is_declared_once_whoever_calls_it() -> None:
    files, project = made()
    plain = [function.name.rpartition("_")[0] for function in project.functions]
    assert plain == [
        *("added", "described", "halved", "known", "lambda", "raised", "shouted", "spread"),
    ]
    again = with_python_views(read_project_files(FOLDER), {})
    assert again.files == files.files


def test_a_name_says_what_its_function_does(tmp_path: Path) -> None:
    for name, text in read_project_files(FOLDER).files:
        changed = text.replace("STEP = 10", "STEP = 11")
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(changed, "utf-8")
    (tmp_path / "spark-pipeline.yml").write_text(read_project_files(FOLDER).spec, "utf-8")
    other = parse_project(with_python_views(read_project_files(tmp_path), {}), {})
    before, after = ({f.name for f in one.functions} for one in (made()[1], other))
    assert {name.rpartition("_")[0] for name in before ^ after} == {"raised"}


@pytest.mark.spark
@pytest.mark.parametrize("name", VIEWS)
def test_sql_and_verification_give_what_the_frame_gives(spark: SparkSession, name: str) -> None:
    _, project = made()
    spark.createDataFrame(rows_of("t", Random(7)), TYPES["t"]).createOrReplaceTempView("t")
    frames = python_functions(FOLDER / "transformations" / "views.py", spark)
    register_functions(spark, project.functions)
    [view] = [one for one in project.views if one.name == name]
    expected, found = frames[name](), spark.sql(view.sql)
    assert list(view.columns) == expected.columns
    assert [f.dataType for f in found.schema] == [f.dataType for f in expected.schema]
    assert bag(found.collect()) == bag(expected.collect())

    with duckdb.connect() as connection:
        connection.register("t", spark.table("t").toArrow())
        make_functions(connection, project.functions)
        for one in duckdb_statements(project):
            connection.execute(one.statement)
        verified = connection.execute(f"SELECT * FROM {name}").fetchall()
    assert bag(verified) == bag(expected.collect())


def test_another_python_cannot_verify() -> None:
    from dataclasses import replace

    [function, *_] = made()[1].functions
    with duckdb.connect() as connection, pytest.raises(WrongUse, match="another Python"):
        make_functions(connection, [replace(function, python="3.9")])
