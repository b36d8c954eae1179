"""DataFrames as people write them, by what they show; Spark says what each means."""

import datetime as dt
from decimal import Decimal

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

spark = SparkSession.active()


def t() -> DataFrame:
    return spark.read.table("t")


def u() -> DataFrame:
    return spark.table("u")


def v() -> DataFrame:
    return spark.table("v")


# ── columns ───────────────────────────────────────────────────────────────────────────────────────


@dp.materialized_view
def chosen() -> DataFrame:
    return t().select("a", F.col("b"), "c")


@dp.materialized_view
def everything() -> DataFrame:
    return t().select("*", (F.col("a") + 1).alias("more"))


@dp.materialized_view
def attributes() -> DataFrame:
    one = t()
    return one.filter(one.a > 1).select(one.a, one["b"], (one.b * 2 - one.a).alias("z"))


@dp.materialized_view
def named_columns() -> DataFrame:
    one = t()
    return one.select([F.col(name) for name in one.columns if name not in ("x", "arr")])


@dp.materialized_view
def with_columns() -> DataFrame:
    return (
        t()
        .withColumn("a", F.col("a") * 10)
        .withColumn("n", F.col("a") + F.col("b"))
        .withColumns({"p": F.col("n") % 3, "q": F.upper("c")})
        .drop("x", "arr", "not there")
    )


@dp.materialized_view
def renamed() -> DataFrame:
    return u().withColumnRenamed("a", "k").withColumnsRenamed({"d": "v", "e": "w"}).filter("k > v")


@dp.materialized_view
def to_df() -> DataFrame:
    return u().toDF("x", "y", "z").select("z", "x")


@dp.materialized_view
def dropped_by_column() -> DataFrame:
    one = u()
    return one.drop(one["d"], F.col("nope"))


@dp.materialized_view
def filters() -> DataFrame:
    return (
        t()
        .where((F.col("a") > 0) & ((F.col("b") < 3) | F.col("c").isNull()) & ~F.col("ok"))
        .filter("a <> 3 OR b = 1")
        .select("a", "b", "c")
    )


@dp.materialized_view
def hidden_filter() -> DataFrame:
    one = t()
    return one.select("b").filter(one["a"] > 1).filter("b > 0")


@dp.materialized_view
def texts() -> DataFrame:
    return t().selectExpr(
        "a", "b + 1 AS more", "upper(c) u", "cast(a as string) s", "get(arr, 0) AS z"
    )


@dp.materialized_view
def words() -> DataFrame:
    return (
        t()
        .select(F.expr("CASE WHEN a > b THEN 'it''s' ELSE c END").alias("w"), "c")
        .where(F.expr("length(w) > 1 and c is not null"))
    )


@dp.materialized_view
def operators() -> DataFrame:
    a, b, c = F.col("a"), F.col("b"), F.col("c")
    return t().select(
        (-(a + b) * 2).alias("m"),
        (a - (b - 1)).alias("n"),
        (a / F.lit(4)).alias("o"),
        (10 - a).alias("p"),
        (a == b).alias("q"),
        (a != b).alias("r"),
        a.eqNullSafe(b).alias("s"),
        a.isin(1, 2, None).alias("aa"),
        (~a.isin([1, 2])).alias("ab"),
        c.like("x%").alias("ac"),
        (~c.rlike("^x")).alias("ad"),
        a.between(1, b).alias("ae"),
        c.startswith("x").alias("af"),
        c.contains("s").alias("ag"),
        c.substr(1, 2).alias("ah"),
        a.bitwiseAND(3).bitwiseOR(b).alias("ai"),
        (a.isNull() | b.isNotNull()).alias("aj"),
        (~(a > b)).alias("ak"),
        a.isin([]).alias("al"),
        ((a > 1) == (b > 1)).alias("am"),
        F.col("x").isNaN().alias("an"),
    )


@dp.materialized_view
def cases() -> DataFrame:
    return t().select(
        F.when(F.col("a") > 2, "large")
        .when(F.col("a") > 0, F.col("c"))
        .otherwise("none")
        .alias("k"),
        F.when(F.col("b") == 1, 1).alias("one"),
        F.coalesce("b", F.lit(0)).alias("b0"),
        F.greatest("a", "b").alias("g"),
    )


