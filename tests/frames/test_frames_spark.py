"""Spark as the judge: a view in Python means what the DataFrame means."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from frame_views import CORPUS, TYPES, made_corpus, python_functions, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PARTS = 8


@pytest.fixture(scope="module")
def functions(spark: SparkSession) -> dict[str, Any]:
    """The corpus over t, u and v."""
    random = Random(5)
    for name, schema in TYPES.items():
        spark.createDataFrame(rows_of(name, random), schema).createOrReplaceTempView(name)
    spark.conf.set("least", "1")
    found = python_functions(CORPUS / "transformations" / "views.py", spark)
    found["some"]().createOrReplaceTempView("some")
    return found


def _bag(frame: DataFrame) -> Counter[str]:
    return Counter(
        repr([round(v, 12) if isinstance(v, float) else v for v in row]) for row in frame.collect()
    )


@pytest.mark.parametrize("part", range(PARTS))
def test_a_python_view_means_what_its_frame_means(
    spark: SparkSession, functions: dict[str, Any], part: int
) -> None:
    _, project = made_corpus()
    assert {view.name for view in project.views} == set(functions)
    for view in project.views[part::PARTS]:
        expected, found = functions[view.name](), spark.sql(view.sql)
        assert list(view.columns) == expected.columns, view.name
        assert [f.dataType for f in found.schema] == [f.dataType for f in expected.schema]
        assert _bag(found) == _bag(expected), view.name
