"""Expressions that are evaluated here: the values and the types that Spark gives them."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from lockstep.sql.plans.expressions import from_text
from lockstep.sql.plans.nodes import Expression, Output, Project, Scan
from lockstep_engine.local.formulas import projected, sifted
from lockstep_engine.local.rows import Rows
from lockstep_engine.told import fetched

pytestmark = pytest.mark.spark

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tiny": (pa.int8(), [1, -128, 127, None, 0, 2, 3, 24]),
    "whole": (pa.int32(), [1, None, 2**31 - 1, -5, 0, 24, 7, 10]),
    "large": (pa.int64(), [2**40, -1, None, 24, 0, 10, 2, -(2**62)]),
    "price": (pa.decimal128(15, 2), [*map(Decimal, ("0.05", "24", "-1.5", "1", "0", "9e12"))]),
    "rate": (pa.decimal128(9, 4), [*map(Decimal, ("0.05", "0.0499", "1", "-3", "24", "0"))]),
    "wide": (pa.decimal128(38, 10), [*map(Decimal, ("0.05", "24", "1e27", "-1e27", "1"))]),
    "sum": (pa.decimal128(36, 2), [*map(Decimal, ("0.05", "24", "-1e27", "1e31", "0", "0.01"))]),
    "finer": (
        pa.decimal128(38, 6),
        [*map(Decimal, ("0.05", "24.00005", "0.00995", "0.009949", "-0.00005", "1e31"))],
    ),
    "text": (pa.string(), ["", "a", "ab", "aéb", "a\nb", "A", "%", None]),
    "other": (pa.string(), ["b", "a", None, "aéb", "aé", "\U0001f600x", "_", "a%b"]),
    "ascii": (pa.string(), ["Ab c", " x ", None, "", "\tZ\n ", "~[`"]),
    "day": (pa.date32(), ["1998-09-02", "2024-02-29", None, "0001-01-01", "9999-12-31"]),
    "later": (pa.date32(), ["1998-09-03", None, "2024-02-29", "1969-12-31", "1970-01-01"]),
    "flag": (pa.bool_(), [True, False, None, True, None, False, True, False]),
    "real": (pa.float64(), [0.05, -0.0, float("nan"), None, 1.0]),
    "at": (
        pa.timestamp("us", "UTC"),
        [
            0,
            -1,
            1_700_000_000_123_456,
            None,
            -62_135_596_800_000_000,
            253_402_300_799_999_999,
            1_709_164_800_000_000,
            -86_400_000_001,
        ],
    ),
    "clock": (pa.timestamp("us"), [1_700_000_000_123_456, -1, 3_599_999_999, 951_782_400_000_000]),
    "path": (pa.string(), ["a/b/c", "/", "", None, "é//x/", "no", "a/b", "cc/c\U0001f600/cé"]),
    "sure": (pa.int32(), [1, -7, 24]),
    "word": (pa.string(), ["a/b", "", " C ", "cc"]),
    "always": (pa.timestamp("us", "UTC"), [1_700_000_000_123_456, -1]),
}
"""By name. A column of which no value is null is not nullable."""


def since_epoch(kind: pa.DataType, microseconds: int) -> Any:
    return pa.scalar(microseconds, kind)


def made_rows() -> Rows:
    """Each value of a column beside many of the others."""
    count, columns, fields = 240, {}, []
    for place, (name, (kind, values)) in enumerate(COLUMNS.items()):
        read = datetime.date.fromisoformat if pa.types.is_date(kind) else (lambda value: value)
        if pa.types.is_timestamp(kind):
            read = partial(since_epoch, kind)
        every = [None if value is None else read(value) for value in values]
        listed = [every[(n * (2 * place + 1) + n // 7) % len(every)] for n in range(count)]
        columns[name] = pa.array(listed, kind)
        fields.append(pa.field(name, kind, nullable=None in values))
    fields += [pa.field(name, pa.int64(), nullable=False) for name in ("_weight", "_step")]
    columns["_weight"] = pa.array([1] * count)
    columns["_step"] = pa.array(range(count))
    return Rows.of(pa.table(list(columns.values()), schema=pa.schema(fields)))


ROWS = made_rows()


def here(texts: Sequence[str], given: Rows = ROWS) -> Rows | None:
    outputs = tuple(Output(f"c{n}", from_text(text)) for n, text in enumerate(texts))
    return projected(given, Project(Scan("t", tuple(given.schema.names)), outputs))


def check(spark: SparkSession, texts: Sequence[str], given: Rows = ROWS) -> None:
    assert [text for text in texts if here([text], given) is None] == []
    found = here(texts, given)
    assert found is not None
    columns = (f"{text} AS c{n}" for n, text in enumerate(texts))
    rows, schema = fetched(given.along(spark).selectExpr(*columns, "_weight", "_step"))
    for text, ours, theirs in zip(texts, found.schema, schema, strict=False):
        assert ours == theirs, text
    wanted, made = rows.sort_by("_step").to_pydict(), found.table.to_pydict()
    for n, text in enumerate(texts):
        # By what is written: what is no number is not equal to itself, and zeros have signs.
        assert repr(made[f"c{n}"]) == repr(wanted[f"c{n}"]), text


MORE = [
    "`tiny` % 3",
    "`whole` % 7",
    "`large` % 123 = 0",
    "(`large` + 1) % 999999999",
    "`clock` + INTERVAL 90 MINUTES",
    "`clock` - INTERVAL '1' DAY",
    "`clock` - INTERVAL '12' MILLISECONDS > `clock`",
    "`at` BETWEEN `at` - INTERVAL 10 SECONDS AND `at`",
    "hour(`at`)",
    "hour(`clock`) BETWEEN 8 AND 18",
    "date_format(`at`, 'yyyy-MM-dd')",
    "date_format(`at`, 'HH:mm')",
    "date_format(`clock`, 'MMmmHHdd')",
    "date_format(`clock`, 'ss% yyyy/MM')",
    "date_format(`clock`, '- _ -')",
    "length(`other`)",
    "length(`path`) - length(replace(`path`, 'c', ''))",
    "replace(`path`, '/', 'é/')",
    "split_part(`path`, '/', 1)",
    "split_part(`path`, '/', 3)",
    "split_part(`path`, '//', 2)",
    "split_part(`path`, 'c', 4)",
    "NULL",
    "7L",
    "`whole` * 3L + 1",
    "`large` = 7L",
    "CASE WHEN `flag` THEN 1L ELSE 0 END",
    "CASE WHEN `flag` THEN `day` ELSE NULL END",
    "IF(`flag`, `whole`, 0)",
    "if(`whole` > 1 AND `flag`, `text`, 'none')",
    "coalesce(`whole`, 0)",
    "coalesce(`tiny`, `whole`, `large`)",
    "coalesce(`price`, 0)",
    "coalesce(`text`, 'none')",
    "nvl(`day`, `later`)",
    "ifnull(`real`, `real` * 2.0)",
    "concat(`text`, '/', `other`)",
    "concat(`other`)",
    "`text` || `other` || 'é'",
    "lower(`ascii`)",
    "upper(`ascii`)",
    "trim(`ascii`)",
    "TRIM(`text`)",
    "CAST(`tiny` AS INT)",
    "CAST(`whole` AS BIGINT)",
    "CAST(`large` AS STRING)",
    "CAST(`text` AS STRING)",
    "CAST(`path` AS VARCHAR(3))",
    "CAST(`large` AS DOUBLE)",
    "CAST(`at` AS DATE)",
    "CAST(`clock` AS DATE)",
    "CAST(`day` AS DATE)",
    "year(`clock`)",
    "month(`day`) + month(`at`)",
    "day(`clock`)",
    "dayofmonth(`day`)",
    "date_trunc('hour', `at`)",
    "date_trunc('DAY', `at`)",
    "date_trunc('Millisecond', `at`)",
    "abs(`whole` - 1)",
    "CASE `whole` WHEN 1 THEN 'one' WHEN `tiny` THEN 'other' ELSE `text` END",
    "CASE lower(`ascii`) WHEN 'x' THEN 1 WHEN '' THEN 2 END",
    "regexp_extract(`path`, '/([a-z]+)', 1)",
    "regexp_extract(`path`, '([^/]*)/', 1)",
    "regexp_extract(`path`, 'c?([^a])c*', 1)",
    "regexp_extract(`other`, 'a([%b]?)', 1)",
    "regexp_extract(`text`, 'a([^b-z]*)', 1)",
    "abs(`whole` - 100)",
    "abs(`real`)",
]
"""Of times, and functions of texts."""

SURE = {
    **dict.fromkeys(("tiny", "whole", "large"), "`sure`"),
    **dict.fromkeys(("text", "other", "ascii", "path"), "`word`"),
    "at": "`always`",
}
SOME = f"`({'|'.join(SURE)})`"
"""Columns that may be null, and such that may not in their place."""


def test_values_and_types_are_those_of_spark(spark: SparkSession) -> None:
    check(
        spark,
        [
            "`price` * (1 - `rate`)",
            "`price` * (1 - `rate`) * (1 + `rate`)",
            "`price` - `rate` * `whole`",
            "`rate` + .05",
            "`rate` * -12.50",
            "`large` * 0.5",
            "`price` * -1",
            "- 1.25 * `rate` - 1",
            "`whole` = `tiny` IS NULL",
            "`tiny` + 0 - 3 * 4",
            "`large` * 2 - `whole` * 0",
            "`tiny` + 1 - `large`",
            "`tiny` = `large`",
            "`whole` <> `price`",
            "`tiny` < 24",
            "CAST(3 AS INT) * `price`",
            "`rate` + CAST(-2 AS INT)",
            "`price` > CAST((24) AS INT)",
            "CAST(7 AS INT) - `large`",
            "`whole` * CAST((-1) AS INT)",
            "`price` <= 24",
            "`price` BETWEEN.06 - 0.01 AND.06 + 0.01",
            "`wide` > 1.0",
            "`wide` >= 5",
            "`rate` IN (0.05, 1, -3.0)",
            "`whole` NOT IN (1, 24)",
            "`text` = 'ab'",
            "`text` <> `other`",
            "`text` < `other`",
            "`text` IN ('a', 'A')",
            "`text` LIKE 'a%b'",
            "`text` LIKE 'a_b'",
            "`other` LIKE '__'",
            "`text` NOT LIKE '%'",
            "`other` LIKE 'a%%b'",
            "`other` LIKE 'b'",
            "substring(`text`, 1, 2)",
            "substring(`other`, 1, 1) IN ('a', 'b')",
            "substring(`text`, 1, 0)",
            "`day` <= date '1998-12-01' - INTERVAL '90' day",
            "`day` < `later`",
            "year(`day`)",
            "`day` IS NULL",
            "`real` IS NOT NULL",
            "`price` IS NULL",
            "`flag`",
            "NOT `flag` OR `text` = 'a'",
            "`flag` AND `whole` > 0",
            "`flag` = TRUE",
            "(`flag` OR `day` IS NULL) AND NOT (`tiny` > 1)",
            "CASE WHEN `text` IS NULL THEN 1 END",
            "CASE WHEN `flag` THEN `price` * (1 - `rate`) ELSE 0 END",
            "CASE WHEN `flag` THEN 1 WHEN `whole` > 1 THEN 2 ELSE 0 END",
            "CASE WHEN `flag` THEN `tiny` ELSE `whole` END",
            "CASE WHEN `flag` THEN 'yes' ELSE `text` END",
            "CASE WHEN `flag` THEN `day` END",
            *MORE,
            *(re.sub(SOME, lambda one: SURE[one.group(1)], text) for text in MORE),
            "1.0 - 0.25",
            "1 + 2",
            "'x'",
        ],
    )


def test_decimals_have_as_many_digits_as_in_spark(spark: SparkSession) -> None:
    """Beyond 38 digits they lose some."""
    check(
        spark,
        [
            "`price` / 7.0",
            "`rate` / (`price` * `price` + 1)",
            "100.00 * `price` / (`rate` * `rate` + 3)",
            "`whole` / 3.7",
            "-2.5 / (`large` * 0 + 3.0)",
            "`wide` / 3.000000001",
            "`sum` * 0.0001",
            "`wide` * 0.0000001",
            "`wide` + `price`",
            "(`price` * 0.5) * 0.0001000000 * 1.000000005",
            "`sum` > `sum` * 0.0001",
            "`sum` < `finer`",
            "`sum` = `finer`",
            "`finer` >= `sum`",
            "`sum` - `rate`",
        ],
    )


NINES = "9" * 38
LONG: dict[str, tuple[int, int, list[str]]] = {
    "a": (38, 10, [f"{NINES[:28]}.{NINES[:10]}", f"-{NINES[:27]}.{NINES[:10]}", "0.5"]),
    "b": (38, 10, ["0", "0", "1"]),
    "c": (36, 18, [f"-{NINES[:18]}.{NINES[:18]}", f"{NINES[:17]}.{NINES[:18]}", "1"]),
    "d": (25, 2, ["-4.72", "0.01", "1"]),
    "e": (38, 38, [f"-0.{NINES}", "0.5", "0.1"]),
    "f": (18, 18, ["0.000000002984861641", "-0.5", "0.333333333333333333"]),
    "g": (18, 2, ["-3856.70", "0.03", "7"]),
    "h": (38, 38, ["1E-27", "-5E-38", f"0.{NINES}"]),
}
"""By name: digits, scale, values. Decimals that have no digit to spare, or whose quotients end close to
a half."""


def test_decimals_without_a_digit_to_spare(spark: SparkSession) -> None:
    columns = {
        name: pa.array(map(Decimal, values), pa.decimal128(digits, scale))
        for name, (digits, scale, values) in LONG.items()
    }
    numbers = {"n": [28733646749, 3, 7], "_weight": [1, 1, 1], "_step": [0, 1, 2]}
    given = Rows.of(pa.table({**columns, **numbers}))
    check(spark, ["`a` + `b`", "`c` < `d`", "`d` >= `c`", "-1 * `e`"], given)
    check(spark, ["`f` / `g`", "`h` / `n`", "`h` / 3.0", "`g` / `f`"], given)
    check(spark, ["`a` * 1.0"], given.where(pa.array([False, True, True])))


@pytest.mark.parametrize(
    "text",
    [
        "`wide` * `price`",
        "`large` > 4.9999999999999999999999999999",
        "4.9999999999999999999999999999 < `large`",
        "`large` BETWEEN 4.9999999999999999999999999999 AND 6",
        "`whole` < 123456789012345678901234.5",
        "-9223372036854775808.0 < `whole`",
        "`price` / `rate`",
        "`price` / 0.0",
        "`whole` + 2147483 * 1000",
        "`large` * `large`",
        "`text` = 1",
        "`day` = '1998-09-02'",
        "`flag` = 1",
        "`text` AND `flag`",
        "`whole` LIKE '1%'",
        "year(`text`)",
        "substring(`whole`, 1, 1)",
        "CASE WHEN `flag` THEN `text` ELSE 1 END",
        "CASE WHEN `whole` THEN 1 END",
        "`day` + 1",
        "`day` + INTERVAL 1 HOUR",
        "`text` + INTERVAL 1 HOUR",
        "`price` % 2",
        "`real` % 2",
        "1 % 2",
        "hour(`day`)",
        "date_format(`day`, 'yyyy')",
        "length(`whole`)",
        "replace(`whole`, '1', '2')",
        "split_part('a/b', '/', 1)",
        "`day`.x",
        "`price` > 1e0",
        "1 - 0.25",
        "`whole` + NULL",
        "`large` IN (`whole`, `real`)",
        "`large` IN (1, 0.5, `real`)",
        "coalesce(`whole`, NULL)",
        "coalesce(`text`, 1)",
        "coalesce(`real`, 1)",
        "coalesce(1, 2)",
        "concat(`text`, `whole`)",
        "concat('a', 'b')",
        "`text` || 1",
        "`price` + 7L",
        "lower(`other`)",
        "upper(`whole`)",
        "trim(`whole`)",
        "trim('x' FROM `text`)",
        "CAST(`large` AS INT)",
        "CAST(`text` AS DATE)",
        "CAST(`text` AS INT)",
        "CAST(`price` AS STRING)",
        "CAST(`real` AS STRING)",
        "try_cast(`whole` AS BIGINT)",
        "date_trunc('week', `at`)",
        "date_trunc('hour', `clock`)",
        "date_trunc('hour', `day`)",
        "date_trunc(`text`, `at`)",
        "abs(`price`)",
        "abs(`text`)",
        "month(`text`)",
        "IF(TRUE, `whole`, 0)",
        "IF(`flag`, `whole`, `text`)",
    ],
)
def test_what_has_other_rules_is_left_to_spark(text: str) -> None:
    assert here([text]) is None


NUMBERS = st.recursive(
    st.sampled_from(
        ["`tiny`", "`whole`", "`price`", "`rate`", "`real`", "0", "7", "-1", "0.5", "12.25", "3L"]
    ),
    lambda inner: st.builds(
        lambda left, sign, right: f"({left} {sign} {right})", inner, st.sampled_from("+-*/"), inner
    ),
    max_leaves=3,
)
SIGNS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
TRUTHS = st.recursive(
    st.one_of(
        st.builds(lambda a, sign, b: f"({a} {sign} {b})", NUMBERS, SIGNS, NUMBERS),
        st.builds(
            lambda a, sign, b: f"({a} {sign} {b})",
            st.sampled_from(["`text`", "`other`", "'a'"]),
            SIGNS,
            st.sampled_from(["`text`", "`other`", "'aé'"]),
        ),
        st.sampled_from(["`flag`", "(`day` IS NULL)", "(`other` LIKE '%b')", "(`day` < `later`)"]),
    ),
    lambda inner: st.one_of(
        st.builds(
            lambda a, sign, b: f"({a} {sign} {b})", inner, st.sampled_from(["AND", "OR"]), inner
        ),
        st.builds(lambda a: f"(NOT {a})", inner),
    ),
    max_leaves=4,
)
TEXTS = st.one_of(
    NUMBERS,
    TRUTHS,
    st.builds(lambda a, b, c: f"CASE WHEN {a} THEN {b} ELSE {c} END", TRUTHS, NUMBERS, NUMBERS),
    st.builds(lambda a, b, c: f"coalesce({a}, {b}, {c})", NUMBERS, NUMBERS, NUMBERS),
)


@hypothesis.settings(max_examples=60)
@hypothesis.given(st.lists(TEXTS, min_size=8, max_size=16))
def test_any_of_them_is_as_in_spark_or_left_to_it(spark: SparkSession, texts: list[str]) -> None:
    evaluated = [text for text in texts if here([text]) is not None]
    hypothesis.target(float(len(evaluated)))
    if evaluated:
        check(spark, evaluated)


def test_no_pattern_is_for_texts_that_are_not_utf_8() -> None:
    made = pa.array([b"\xff", b"a\xffb"]).cast(pa.string(), safe=False)
    rows = Rows.of(pa.table({"text": made, "_weight": [1, 1], "_step": [0, 0]}))
    condition = from_text("`text` LIKE 'a_b'")
    assert sifted(rows, [condition]) == (rows, [condition])
    assert len(sifted(rows, [from_text("`text` = 'a'")])[0]) == 0


def test_rows_are_sifted_by_what_stands_before_the_first_that_is_not_simple() -> None:
    conditions = [from_text(text) for text in ("`whole` > 1", "`flag`", "`real` > 0", "`tiny` = 1")]
    rows, left = sifted(ROWS, conditions)
    assert [one.text for one in left] == ["`real` > 0", "`tiny` = 1"]
    kept = [
        step
        for step, whole, flag in zip(
            *(ROWS.table[name].to_pylist() for name in ("_step", "whole", "flag")), strict=True
        )
        if whole is not None and whole > 1 and flag
    ]
    assert rows.table["_step"].to_pylist() == kept != []
    none: Sequence[Expression] = ()
    assert sifted(ROWS, [from_text("1 = 2")])[1] == none
    assert len(sifted(ROWS, [from_text("1 = 2")])[0]) == 0
    assert len(sifted(ROWS, [from_text("1 = 1")])[0]) == len(ROWS)


def test_years_of_more_than_four_digits_are_left_to_spark() -> None:
    late = pa.array([253_402_300_800_000_000], pa.timestamp("us"))
    rows = Rows.of(pa.table({"at": late, "_weight": [1], "_step": [0]}))
    assert here(["date_format(`at`, 'yyyy')"], rows) is None
    assert here(["hour(`at`)"], rows) is not None
    last = pa.array([2**63 - 1], pa.timestamp("us"))
    rows = Rows.of(pa.table({"at": last, "_weight": [1], "_step": [0]}))
    assert here(["`at` + INTERVAL 1 MICROSECOND"], rows) is None
    assert here(["`at` - INTERVAL 1 MICROSECOND"], rows) is not None


def test_fields_of_a_column(spark: SparkSession) -> None:
    fields = [pa.field("Start", pa.int32()), pa.field("end", pa.string(), nullable=False)]
    made = pa.StructArray.from_arrays(
        [pa.array([1, None], pa.int32()), pa.array(["a", "b"])], fields=fields
    )
    columns = [made, pa.array([1, 1]), pa.array([0, 1])]
    schema = pa.schema(
        [
            pa.field("w", made.type, nullable=False),
            *(pa.field(name, pa.int64(), nullable=False) for name in ("_weight", "_step")),
        ]
    )
    given = Rows.of(pa.table(columns, schema=schema))
    check(spark, ["`w`.start", "`w`.END", "`w`.`end` = 'a'"], given)
    assert here(["`w`.other"], given) is None
    missing = pa.StructArray.from_arrays(
        [pa.array([1, 2], pa.int32()), pa.array(["a", "b"])],
        fields=fields,
        mask=pa.array([True, False]),
    )
    table = pa.table({"w": missing, "_weight": [1, 1], "_step": [0, 1]})
    assert here(["`w`.start"], Rows.of(table)) is None