@dp.materialized_view
def literals() -> DataFrame:
    return u().select(
        F.lit(1).alias("i"),
        F.lit(2**40).alias("l"),
        F.lit(1.5).alias("d"),
        F.lit("it's a \\ 'b'").alias("s"),
        F.lit(True).alias("b"),
        F.lit(None).cast("int").alias("n"),
        F.lit(dt.date(2024, 2, 29)).alias("day"),
        F.lit(dt.datetime(2024, 2, 29, 1, 2, 3, 4)).alias("moment"),
        F.lit(Decimal("1.50")).alias("dec"),
        F.lit(dt.timedelta(days=-1, seconds=3)).alias("span"),
        F.lit([1, 2]).alias("many"),
        F.lit(float("-inf")).alias("inf"),
        F.lit("${least}").alias("text"),
        F.lit(-1).alias("minus"),
        F.lit("line\nbreak").alias("lines"),
    )


@dp.materialized_view
def casts() -> DataFrame:
    return t().select(
        F.col("a").cast("string"),
        F.col("a").cast("bigint").alias("l"),
        F.col("m").cast("decimal(10,1)").alias("m1"),
        F.col("ts").cast("date").alias("day"),
        F.col("c").try_cast("int").alias("ci"),
    )


@dp.materialized_view
def nested() -> DataFrame:
    made = t().select(
        "a",
        F.struct("a", F.col("b").alias("bee"), (F.col("a") + 1).alias("next")).alias("s"),
        F.array("a", "b").alias("l"),
        F.create_map(F.lit("k"), "a").alias("m"),
    )
    return made.select(
        "s.bee",
        F.col("s").getField("next").alias("f"),
        F.col("s")["a"].alias("g"),
        F.col("l").getItem(1).alias("h"),
        F.col("m")["k"].alias("i"),
        F.col("l")[0].alias("j"),
        made.s.bee.alias("k"),
        F.struct("s.bee", "a").alias("n"),
    )


@dp.materialized_view
def lambdas() -> DataFrame:
    return t().select(
        F.transform("arr", lambda x: x * 2 + F.col("a")).alias("d"),
        F.filter("arr", lambda x: x > 1).alias("f"),
        F.aggregate("arr", F.lit(0), lambda acc, x: acc + F.coalesce(x, F.lit(0))).alias("s"),
        F.exists("arr", lambda x: x == 1).alias("e"),
        F.transform("arr", lambda x, i: F.struct(x.alias("x"), i.alias("i"))).alias("p"),
        F.transform("arr", lambda x: F.aggregate("arr", x, lambda acc, x: acc + x)).alias("n"),
    )


@dp.materialized_view
def functions() -> DataFrame:
    return t().select(
        F.concat_ws("-", "c", F.lit("z")).alias("c1"),
        F.date_trunc("minute", "ts").alias("ts1"),
        F.round("m", 1).alias("m1"),
        F.regexp_replace("c", "[aeiou]", "_").alias("c2"),
        F.to_date("ts").alias("day"),
        F.size("arr").alias("n"),
        F.array_contains("arr", 1).alias("has"),
        F.split(F.lit("a,b"), ",")[1].alias("second"),
        F.xxhash64("a", "b").alias("h"),
        F.extract(F.lit("SECOND"), "ts").alias("sec"),
        F.trim(F.lit("  x ")).alias("tr"),
        F.expr("ts + INTERVAL 1 DAY").alias("tomorrow"),
        F.date_format("ts", "yyyy-MM-dd").alias("ymd"),
        F.sequence(F.lit(1), F.lit(3)).alias("seq"),
        F.nvl("a", F.lit(9)).alias("nv"),
        F.isnull("a").alias("isn"),
    )


# ── joins ─────────────────────────────────────────────────────────────────────────────────────────


@dp.materialized_view
def join_on() -> DataFrame:
    left, right = t(), u()
    return left.join(right, left["a"] == right["a"]).select(left["a"], right["d"], "e", left.b)


@dp.materialized_view
def join_drop() -> DataFrame:
    left, right = t().select("a", "b"), u()
    return left.join(right, left.a == right.a, "left").drop(right.a)


@dp.materialized_view
def join_using() -> DataFrame:
    right = u()
    return t().join(right, "a", "left").select("a", "b", right["a"].alias("ua"), "d")


@dp.materialized_view
def join_using_right() -> DataFrame:
    return t().select("a", "b").join(u(), ["a"], "right")


@dp.materialized_view
def join_using_full() -> DataFrame:
    return t().select("a", "b").join(u(), "a", "outer").filter("a > 0")


