"""The program of the Spark Connect server, which spark-submit runs: Spark with Connect in it.

Spark's own main class, SparkConnectServer, isolates what sessions add to it, jars and files. Lockstep
adds none, and isolation costs: Spark forks Python workers from one process a session, which begins with
seconds of imports and keeps 200 MB, and each pipeline has a session of its own. Without isolation there
is one for the server.
"""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"
SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService$"


def main() -> None:
    """Serve until the JVM is ended."""
    builder = SparkSession.builder.config("spark.plugins", PLUGIN)
    spark = builder.config("spark.sql.artifact.isolation.enabled", "false").getOrCreate()
    service = getattr(spark._jvm, SERVICE)
    try:
        getattr(service, "MODULE$").server().awaitTermination()
    except Py4JError:
        return  # The JVM, which is the server, ended first.


if __name__ == "__main__":
    main()
