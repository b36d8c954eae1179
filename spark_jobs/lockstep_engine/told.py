"""What Spark tells the driver, and the driver Spark: few rows, what an action counted, types."""

from __future__ import annotations

import sys
from collections.abc import Generator, MutableMapping
from contextlib import closing
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from lockstep_engine.failures import is_lost
from lockstep_engine.sessions import is_of_connect

__all__ = [
    "counted_in_passing",
    "fetched",
    "fetched_within",
    "few_rows",
    "is_well_formed",
    "no_rows",
    "types_of_columns",
]

_TYPES: MutableMapping[str, StructType] = {}


def types_of_columns(spark: SparkSession, declared: str) -> StructType:
    """The types that a list of columns declares, as Spark SQL has them. A process asks for each list
    once: only Spark can read them, and to ask takes a Connect client three requests."""
    if declared not in _TYPES:
        _TYPES[declared] = spark.createDataFrame([], declared).schema
    return _TYPES[declared]


def no_rows(spark: SparkSession, declared: str) -> DataFrame:
    """A frame of these columns that is empty."""
    return spark.createDataFrame([], types_of_columns(spark, declared))


def few_rows(frame: DataFrame, most: int) -> pa.Table | None:
    """The rows, if there are at most so many."""
    rows, _ = fetched(frame.limit(most + 1))
    return rows if rows.num_rows <= most else None


def fetched(frame: DataFrame) -> tuple[pa.Table, StructType]:
    """All rows, and their types."""
    found = fetched_within(frame, sys.maxsize)
    assert found is not None, "no memory holds so many bytes"
    return found


def fetched_within(frame: DataFrame, most_bytes: int) -> tuple[pa.Table, StructType] | None:
    """The same; None as soon as more bytes have come.

    A Connect client's `toArrow` first asks for the types, for which the server analyzes the whole plan
    once more; the answer with the rows says them, too.

    Of each session the server keeps the last sixteen plans that have a number, analyzed, with all rows
    that came along in them: this one has none, as nobody asks for it again.
    """
    if not is_of_connect(frame):
        rows = frame.toArrow()
        return None if rows.nbytes > most_bytes else (rows, frame.schema)
    plan: Any = frame
    client = plan.sparkSession.client
    query = plan._plan.to_proto(client)
    query.root.common.ClearField("plan_id")

    def ask() -> tuple[pa.Table, StructType] | None:
        return _within(client.to_table_as_iterator(query, plan._plan.observations), most_bytes)

    try:
        return ask()
    except PySparkException as error:
        if not is_lost(error):
            raise
        # Reading changes nothing: it can as well be done again.
        return ask()


def _within(
    answers: Generator[StructType | pa.Table, None, None], most_bytes: int
) -> tuple[pa.Table, StructType] | None:
    """What a client is answered: the types, and rows as they come."""
    schema, parts, size = StructType(), [], 0
    with closing(answers):
        for one in answers:
            if isinstance(one, StructType):
                schema = one
                continue
            parts.append(one)
            size += one.nbytes
            if size > most_bytes:
                return None
    shape = to_arrow_schema(schema, error_on_duplicated_field_names_in_struct=True)
    rows = pa.concat_tables(parts) if parts else shape.empty_table()
    return rows.cast(shape), schema


def is_well_formed(rows: pa.Table | pa.ChunkedArray | pa.Scalar) -> bool:
    """Whether texts are UTF-8, which Spark takes on trust, and Arrow too."""
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def counted_in_passing(observation: Observation, name: str) -> int | None:
    """What the first action on the observed frame counted under that name; None where Spark does not
    say, and whoever asks has to count."""
    try:
        found = observation.get
    except Py4JError:
        # A classic session says no more of a plan from which Spark could take the frame away.
        return None
    # To a Connect client there is then nothing in it; nor where a busy server answers before its
    # listener has the metrics.
    return int(found[name]) if name in found else None