@dp.materialized_view
def join_semi() -> DataFrame:
    left, right = t().select("a", "b"), u()
    return left.join(right, (left.a == right.a) & (left.b < right.d), "left_semi")


@dp.materialized_view
def join_anti() -> DataFrame:
    return t().select("a", "b").join(u(), "a", "left_anti")


@dp.materialized_view
def join_cross() -> DataFrame:
    return u().crossJoin(v().withColumnRenamed("d", "vd"))


@dp.materialized_view
def join_less() -> DataFrame:
    left, right = t(), u()
    return left.join(right, [left.a == right.a, left.b > right.d]).select(left.a, "b", "d")


@dp.materialized_view
def join_three() -> DataFrame:
    return t().join(u(), "a").join(v(), "d", "left").select("a", "b", "d", "f")


@dp.materialized_view
def join_self_by_alias() -> DataFrame:
    p, q = t().alias("p"), t().alias("q")
    return p.join(q, F.col("p.a") == F.col("q.b")).select("p.a", F.col("q.c").alias("qc"), "q.b")


@dp.materialized_view
def join_star_of_alias() -> DataFrame:
    p, q = u().alias("p"), v().alias("q")
    return p.join(q, F.expr("p.d = q.d"), "left").select("p.*", "f")


@dp.materialized_view
def join_self_of_filter() -> DataFrame:
    one = u()
    small = one.filter("d < 2").select(F.col("a").alias("sa"), F.col("d").alias("sd"))
    return one.join(small, one.a == small.sa)


@dp.materialized_view
def join_of_groups() -> DataFrame:
    counted = u().groupBy("a").agg(F.count("*").alias("n"))
    left = t()
    return left.join(counted, left.a == counted.a, "left").select(left.a, "n").fillna(0, ["a"])


@dp.materialized_view
def join_same_names() -> DataFrame:
    left, right = u(), t().select("a", "b")
    both = left.join(right, left.a == right.a)
    return both.filter(left.d > 0).select(left.a, right.a.alias("ra"), "b").filter(F.col("b") > 0)


@dp.materialized_view
def join_lateral() -> DataFrame:
    one = t()
    inner = u().where(F.col("u.a") == F.col("t.a").outer())
    inner = inner.select((F.col("d") + F.col("t.b").outer()).alias("s"))
    return one.lateralJoin(inner).select("a", "s")


# ── sets ──────────────────────────────────────────────────────────────────────────────────────────


@dp.materialized_view
def unions() -> DataFrame:
    return t().select("a", "b").union(u().select("a", "d")).unionAll(v())


@dp.materialized_view
def union_distinct() -> DataFrame:
    return t().select("a").union(u().select("d")).distinct().filter("a > 0")


@dp.materialized_view
def union_by_name() -> DataFrame:
    return u().unionByName(u().select("e", "d", "a"))


@dp.materialized_view
def union_missing() -> DataFrame:
    return u().unionByName(v(), allowMissingColumns=True)


@dp.materialized_view
def union_then_more() -> DataFrame:
    one = t().select("a", "b")
    return one.union(u().select("a", "d").filter("d > 1")).where("a > 0").groupBy("a").count()


@dp.materialized_view
def intersected() -> DataFrame:
    return t().select("a", "b").intersect(u().select("a", "d"))


@dp.materialized_view
def intersected_all() -> DataFrame:
    return t().select("a").intersectAll(u().select("d"))


@dp.materialized_view
def subtracted() -> DataFrame:
    return t().select("a").subtract(u().select("d"))


@dp.materialized_view
def except_all() -> DataFrame:
    return t().select("a").exceptAll(v().select("f"))


@dp.materialized_view
def local_rows() -> DataFrame:
    names = spark.createDataFrame([(1, "one"), (2, "two"), (3, None)], ["n", "name"])
    return t().join(names, F.col("a") == F.col("n")).select("b", "name")


@dp.materialized_view
def local_rows_of_types() -> DataFrame:
    rows = [(1, dt.date(2024, 1, 1), Decimal("1.20"), [1, 2]), (None, None, None, None)]
    schema = "i int, day date, m decimal(8,2)"
    return spark.createDataFrame([row[:3] for row in rows], schema)


@dp.materialized_view
def numbers() -> DataFrame:
    return spark.range(1, 6, 2).withColumn("b", F.col("id") * 2)


# ── groups ────────────────────────────────────────────────────────────────────────────────────────


