"""docs/python.md: its example is run, its lists are made from the views that are tested."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

from frame_views import CORPUS, each_view

from lockstep.adapters.python_views import with_python_views
from lockstep.cli.project import SPEC, SQL
from lockstep.sql.circuit import ProjectFiles
from lockstep.sql.project import parse_project, read_project_files

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "docs" / "python.md"
HEAD = """\
# Views in Python

A view may be a Python function that returns a DataFrame, with the decorators of Spark Declarative
Pipelines. Files that end in `.py` lie beside the SQL files of a project, and each reads the other's
views. Put into the project that `lockstep init shop` writes, as `transformations/large.py`:

```python
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()


@dp.temporary_view
def large() -> DataFrame:
    orders = spark.read.table("orders")
    return orders.filter(orders.amount > 5)


@dp.materialized_view(comment="what large orders bring, by customer")
def large_totals() -> DataFrame:
    return (
        spark.read.table("large")
        .groupBy("customer")
        .agg(F.count("*").alias("orders"), F.sum("amount").alias("spent"))
    )
```

`lockstep plan`, `deploy` and the first `run` execute the file, in a process of its own and without a
Spark: the functions only describe rows. What they describe becomes SQL, which a deploy records beside
the file's text (the folder stays as it is), and from there on the view is one like any other:
`large.py.sql` is

```sql
{made}```

So a view in Python means what its SQL means, the plan is that of the SQL, and an error names the line in
Python. A change of the file that gives the same plan is no change. `df.columns`, `df.name` and
`spark.conf.get` (of the spec's `configuration`) are answered; the rows and types of a DataFrame are not.

- `@dp.materialized_view` is `CREATE MATERIALIZED VIEW`, `@dp.temporary_view` is `CREATE TEMPORARY VIEW`.
- Sources and Kafka sinks are declared in SQL.
- A `comment` stands in the SQL, and the next publish gives it to the view's table ([sql.md](sql.md)).
- `spark.sql("SELECT ...")` in a function is a DataFrame, too.
- `dropDuplicates` of some columns keeps the least row of each group, and `limit` without an order the
  least rows: a view has to give the same rows each time.
- Python functions of a row's values (`F.udf`, `F.pandas_udf`, `F.arrow_udf`) are recorded with the
  view, with what they import from the project; for the same values they have to give the same.
- So are functions of a group's or a window's rows (`F.pandas_udf` and `F.arrow_udf` that give one
  value), beside other aggregates, too: a group that changes is read and given to the function whole.
- Hints, `repartition`, `coalesce` and a last `orderBy` change nothing.

This page is made by `GOLDEN_UPDATE=1 pytest tests/frames`.
"""


def example() -> str:
    """The Python of the page."""
    (code,) = re.findall(r"```python\n(.*?)```", HEAD, re.DOTALL)
    return str(code)


def made(folder: Path) -> ProjectFiles:
    """The project of the page, its views in SQL."""
    (folder / "transformations").mkdir(parents=True)
    (folder / "spark-pipeline.yml").write_text(SPEC.format(name="shop", folder=folder), "utf-8")
    (folder / "transformations" / "orders.sql").write_text(SQL, "utf-8")
    (folder / "transformations" / "large.py").write_text(example(), "utf-8")
    return with_python_views(read_project_files(folder), {"lockstep.kafka": "127.0.0.1:9"})


def methods() -> list[str]:
    """What the tested views call of DataFrames and of groups of them."""
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.group import GroupedData

    known = {name for kind in (DataFrame, GroupedData) for name in dir(kind)}
    tree = ast.parse((CORPUS / "transformations" / "views.py").read_text("utf-8"))
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    called = {one.attr for one in attributes if getattr(one.value, "id", "") != "F"}
    return sorted(called & known, key=str.lower)


def refusals(folder: Path) -> list[str]:
    """A line for each refused view: its own line that is wrong, why, and what to write."""
    text = (HERE / "refused_views.py").read_text("utf-8")
    below = folder / "transformations"
    below.mkdir()
    for file in ("spark-pipeline.yml", "transformations/tables.sql"):
        (folder / file).write_text((CORPUS / file).read_text("utf-8"), "utf-8")
    (below / "views.py").write_text(text, "utf-8")
    lines, found = text.splitlines(), []
    for error in each_view(folder).values():
        message, *details = error.splitlines()
        _, line, rest = message.split(":", 2)
        instead = [one.removeprefix("  next: ") for one in details if one.startswith("  next: ")]
        words = lines[int(line) - 1].strip().removeprefix("return ").replace("|", "\\|")
        found.append(f"| `{words}` | {rest.split(': ', 1)[1]} | {''.join(instead)} |")
    return found


def test_the_page_says_what_is_so(tmp_path: Path) -> None:
    files = made(tmp_path / "shop")
    sql = dict(files.files)["transformations/large.py.sql"]
    listed = ", ".join(f"`{name}`" for name in methods())
    page = [
        HEAD.replace("{made}", sql),
        f"## What is understood\n\nOf DataFrames and groups: {listed}. Of columns and `functions`, all "
        "that has a form in\nSpark SQL, windows and lambdas too.\n",
        "## What is refused\n\n| line | why | instead |\n|---|---|---|",
        *refusals(tmp_path),
    ]
    found = "\n".join(page) + "\n"
    if os.environ.get("GOLDEN_UPDATE"):
        DOCUMENT.write_text(found, "utf-8")
    assert found == DOCUMENT.read_text("utf-8")


def test_the_example_has_the_plan_of_its_sql(tmp_path: Path) -> None:
    files = made(tmp_path / "shop")
    by_hand = (
        "CREATE MATERIALIZED VIEW by_hand AS SELECT customer, count(*) AS orders, "
        "sum(amount) AS spent FROM orders WHERE amount > 5 GROUP BY customer;"
    )
    both = (*files.files, ("transformations/x.sql", by_hand))
    found = parse_project(ProjectFiles(files.spec, both), {"lockstep.kafka": "127.0.0.1:9"})
    views = {view.name: view for view in found.views}
    assert set(views) == {"totals", "large", "large_totals", "by_hand"}
    assert views["large_totals"].plan == views["by_hand"].plan
