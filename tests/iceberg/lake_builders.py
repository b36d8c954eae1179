"""Small local builders for the Iceberg tests: a catalog without Spark, an outbox that is filled by
hand, and a reader of tables that is not Spark."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.delete_file_index import PATH_FIELD_ID
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record
from pyspark.sql.types import StructType

from lockstep.adapters.catalogs import catalog_settings
from lockstep.adapters.iceberg_tables import IcebergTables
from lockstep.adapters.settings import Settings
from lockstep.control.job import CatalogSettings
from lockstep_engine.sinks.iceberg import publish_view
from lockstep_engine.sinks.view_publish import ViewPublished
from lockstep_engine.tables import TABLE_PROPERTIES, append, columns_of_table, table_name

ROWS = pa.schema([("id", pa.int64())])
NAN, INFINITY = math.nan, math.inf
EVERY_TYPE = (
    "a bigint, b int, c smallint, d boolean, e double, f float, g decimal(10, 2), h string, "
    "i binary, j date, k timestamp, l timestamp_ntz, m struct<x: int, `y y`: string, z: double>, "
    "n array<double>, o array<struct<p: string>>, `strange ``name` string"
)
FLAT_TYPES = EVERY_TYPE[: EVERY_TYPE.index(", m struct")]
"""Those of them that hold no others; of the rows below the first twelve columns."""
FLAT = 12
AT = datetime(2020, 1, 1, 12, 30, tzinfo=UTC)
NAIVE = datetime(1969, 12, 31, 23, 59, 59, 999999)
FULL = (
    1, 2, 3, True, 1.5, 2.5, Decimal("1.10"), "text", b"\x00\xff", date(2020, 1, 1), AT, NAIVE,
    (1, "y", 0.5), [1.0, NAN], [("p",)], "q",
)  # fmt: skip
LEAST = (
    -(2**63), -(2**31), -(2**15), False, -INFINITY, NAN, Decimal("-99999999.99"), "", b"",
    date(1, 1, 1), datetime(1900, 1, 1, tzinfo=UTC), NAIVE, (None, None, NAN), [], [None], "",
)  # fmt: skip
NULLS = (None,) * 16
ROWS_OF_ALL_TYPES = (
    FULL,
    LEAST,
    NULLS,
    (2, *NULLS[1:]),
    (*FULL[:-1], None),
    (*FULL[:4], NAN, *FULL[5:]),
)


POSITION_DELETES = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ]
)
"""https://iceberg.apache.org/spec/#position-delete-files"""


def local_catalog(folder: Path) -> CatalogSettings:
    """The default catalog of an installation in `folder`."""
    (folder / "warehouse").mkdir(parents=True, exist_ok=True)
    return catalog_settings("lake", "db", {}, Settings.load({"LOCKSTEP_HOME": str(folder)}))


def ensure_table(
    state: IcebergTables,
    table: str,
    schema: StructType,
    properties: Mapping[str, str] = TABLE_PROPERTIES,
) -> None:
    """A table with columns of these types, if it is not there."""
    state.make(table, columns_of_table(table, schema), properties, {})


class Lake:
    """One catalog and database, seen through PyIceberg alone."""

    def __init__(self, settings: CatalogSettings) -> None:
        self.settings = settings
        self.state = IcebergTables(settings)

    def table(self, name: str) -> Table:
        catalog = load_catalog(self.settings.name, **dict(self.settings.pyiceberg))
        return catalog.load_table((self.settings.database, name))

    def make(self, name: str) -> int:
        """A table with one column and an empty root snapshot, whose id is returned."""
        catalog = load_catalog(self.settings.name, **dict(self.settings.pyiceberg))
        catalog.create_namespace_if_not_exists(self.settings.database)
        catalog.create_table((self.settings.database, name), ROWS)
        return self.append(name, [], branch="main")

    def append(
        self, name: str, ids: Sequence[int], branch: str, write: str = "", **summary: str
    ) -> int:
        """Append rows to a branch; `write` is the write id in the summary. Returns the snapshot."""
        properties = {"lockstep.write": write} if write else {}
        properties.update({f"lockstep.{key}": value for key, value in summary.items()})
        rows = pa.table({"id": pa.array(ids, pa.int64())})
        self.table(name).append(rows, snapshot_properties=properties, branch=branch)
        return self.state.head(name, branch)

    def rows(self, name: str, snapshot_id: int | None = None) -> Counter[tuple[Any, ...]]:
        """Every row as often as it occurs, in a form that can be compared: NaN equals NaN."""
        found = self.table(name).scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
        return Counter(comparable(row.values()) for row in found)