@dp.materialized_view
def grouped() -> DataFrame:
    return (
        t()
        .groupBy("c")
        .agg(
            F.count("*").alias("n"),
            F.count("a").alias("na"),
            F.sum("a").alias("s"),
            F.avg("m").alias("mean"),
            F.min("b"),
            F.max("b").alias("hi"),
            F.countDistinct("a").alias("nd"),
            F.count_distinct("a", "b").alias("nd2"),
            F.sum(F.when(F.col("a") > 1, 1).otherwise(0)).alias("large"),
        )
    )


@dp.materialized_view
def grouped_by_expression() -> DataFrame:
    return (
        t()
        .withColumn("k", F.col("a") % 2)
        .groupBy("k", F.upper("c").alias("cc"))
        .agg((F.sum("b") + F.count("*")).alias("s"))
        .filter("s > 1")
        .withColumnRenamed("k", "odd")
    )


@dp.materialized_view
def group_shorthands() -> DataFrame:
    return t().groupBy("c").sum("a", "b").withColumnRenamed("sum(a)", "sa").drop("sum(b)")


@dp.materialized_view
def group_of_dict() -> DataFrame:
    return t().groupBy("c").agg({"a": "max"}).toDF("c", "top")


@dp.materialized_view
def totals() -> DataFrame:
    return t().agg(F.count("*").alias("n"), F.max("a").alias("top"))


@dp.materialized_view
def total_by_select() -> DataFrame:
    return t().select(F.sum("b").alias("s"), F.lit(1).alias("one")).select("one", "s")


@dp.materialized_view
def rollups() -> DataFrame:
    return t().rollup("a", "c").agg(F.count("*").alias("n"), F.grouping_id().alias("g"))


@dp.materialized_view
def cubes() -> DataFrame:
    return t().cube("a", "c").agg(F.grouping("a").alias("ga"), F.sum("b").alias("s"))


@dp.materialized_view
def grouping_sets() -> DataFrame:
    return (
        t()
        .groupingSets([[F.col("a")], [F.col("a"), F.col("c")], []], "a", "c")
        .agg(F.count("*").alias("n"))
    )


@dp.materialized_view
def pivoted() -> DataFrame:
    return t().groupBy("a").pivot("c", ["x", "y"]).agg(F.sum("b"))


@dp.materialized_view
def pivoted_twice() -> DataFrame:
    return t().groupBy("b").pivot("ok", [True]).agg(F.max("a").alias("m"), F.sum("b").alias("s"))


@dp.materialized_view
def unpivoted() -> DataFrame:
    return t().select("c", "a", "b").unpivot("c", ["a", "b"], "name", "value")


@dp.materialized_view
def time_windows() -> DataFrame:
    return (
        t()
        .groupBy(F.window("ts", "10 seconds"), "c")
        .agg(F.count("*").alias("n"))
        .select("window.start", F.col("window.end").alias("until"), "c", "n")
    )


@dp.materialized_view
def deduplicated() -> DataFrame:
    return t().select("a", "c").distinct().dropDuplicates()


@dp.materialized_view
def deduplicated_by_name() -> DataFrame:
    return t().select("a", (F.col("a") + 1).alias("next"), "b").dropDuplicates(["a", "b"])


@dp.materialized_view
def exploded() -> DataFrame:
    return t().select("a", F.explode("arr").alias("y")).where("y > 1")


@dp.materialized_view
def exploded_with_column() -> DataFrame:
    return (
        t()
        .select("a", "arr")
        .withColumn("y", F.explode_outer("arr"))
        .drop("arr")
        .groupBy("y")
        .count()
    )


@dp.materialized_view
def exploded_places() -> DataFrame:
    return t().select("a", F.posexplode("arr")).filter("pos = 0").drop("pos")


@dp.materialized_view
def exploded_map() -> DataFrame:
    return t().select(F.explode(F.create_map(F.lit("k"), "a")).alias("key", "value"), "b")


# ── windows, orders, limits ───────────────────────────────────────────────────────────────────────


@dp.materialized_view
def row_numbers() -> DataFrame:
    window = Window.partitionBy("c").orderBy(F.col("a").desc(), "b")
    one = t().select("a", "b", "c").distinct()
    return one.withColumn("r", F.row_number().over(window)).filter(F.col("r") <= 2)


