#!/usr/bin/env bash
# Spark's processes in the foreground: lockstep-spark master | worker | connect
set -euo pipefail
jars=$(python -c 'from lockstep.adapters.jars import jar_paths; print(",".join(map(str, jar_paths("spark"))))')
host=$(hostname)

case "${1:-}" in
  master)
    exec "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.master.Master \
      --host "$host" --port 7077 --webui-port 8080
    ;;
  worker)
    exec "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.worker.Worker \
      --host "$host" --cores "${SPARK_CORES:-2}" --memory "${SPARK_MEMORY:-4g}" "$SPARK_MASTER"
    ;;
  connect)
    text=$(python -c '
from lockstep.adapters.embedded.connect import JAVA_OPTIONS, SERVER, program
for setting in {**SERVER, "spark.driver.extraJavaOptions": JAVA_OPTIONS}.items():
    print("--conf", "=".join(setting), sep="\n")
print(program())
')
    mapfile -t settings <<<"$text"
    exec "$SPARK_HOME/bin/spark-submit" \
      --name lockstep --master "$SPARK_MASTER" --driver-memory "${SPARK_DRIVER_MEMORY:-4g}" --jars "$jars" \
      --conf spark.driver.host="$host" \
      --conf spark.connect.grpc.binding.address=0.0.0.0 \
      --conf spark.connect.grpc.binding.port=15002 \
      --conf spark.sql.shuffle.partitions="${SPARK_SHUFFLE_PARTITIONS:-4}" \
      "${settings[@]}"
    ;;
  *)
    echo "usage: lockstep-spark master | worker | connect" >&2
    exit 2
    ;;
esac
