"""The program of the Spark Connect server, which spark-submit runs: Spark with Connect in it.

Spark's own main class, SparkConnectServer, isolates what sessions add to it, jars and files. Lockstep
adds none, and isolation costs: Spark forks Python workers from one process a session, which begins with
seconds of imports and keeps 200 MB, and each pipeline has a session of its own. Without isolation there
is one for the server.
"""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

SETTINGS = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.sql.artifact.isolation.enabled": "false",
}


def main() -> None:
    """Serve until the JVM is ended."""
    spark = SparkSession.builder.config(map=SETTINGS).getOrCreate()
    service = getattr(spark._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    try:
        getattr(service, "MODULE$").server().awaitTermination()
    except Py4JError:
        return  # The JVM, which is the server, ended first.


if __name__ == "__main__":
    main()