@dp.materialized_view
def window_frames() -> DataFrame:
    by = Window.partitionBy("c").orderBy("a", "b")
    one = t().select("a", "b", "c").distinct()
    return one.select(
        "c",
        F.sum("b").over(by.rowsBetween(Window.unboundedPreceding, Window.currentRow)).alias("s"),
        F.avg("b").over(by.rowsBetween(-1, 1)).alias("m"),
        F.count("*").over(Window.partitionBy("c").orderBy("a").rangeBetween(-1, 0)).alias("n"),
        F.lag("b").over(by).alias("p"),
        F.lead("b", 2, -1).over(by).alias("q"),
        F.rank().over(Window.partitionBy("c").orderBy(F.asc_nulls_last("a"))).alias("k"),
        F.max("a").over(Window.partitionBy("c")).alias("hi"),
    )


@dp.materialized_view
def windows_of_groups() -> DataFrame:
    totals = t().groupBy("c").agg(F.sum("a").alias("s"))
    return totals.withColumn("r", F.rank().over(Window.orderBy(F.desc("s"))))


@dp.materialized_view
def top() -> DataFrame:
    one = t().select("a", "b").distinct()
    return one.orderBy(F.desc_nulls_last("a"), "b").limit(3)


@dp.materialized_view
def top_of_dropped() -> DataFrame:
    one = t().select("a", "b", "c").distinct().filter("c is not null")
    return one.orderBy(F.col("a") + F.col("b"), "c", "a").select("c", "b").limit(4)


@dp.materialized_view
def paged() -> DataFrame:
    one = t().select("a", "b").distinct().sort("a", "b")
    return one.offset(1).limit(3).union(one.limit(4).offset(2))


@dp.materialized_view
def top_then_more() -> DataFrame:
    one = t().select("a", "b").distinct().orderBy("a", F.desc("b")).limit(5)
    return one.limit(4).filter("a > 0").groupBy("a").count()


@dp.materialized_view
def sorted_only() -> DataFrame:
    return t().orderBy("a").select("b").hint("broadcast").repartition(2).coalesce(1)


# ── missing values ────────────────────────────────────────────────────────────────────────────────


@dp.materialized_view
def filled() -> DataFrame:
    return t().drop("arr", "ts").fillna(0).fillna("none").fillna({"ok": False})


@dp.materialized_view
def filled_typed() -> DataFrame:
    return t().select("a", "x", "m").na.fill(1.7, ["a", "x", "m"])


@dp.materialized_view
def dropped() -> DataFrame:
    return t().dropna(subset=["a", "x"]).na.drop("all", subset=["b", "c"]).select("a", "b", "c")


@dp.materialized_view
def dropped_thresh() -> DataFrame:
    return t().select("a", "b", "x").dropna(thresh=2)


@dp.materialized_view
def replaced() -> DataFrame:
    return t().select("a", "b", "c").replace({"x": "z", "y": "w"}).replace(1, 100, ["a"])


# ── subqueries, SQL, other views ──────────────────────────────────────────────────────────────────


@dp.materialized_view
def is_in_a_frame() -> DataFrame:
    return t().filter(F.col("a").isin(u().select("d"))).select("a", "b")


@dp.materialized_view
def exists_frame() -> DataFrame:
    one = t()
    inner = u().where((F.col("u.a") == F.col("t.a").outer()) & (F.col("d") > 0))
    return (
        one.where(inner.exists())
        .where(~v().where(F.col("v.f") == F.col("t.b").outer()).exists())
        .select("a", "b")
    )


@dp.materialized_view
def scalar_frame() -> DataFrame:
    top = u().agg(F.max("d")).scalar()
    return t().select("a", (F.col("b") + top).alias("z"))


@dp.materialized_view
def by_sql() -> DataFrame:
    one = spark.sql("SELECT a, max(d) AS top FROM u WHERE d > ${least} -- a comment\n GROUP BY a")
    return t().join(one, "a").select("a", "b", "top")


@dp.materialized_view
def by_sql_over_frames() -> DataFrame:
    return spark.sql("SELECT a, count(*) AS n FROM {df} GROUP BY a", df=t().filter("b > 0"))


@dp.temporary_view(comment="read by the next one")
def some() -> DataFrame:
    return (
        t()
        .filter(F.col("a") > int(spark.conf.get("least")))
        .select("a", "b", F.lit("s").alias("k"))
    )


@dp.materialized_view
def over_a_view() -> DataFrame:
    return spark.read.table("some").join(u(), "a").groupBy("a", "k").agg(F.count("*").alias("n"))
