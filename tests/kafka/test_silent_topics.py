"""A topic without new records, of which no view wants a column: count(*) has none, nor has a source that
is not read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kafka_builders import interval, source

from lockstep_engine.context import Context
from lockstep_engine.local.rows import Rows
from lockstep_engine.sources.kafka import read_kafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("wanted", [(), ("n",)])
@pytest.mark.parametrize("is_here", [False, True])
def test_nothing_comes_of_it_and_it_has_its_columns(
    spark: SparkSession, wanted: tuple[str, ...], is_here: bool
) -> None:
    table = source("nobody:9092", "t", [("n", "INT"), ("at", "TIMESTAMP")])
    silent = interval("t", [{0: 5}, {0: 5}])
    context = Context(spark, 0, is_whole=is_here)
    found = read_kafka(spark, table, wanted, silent, context, is_wanted_here=is_here)
    assert isinstance(found.delta, Rows) is is_here
    rows = found.delta.table if isinstance(found.delta, Rows) else found.delta.toArrow()
    assert rows.column_names == [*wanted, "_weight", "_step"]
    assert not rows.num_rows
