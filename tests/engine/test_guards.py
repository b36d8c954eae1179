"""Guards against Spark itself: a row fails where Spark fails for it alone, else has Spark's value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lockstep.sql.plans.expressions import from_text
from lockstep.sql.plans.guards import guard
from lockstep_engine.failures import is_of_a_row

pytestmark = pytest.mark.spark

COLUMNS = {
    "a": "INT",
    "b": "INT",
    "n": "BIGINT",
    "f": "DOUBLE",
    "x": "DECIMAL(38,2)",
    "s": "STRING",
    "d": "DATE",
    "ts": "TIMESTAMP",
    "l": "ARRAY<INT>",
    "m": "MAP<STRING,INT>",
}
NULLS = dict.fromkeys(COLUMNS, "NULL")
ROWS: list[Mapping[str, str]] = [
    NULLS,
    {**NULLS, "a": "7", "b": "2", "n": "5", "f": "1.5", "x": "3.25", "s": "'12'", "l": "array(1)"},
    {**NULLS, "a": "7", "b": "0", "n": "0", "f": "0.0", "x": "0", "s": "'no'", "l": "array()"},
    {**NULLS, "a": "2147483647", "b": "2147483647", "n": "9223372036854775807", "f": "1e300"},
    {**NULLS, "n": "-9223372036854775808", "a": "-1", "b": "-1", "f": "double('NaN')"},
    {
        **NULLS,
        "x": "repeat('9', 36)",
        "a": "0",
        "s": "'2024-02-30'",
        "b": "3",
        "l": "array(1, NULL)",
    },
    {**NULLS, "d": "DATE '2024-01-31'", "a": "1", "b": "2", "s": "'2024-02-03'"},
    {
        **NULLS,
        "ts": "timestamp_micros(9223372036854775807)",
        "d": "date_from_unix_date(2147483647)",
        "b": "1",
    },
    {**NULLS, "m": "map('12', 5, 'no', NULL)", "s": "'no'", "a": "0"},
    {**NULLS, "m": "map('12', 0)", "s": "'13'", "a": "8", "b": "300"},
    {**NULLS, "a": "0", "b": "0", "l": "array(3)"},
    {**NULLS, "n": "5", "b": "0", "d": "DATE '2024-02-29'"},
    {**NULLS, "d": "date_from_unix_date(2147483647)", "a": "1", "m": "map('12', 2147483647)"},
    {**NULLS, "b": "2147483647", "s": "'12'", "n": "5", "f": "2.5"},
    {**NULLS, "a": "7", "s": "'it''s \\\\ \"x\"'", "b": "1"},
]
EXPRESSIONS = [
    "`a` / `b`",
    "`a` + `b` * 2",
    "`n` - 1 + `a`",
    "`a` % `b`",
    "mod(`n`, `b`)",
    "`n` div `a`",
    "`x` * `x`",
    "`x` / `a`",
    "`f` / `b`",
    "1 + `f` * `f`",
    "CAST(`s` AS INT)",
    "`s`::DATE",
    "CAST(`n` AS INT)",
    "CAST(`f` AS BIGINT) + CAST(`s` AS DECIMAL(4, 2))",
    "CAST(`b` AS TINYINT)",
    "CAST(`x` AS DECIMAL(6,2))",
    "int(`s`)",
    "date(`s`)",
    "to_date(`s`, 'yyyy-MM-dd')",
    "to_timestamp(`s`)",
    "make_timestamp(2024, `a`, `b`, 1, 2, 3)",
    "`ts` + INTERVAL 1 SECOND",
    "`d` + `a`",
    "`d` - INTERVAL 1 MONTH",
    "`d` - DATE '2024-01-01'",
    "element_at(`l`, if(`b` > 0, `b`, 1))",
    "element_at(`m`, `s`)",
    "`m`['12'] + `a`",
    "CASE WHEN `b` = 0 THEN 0 ELSE `a` / `b` END",
    "CASE WHEN `b` > 1 THEN `a` / `b` WHEN 1 / `a` > 0.2 THEN 3 END",
    "CASE `a` WHEN 10 / `b` THEN 1 WHEN CAST(`s` AS INT) THEN 2 END",
    "if(`b` = 0, 1 / `a`, `a` / `b`)",
    "coalesce(`a`, `n` / `b`)",
    "coalesce(`n` / `b`, `a` + 1)",
    "nvl2(`s`, `a` / `b`, 0)",
    "nvl(`d`, CAST(`s` AS DATE))",
    "`b` <> 0 AND `a` / `b` > 1",
    "`b` = 0 OR `a` / `b` > 1",
    "NOT (CAST(`s` AS INT) > 3) AND 1 / `a` > 0",
    "`a` IN (1, 14 div `b`)",
    "`a` BETWEEN 1 AND 14 / `b`",
    "upper(CAST(`a` / `b` AS STRING)) || 'it''s'",
    "TRY_CAST(`s` AS INT) + `b`",
    "size(`l`) / `b`",
    "get(transform(`l`, one -> one + 1), 0) / `b`",
    "extract(YEAR FROM CAST(`s` AS DATE))",
    "struct(`a` / `b` AS q, `s`).q",
]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> Any:
    values = ", ".join(
        "("
        + ", ".join([str(number), *(f"CAST({one[c]} AS {t})" for c, t in COLUMNS.items())])
        + ")"
        for number, one in enumerate(ROWS)
    )
    names = ", ".join(["id", *COLUMNS])
    # Spark takes a single row's expression apart before it runs; a repartition keeps it a job.
    return spark.sql(f"SELECT * FROM VALUES {values} AS t ({names})").repartition(2).persist()


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_a_row_fails_where_spark_fails(rows: Any, text: str) -> None:
    found = guard(from_text(text))
    assert found is not None
    guarded = rows.selectExpr(
        "id", f"{found.failure.text} AS failure", f"CAST({found.safe.text} AS STRING) AS safe"
    )
    failure = {row.id: row.failure for row in guarded.collect()}
    sound = ", ".join(str(id_) for id_, words in failure.items() if words is None)
    by_spark = rows.where(f"id IN ({sound})").selectExpr("id", f"CAST({text} AS STRING) AS value")
    by_guard = guarded.where("failure IS NULL").select("id", "safe")
    assert _by_id(by_guard) == _by_id(by_spark)
    types = [rows.selectExpr(one).schema.fields[0].dataType for one in (found.safe.text, text)]
    assert types[0] == types[1]
    for id_, words in failure.items():
        if words is not None:
            assert _plain(words) in _plain(text)
            with pytest.raises(PySparkException) as caught:
                rows.where(f"id = {id_}").selectExpr(text).collect()
            assert is_of_a_row(caught.value)


def test_every_expression_fails_for_some_row(rows: Any) -> None:
    """Else the test above shows nothing of it."""
    columns = []
    for place, text in enumerate(EXPRESSIONS):
        found = guard(from_text(text))
        assert found is not None
        columns.append(f"count({found.failure.text}) AS n{place}")
    [counts] = rows.selectExpr(*columns).collect()
    sound = [text for text, count in zip(EXPRESSIONS, counts, strict=True) if not count]
    assert sound == [
        "1 + `f` * `f`",
        "`d` + `a`",
        "`d` - INTERVAL 1 MONTH",
        "element_at(`m`, `s`)",
        "CASE WHEN `b` = 0 THEN 0 ELSE `a` / `b` END",
        "`b` <> 0 AND `a` / `b` > 1",
        "`b` = 0 OR `a` / `b` > 1",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "`a`",
        "upper(`s`)",
        "`l`[3]",
        "-`a`",
        "TRY_CAST(`s` AS INT)",
        "CAST(`s` AS VARCHAR(3))",
        "`a` = CAST(3L AS BIGINT)",
        "`a` = CAST((-3) AS INT)",
        "raise_error('no')",
    ],
)
def test_what_has_no_form_is_left(text: str) -> None:
    assert guard(from_text(text)) is None


def test_what_is_not_of_a_row_is_told_apart(spark: SparkSession) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.sql("SELECT no_such_column").collect()
    assert not is_of_a_row(caught.value)


def _by_id(frame: Any) -> dict[int, str]:
    return {row[0]: row[1] for row in frame.collect()}


def _plain(text: str) -> str:
    return re.sub(r"\s+", "", text).lower()
