"""Rows that are there as often as an expression says: as Spark has them."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from test_local_formulas import ROWS

from lockstep.sql.plans.expressions import from_text
from lockstep.sql.plans.nodes import Scan, Weigh
from lockstep_engine.local.formulas import weighed
from lockstep_engine.local.rows import Rows
from lockstep_engine.operators.linear import weigh
from lockstep_engine.told import fetched

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("weight", ["-1", "2", "`whole` - 7", "`tiny`", "7L"])
def test_rows_are_there_as_often_as_in_spark(spark: SparkSession, weight: str) -> None:
    columns = ("whole", "tiny", "text")
    rows = ROWS.select([*columns, "_weight", "_step"])
    doubled = pc.multiply(rows.table["_weight"], 2)
    given = Rows(rows.table.set_column(3, rows.table.schema.field("_weight"), doubled), rows.schema)
    node = Weigh(Scan("t", columns), from_text(weight))
    found = weighed(given, node)
    assert found is not None
    wanted, schema = fetched(weigh(node, given.along(spark)))
    assert found.schema == schema
    assert found.table.to_pylist() == wanted.sort_by("_step").to_pylist() != []


@pytest.mark.parametrize("weight", ["`price`", "greatest(`whole`, 0)", "`large` * 9"])
def test_how_often_rows_are_there_may_be_for_spark_to_say(weight: str) -> None:
    assert weighed(ROWS, Weigh(Scan("t", tuple(ROWS.schema.names[:-2])), from_text(weight))) is None
