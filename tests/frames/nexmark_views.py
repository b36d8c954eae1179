"""Queries of the Nexmark example as DataFrames; each has the plan of the SQL beside it."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

spark = SparkSession.active()


def bids() -> DataFrame:
    return spark.read.table("bid")


@dp.materialized_view
def frame_q0() -> DataFrame:
    return bids().select("auction", "bidder", "price", "dateTime", "extra")


@dp.materialized_view
def frame_q2() -> DataFrame:
    return bids().filter(F.col("auction") % 123 == 0).select("auction", "price")


@dp.materialized_view
def frame_q3() -> DataFrame:
    auction, person = spark.read.table("auction"), spark.read.table("person")
    return (
        auction.join(person, auction.seller == person.id)
        .filter((auction.category == 10) & person.state.isin("OR", "ID", "CA"))
        .select(person.name, person.city, person.state, auction.id)
    )


@dp.materialized_view
def frame_q4() -> DataFrame:
    auction, bid = spark.read.table("auction").alias("a"), bids().alias("b")
    winners = (
        auction.join(bid, auction.id == bid.auction)
        .filter("b.dateTime BETWEEN a.dateTime AND a.expires")
        .groupBy(auction.id, auction.category)
        .agg(F.max(bid.price).alias("final"))
    )
    return winners.groupBy("category").agg(F.avg("final").alias("final"))


@dp.materialized_view
def frame_q5() -> DataFrame:
    counts = (
        bids()
        .groupBy("auction", F.window("dateTime", "10 seconds", "2 seconds"))
        .agg(F.count("*").alias("num"))
        .select("auction", F.col("window.start").alias("starts"), "num")
    )
    top = counts.groupBy("starts").agg(F.max("num").alias("most"))
    return counts.join(top, (counts.starts == top.starts) & (counts.num == top.most)).select(
        counts.starts, "auction", "num"
    )


@dp.materialized_view
def frame_q8() -> DataFrame:
    window, starts = F.window("dateTime", "10 seconds"), F.col("window.start").alias("starts")
    p = spark.read.table("person").select("id", "name", window).distinct()
    a = spark.read.table("auction").select("seller", window).distinct()
    p, a = p.select("id", "name", starts), a.select("seller", starts)
    return p.join(a, (p.id == a.seller) & (p.starts == a.starts)).select("id", "name", p.starts)


@dp.materialized_view
def frame_q9() -> DataFrame:
    a, b = spark.read.table("auction").alias("a"), bids().alias("b")
    place = F.row_number().over(
        Window.partitionBy("a.id").orderBy(F.desc("b.price"), "b.dateTime", "b.bidder", "b.extra")
    )
    return (
        a.join(b, F.expr("a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires"))
        .select(
            *("a.id", "itemName", "category", "reserve", "seller", "bidder", "price"),
            F.col("b.dateTime").alias("bidTime"),
            place.alias("place"),
        )
        .filter("place = 1")
        .drop("place")
    )


@dp.materialized_view
def frame_q10() -> DataFrame:
    return (
        bids()
        .select("auction", "bidder", "price", "dateTime", "extra")
        .withColumn("day", F.date_format("dateTime", "yyyy-MM-dd"))
        .withColumn("minute", F.date_format("dateTime", "HH:mm"))
    )


@dp.materialized_view
def frame_q13() -> DataFrame:
    rows = [(0, "none"), (1, "one"), (2, "two"), (3, "three")]
    side = spark.createDataFrame(rows, "number INT, name STRING")
    b = bids()
    return b.join(side, b.auction % 10 == side.number).select(
        "auction", "bidder", "price", "dateTime", side.name
    )


@dp.materialized_view
def frame_q18() -> DataFrame:
    window = Window.partitionBy("bidder", "auction").orderBy(
        F.desc("dateTime"), F.col("price").desc(), "channel", "url", "extra"
    )
    return (
        bids()
        .withColumn("place", F.row_number().over(window))
        .where(F.col("place") == 1)
        .select("auction", "bidder", "price", "channel", "dateTime")
    )


@dp.materialized_view
def frame_q19() -> DataFrame:
    window = Window.partitionBy("auction").orderBy(
        F.desc("price"), "dateTime", "bidder", "channel", "extra"
    )
    return (
        bids()
        .withColumn("place", F.row_number().over(window))
        .filter("place <= 10")
        .select("auction", "bidder", "price", "dateTime", "place")
    )


@dp.materialized_view
def frame_q20() -> DataFrame:
    b, a = bids(), spark.read.table("auction").filter("category = 10")
    return b.join(a, b.auction == a.id).select(
        *("auction", "bidder", "price", "channel", b.dateTime.alias("bidTime"), "itemName"),
        *("initialBid", "reserve", a.dateTime.alias("auctionTime"), "expires", "seller"),
    )


@dp.materialized_view
def frame_q22() -> DataFrame:
    folders = (F.split_part("url", F.lit("/"), F.lit(n)).alias(f"dir{n - 3}") for n in (4, 5, 6))
    return bids().select("auction", "bidder", "price", "channel", *folders)
