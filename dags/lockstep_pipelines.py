"""One DAG for each deployed pipeline, and one for its maintenance.

Airflow imports this file often, and once more in front of every task: it reads the control store
and nothing else. A broken pipeline shows as a DAG that says so; see `lockstep.airflow.dags`.
"""

from airflow.sdk import get_parsing_context

from lockstep.adapters.settings import Settings
from lockstep.airflow.dags import pipeline_dags
from lockstep.runtime import deployed

wanted = get_parsing_context().dag_id
settings = Settings.load()

for name in deployed(settings):
    for dag in pipeline_dags(name, settings, wanted):
        globals()[dag.dag_id] = dag
