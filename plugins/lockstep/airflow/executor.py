"""Airflow's LocalExecutor, whose tasks begin with what they would import.

A task of LocalExecutor is forked from a worker, and that from the scheduler: what the scheduler has
imported before it forks its workers, tasks have. Importing is most of what a small task takes: the
clients of Spark, Kafka and Iceberg, four seconds of a processor in each of the three tasks of a DAG run.

    AIRFLOW__CORE__EXECUTOR=lockstep.airflow.executor.WarmLocalExecutor

Only modules are loaded: nothing is opened or connected to, so nothing is shared but code. The price is
some 200 MB in the scheduler, which its workers and tasks share. Where workers are not forked (another
start method of multiprocessing is set) tasks import for themselves, as under any other executor.
"""

from __future__ import annotations

from importlib import import_module

from airflow.executors.local_executor import LocalExecutor

__all__ = ["OF_TASKS", "WarmLocalExecutor"]

OF_TASKS = (
    "airflow.sdk.execution_time.task_runner",
    "lockstep.airflow.dags",
    "lockstep.airflow.timetable",
    "lockstep.adapters.catalogs",
    "lockstep.adapters.iceberg_files",
    "lockstep.adapters.iceberg_tables",
    "lockstep.adapters.lease",
    "lockstep.adapters.partition_mapper",
    "lockstep.adapters.sources",
    "lockstep.runtime",
    "lockstep_engine.connect",
    "pyspark.sql.connect.session",
)
"""The modules of a task on a Connect server, with all that they import."""


class WarmLocalExecutor(LocalExecutor):
    """Loads OF_TASKS before it forks its workers."""

    def start(self) -> None:
        for module in OF_TASKS:
            import_module(module)
        super().start()
