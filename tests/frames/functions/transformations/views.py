"""Views that call Python functions, in the ways that Spark has of declaring them."""

from collections.abc import Iterator

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

spark = SparkSession.active()

STEP = 10


@F.udf("int")
def raised(value: int | None) -> int | None:
    return None if value is None else value + STEP


@F.pandas_udf("bigint")
def added(one: pd.Series, other: pd.Series) -> pd.Series:
    return one.fillna(0) + other.fillna(0)


@F.pandas_udf("string")
def shouted(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for batch in batches:
        yield batch.str.upper()


@F.arrow_udf("double")
def halved(value: pa.Array) -> pa.Array:
    return pc.divide(pc.cast(value, pa.float64()), 2.0)


@F.pandas_udf("string")
def described(numbers: pd.Series, texts: pd.Series) -> str:
    return f"{len(numbers)} {numbers.dtype} {numbers.min()} {sorted(map(str, texts))}"


@F.pandas_udf("double")
def spread(numbers: pd.Series) -> float:
    return float(numbers.max() - numbers.min())


@F.arrow_udf("bigint")
def known(values: pa.Array) -> pa.Scalar:
    return pc.count(values)


@dp.materialized_view
def by_row() -> DataFrame:
    return spark.table("t").select("a", raised("a"), raised(F.col("b") + 1).alias("more"))


@dp.materialized_view
def by_text() -> DataFrame:
    texts = F.udf(lambda *parts: "/".join(str(part) for part in parts), "string")
    return spark.table("t").select(texts("a", "c").alias("text"), "c")


@dp.materialized_view
def by_batch() -> DataFrame:
    return spark.table("t").select(added("a", "b").alias("s"), shouted("c").alias("c"))


@dp.materialized_view
def by_arrow() -> DataFrame:
    return spark.table("t").filter(halved("a") > 0).select(halved("a").alias("h"))


@dp.materialized_view
def grouped() -> DataFrame:
    return spark.table("t").groupBy(raised("a").alias("k")).agg(F.sum(raised("b")).alias("s"))


@dp.materialized_view
def by_group() -> DataFrame:
    return spark.table("t").groupBy("c").agg(described("a", "c").alias("d"), spread("b").alias("s"))


@dp.materialized_view
def by_group_in_arrow() -> DataFrame:
    return spark.table("t").groupBy("c").agg(known("a"), known(F.col("b") * 2).alias("k"))


@dp.materialized_view
def of_all() -> DataFrame:
    return spark.table("t").agg(known("a").alias("k"))


@dp.materialized_view
def of_nothing() -> DataFrame:
    return spark.table("t").filter("a > 100").agg(known("a").alias("k"))


@dp.materialized_view
def over_windows() -> DataFrame:
    whole = Window.partitionBy("c")
    before = whole.orderBy("a", "b").rowsBetween(Window.unboundedPreceding, -1)
    return spark.table("t").select(
        "a", spread("b").over(whole).alias("s"), known("a").over(before).alias("k")
    )
