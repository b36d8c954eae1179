"""Functions whose DataFrame can't be a view; what is said of each is in golden/frames/refused.txt."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

spark = SparkSession.active()


@dp.materialized_view
def sampled() -> DataFrame:
    return spark.table("t").sample(0.1)


@dp.materialized_view
def random() -> DataFrame:
    return spark.table("t").select(
        "a",
        F.rand(3).alias("r"),
    )


@dp.materialized_view
def streamed() -> DataFrame:
    return spark.readStream.table("t")


@dp.materialized_view
def files() -> DataFrame:
    return spark.read.json("/tmp/x.json")


@dp.materialized_view
def unknown_table() -> DataFrame:
    return spark.table("tt")


@dp.materialized_view
def unknown_column() -> DataFrame:
    one = spark.table("t")
    return one.select("a").filter("nope > 1")


@dp.materialized_view
def unknown_attribute() -> DataFrame:
    return spark.table("t").select(F.col("aa"))


@dp.materialized_view
def ambiguous() -> DataFrame:
    one = spark.table("t")
    return one.crossJoin(spark.table("u")).select("a")


@dp.materialized_view
def no_part() -> DataFrame:
    one, other = spark.table("t"), spark.table("u")
    return one.select(other["d"])


@dp.materialized_view
def counted() -> DataFrame:
    return spark.range(spark.table("t").count())


@dp.materialized_view
def collected() -> DataFrame:
    spark.table("t").collect()


@dp.materialized_view
def typed() -> DataFrame:
    return spark.range(len(spark.table("t").dtypes))


@dp.materialized_view
def cached() -> DataFrame:
    return spark.table("t").cache()


@dp.materialized_view
def named() -> DataFrame:
    spark.table("t").createOrReplaceTempView("x")


@dp.materialized_view
def written() -> DataFrame:
    spark.table("t").write.saveAsTable("x")


@dp.materialized_view
def set() -> DataFrame:
    spark.conf.set("a", "b")


@dp.materialized_view
def got() -> DataFrame:
    return spark.range(int(spark.conf.get("nope")))


@dp.materialized_view
def described() -> DataFrame:
    return spark.table("t").describe()


@dp.materialized_view
def watermarked() -> DataFrame:
    return spark.table("t").withWatermark("ts", "1 minute")


@dp.materialized_view
def mapped() -> DataFrame:
    return spark.table("t").mapInPandas(lambda rows: rows, "a INT")


@dp.materialized_view
def applied() -> DataFrame:
    return spark.table("t").groupBy("a").applyInPandas(lambda rows: rows, "a INT")


@dp.materialized_view
def pivoted() -> DataFrame:
    return spark.table("t").groupBy("a").pivot("c").count()


@dp.materialized_view
def fields() -> DataFrame:
    return spark.table("t").select(F.struct("a").alias("s")).select("s.*")


@dp.materialized_view
def unnamed() -> DataFrame:
    return spark.table("t").select(F.col("a") + F.sqrt("b"))


@dp.materialized_view
def twice_named() -> DataFrame:
    one = spark.table("t")
    return one.select("a", F.col("b").alias("A"))


@dp.materialized_view
def underscored() -> DataFrame:
    return spark.table("t").select(F.col("a").alias("_a"))


@dp.materialized_view
def widths() -> DataFrame:
    return spark.table("t").union(spark.table("u"))


@dp.materialized_view
def names() -> DataFrame:
    return spark.table("u").unionByName(spark.table("v"))


@dp.materialized_view
def filled() -> DataFrame:
    return spark.table("t").select((F.col("a") + 1).alias("n")).fillna(0)


@dp.materialized_view
def changed_field() -> DataFrame:
    one = spark.table("t").select(F.struct("a").alias("s"))
    return one.select(F.col("s").withField("b", F.lit(1)).alias("s"))


@dp.materialized_view
def subquery_in_text() -> DataFrame:
    return spark.table("t").filter("a IN (SELECT d FROM u)")


@dp.materialized_view
def no_text() -> DataFrame:
    return spark.table("t").filter("a >")


@dp.materialized_view
def wrong_sql() -> DataFrame:
    return spark.sql("SELECT nope FROM t")


@dp.materialized_view
def distinct_over() -> DataFrame:
    window = Window.partitionBy("c")
    return spark.table("t").select(F.count_distinct("a").over(window).alias("n"))


@dp.materialized_view
def many_rows() -> DataFrame:
    return spark.createDataFrame([(i,) for i in range(2000)], ["i"])


@dp.materialized_view
def schema() -> DataFrame:
    return spark.createDataFrame([(1,)], "a STRUCT<b: INT>")


@dp.materialized_view
def tail() -> DataFrame:
    return spark.createDataFrame(spark.table("t").tail(3))


@dp.materialized_view
def to_wrong_names() -> DataFrame:
    return spark.table("u").toDF("x")


@dp.materialized_view
def table_function() -> DataFrame:
    return spark.tvf.explode(F.array(F.lit(1)))


@dp.materialized_view
def user_function() -> DataFrame:
    double = F.udf(lambda a: a * 2, "int").asNondeterministic()
    return spark.table("t").select(double("a").alias("d"))


@dp.materialized_view
def function_by_name() -> DataFrame:
    double = F.udf(lambda a: a * 2, "int")
    return spark.table("t").select(double(a=F.col("a")).alias("d"))
