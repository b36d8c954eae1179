"""A process that publishes a view and kills itself at a named point; the arguments are JSON."""

from __future__ import annotations

import json
import os
import signal
import sys

from pyspark.sql import SparkSession

from lockstep.adapters.iceberg_tables import IcebergTables
from lockstep.control.job import CatalogSettings
from lockstep_engine.sinks import iceberg
from lockstep_engine.sinks.iceberg import publish_view
from lockstep_engine.sinks.view_publish import ViewPoint
from lockstep_engine.tables import configure_catalog


def main() -> None:
    given = json.loads(sys.argv[1])
    catalog = CatalogSettings(**given["catalog"])
    spark = SparkSession.builder.remote(given["remote"]).create()
    configure_catalog(spark, catalog)

    def reached(point: ViewPoint) -> None:
        if point.name == given["point"]:
            os.kill(os.getpid(), signal.SIGKILL)

    iceberg.NETTED_ROWS = given["netted_rows"]
    publish_view(
        spark,
        IcebergTables(catalog),
        catalog,
        given["view"],
        tuple(given["columns"]),
        given["outbox_table"],
        given["outbox_snapshot_id"],
        given["last_step"],
        given["incarnation"],
        reached,
        small_rows=0,
    )


main()
