"""Rows that are computed once, so that what is built on them need not know how they came about.

`localCheckpoint` of the Connect client (4.1.3) does that with two faults, which is why the command is
made here: it cannot be made of a plan of more than some forty relations below one another (its
constructor parses the plan again, 100 nested messages at most), and the rows are given to the session
that was made last, while the server finds them in their own alone.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from lockstep_engine.sessions import is_of_connect

__all__ = ["computed", "given", "put_down"]

FEW_BYTES = 256 << 10
"""Rows of so many bytes go along with each request that reads them; more are put down at the server."""


def computed(delta: DataFrame, at_once: bool = True) -> DataFrame:
    """The same rows, held by the server until nobody refers to them; computed now, or when they are
    first asked for. What the plan of rows that are computed later observes is not told."""
    if not is_of_connect(delta):
        return delta.localCheckpoint(eager=at_once)
    # Not above: the package asks for grpc, which a classic session does without.
    from pyspark.sql.connect import proto

    session: Any = delta.sparkSession
    plan: Any = delta
    command = proto.Command()
    command.checkpoint_command.relation.CopyFrom(plan._plan.plan(session.client))
    command.checkpoint_command.local = True
    command.checkpoint_command.eager = at_once
    _, properties, _ = session.client.execute_command(command)
    given: Any = properties["checkpoint_command_result"]._plan
    # With its last reference a frame has the server drop the rows; this one must not.
    name, given._relation_id = given._relation_id, None
    rows: DataFrame = session._create_remote_dataframe(name)
    return rows


def given(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """A frame of rows that this process has, in the order of the schema's columns, as of its types."""
    frame = spark.createDataFrame(rows.cast(to_arrow_schema(schema)), schema)
    return put_down(frame, rows.nbytes)


def put_down(frame: DataFrame, size: int) -> DataFrame:
    """The same rows, which this process has sent, and are of that many bytes: where they are few, they
    go along with whatever reads them."""
    return frame if size <= FEW_BYTES else computed(frame, at_once=False)