def comparable(values: Any) -> tuple[Any, ...]:
    """Values with NaN, lists and structs made hashable and equal to themselves."""

    def one(value: Any) -> Any:
        if isinstance(value, float) and math.isnan(value):
            return "NaN"
        if isinstance(value, dict):
            return tuple((key, one(inner)) for key, inner in value.items())
        if isinstance(value, (list, tuple)):
            return tuple(one(inner) for inner in value)
        return value

    return tuple(one(value) for value in values)


class Outbox:
    """An outbox and the view that it is published to, through Spark."""

    def __init__(
        self, spark: Any, settings: CatalogSettings, columns: str, small_rows: int = 0
    ) -> None:
        self.small_rows = small_rows
        self.spark = spark
        self.lake = Lake(settings)
        self.view = f"v{uuid4().hex[:8]}"
        self.table = f"{self.view}_changes"
        self.incarnation = uuid4().hex
        self.last_step = -1
        self.schema = f"{columns}, _weight bigint, _step bigint"
        self._empty = spark.createDataFrame([], self.schema)
        self.columns = tuple(self._empty.columns[:-2])
        ensure_table(self.lake.state, self.table, self._empty.schema)
        self.snapshot = self.lake.state.head(self.table, "main")

    def add(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Append changes as a committed attempt would have: rows end with weight and step."""
        attempt = uuid4().hex[:8]
        state, settings = self.lake.state, self.lake.settings
        state.open_branch(self.table, f"attempt_{attempt}", self.snapshot)
        frame = self.spark.createDataFrame(list(rows), self.schema) if rows else self._empty
        # As in a pipeline, an append without rows is of a later step, too.
        self.last_step = max((row[-1] for row in rows), default=self.last_step + 1)
        written = {"lockstep.write": attempt, "lockstep.step": str(self.last_step)}
        append(settings, self.table, f"attempt_{attempt}", frame, written)
        self.snapshot = state.head(self.table, f"attempt_{attempt}")
        state.settle(self.table, self.snapshot, f"v_{attempt}", (f"attempt_{attempt}",))

    def publish(self, last_step: int, **changed: Any) -> ViewPublished:
        """Publish to a step; `changed` replaces arguments of `publish_view`."""
        arguments: dict[str, Any] = {
            "spark": self.spark,
            "state": self.lake.state,
            "catalog": self.lake.settings,
            "view": self.view,
            "columns": self.columns,
            "outbox_table": self.table,
            "outbox_snapshot_id": self.snapshot,
            "last_step": last_step,
            "incarnation": self.incarnation,
            "small_rows": self.small_rows,
        }
        return publish_view(**{**arguments, **changed})

    def rows(self) -> Counter[tuple[Any, ...]]:
        """What the view shows on main."""
        return self.lake.rows(self.view)

    def rows_by_spark(self) -> Counter[tuple[Any, ...]]:
        """The same, as Spark reads it."""
        found = self.spark.table(table_name(self.lake.settings, self.view)).collect()
        return Counter(comparable(row) for row in found)

    @property
    def newest(self) -> Snapshot:
        """The snapshot that main shows."""
        found = self.lake.table(self.view).current_snapshot()
        assert found is not None
        return found

    @property
    def is_written_without_spark(self) -> bool:
        """Whether the newest snapshot is: Spark's writer names its application."""
        assert self.newest.summary is not None
        return "spark.app.id" not in self.newest.summary.additional_properties


def delete_file(folder: Path, rows: list[tuple[str, int]], bounds: Mapping[str, str]) -> DataFile:
    """A position delete file; `bounds` are what the manifest says of its paths."""
    path = folder / f"deletes-{len(list(folder.iterdir()))}.parquet"
    paths, positions = zip(*rows, strict=True)
    columns = [list(paths), pa.array(positions, pa.int64())]
    pq.write_table(pa.table(columns, schema=POSITION_DELETES), path)
    found = {end: {PATH_FIELD_ID: text.encode()} for end, text in bounds.items()}
    return DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=path.as_uri(),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(rows),
        file_size_in_bytes=path.stat().st_size,
        lower_bounds=found.get("lower"),
        upper_bounds=found.get("upper"),
    )
