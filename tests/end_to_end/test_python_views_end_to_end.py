"""A project with a view in Python beside the same in SQL: deployed, run, changed, deployed again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from followed_shop import COPY_ON_WRITE, Shop, rows, settings_of

from lockstep.adapters.verify import verify
from lockstep.deploying import deploy, propose
from lockstep.runtime import recorded
from lockstep.sql.rebuild import ViewChange

pytestmark = pytest.mark.spark

QUERIES = {
    "by_sql": "SELECT c.country, count(*) AS n, sum(o.amount) AS total, max(o.amount) AS most "
    "FROM @orders o JOIN @customers c ON o.customer = c.customer WHERE o.amount > 3 "
    "GROUP BY c.country",
}
PYTHON = """\
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()


@dp.temporary_view
def large() -> DataFrame:
    return spark.read.table("orders").filter("amount > 3")


@dp.materialized_view
def by_python() -> DataFrame:
    orders, customers = spark.read.table("large"), spark.read.table("customers")
    return (
        orders.join(customers, orders.customer == customers.customer)
        .groupBy("country")
        .agg(F.count("*").alias("n"), F.sum("amount").alias("total"), F.max("amount").alias("most"))
    )


@dp.materialized_view
def newest() -> DataFrame:
    return spark.read.table("by_python").orderBy(F.desc("total"), "country").limit(1)
"""


def test_a_view_in_python_holds_what_the_view_in_sql_holds(
    spark: Any, spark_server: Any, database: str, tmp_path: Path
) -> None:
    settings = settings_of(spark_server, tmp_path / "home")
    shop = Shop(spark, settings, database, tmp_path / "project")
    file = shop.folder / "sql" / "views.py"
    file.parent.mkdir(parents=True)
    file.write_text(PYTHON, "utf-8")
    shop.make("orders", "id BIGINT, customer STRING, amount INT", COPY_ON_WRITE)
    shop.make("customers", "customer STRING, country STRING", COPY_ON_WRITE)
    shop.sql("INSERT INTO @customers VALUES ('a', 'NL'), ('b', 'DE'), ('c', 'NL')")
    shop.sql("INSERT INTO @orders VALUES (1, 'a', 5), (2, 'b', 7), (3, 'c', 2), (4, 'c', 9)")
    shop.deploy(
        QUERIES,
        shop.source("orders", "id BIGINT, customer STRING, amount INT")
        + shop.source("customers", "customer STRING, country STRING"),
    )
    for change in (
        "DELETE FROM @orders WHERE id = 4",
        "INSERT INTO @orders VALUES (5, 'b', 70), (6, 'd', 8)",
        "UPDATE @customers SET country = 'FR' WHERE customer = 'a'",
    ):
        shop.advance()
        shop.check(QUERIES)
        by_sql, by_python = (rows(spark.table(shop.view(f"by_{one}"))) for one in ("sql", "python"))
        assert by_python == by_sql
        (first,) = spark.table(shop.view("newest")).collect()
        assert first.total == max(row[2] for row in by_sql)
        shop.sql(change)

    # other words for the same rows are no change; other rows are, as with SQL
    file.write_text(PYTHON.replace('"amount > 3"', 'F.col("amount") > 3') + "# the end\n", "utf-8")
    deploy(str(shop.folder), settings)
    assert "# the end" in dict(recorded(database, settings).files.files)["sql/views.py"]
    shop.advance()
    shop.check(QUERIES)
    checks = verify(database, settings, shop.said.append)
    assert {check.view: check.equal for check in checks} == dict.fromkeys(
        ("by_python", "by_sql", "newest"), True
    )
    file.write_text(PYTHON.replace("amount > 3", "amount > 7"), "utf-8")
    changes = propose(str(shop.folder), settings).rebuild
    assert changes is not None
    assert {view for view, how in changes.views.items() if how is ViewChange.CHANGED} == {
        "by_python",
        "newest",
    }
    deploy(str(shop.folder), settings)
    shop.advance()
    larger = {"by_python": QUERIES["by_sql"].replace("amount > 3", "amount > 7")}
    shop.check({**QUERIES, **larger})
