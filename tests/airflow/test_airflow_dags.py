"""The DAG file over a real control store: what it makes of pipelines, sound and broken."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from airflow.sdk import DAG
from airflow_installation import REPOSITORY, Installation, record

from lockstep import runtime
from lockstep.airflow.submit import (
    SubmitMaintainOperator,
    SubmitPublishOperator,
    SubmitRunOperator,
)
from lockstep.errors import Unreachable
from lockstep.sql.reading.spec import is_dag_id

pytestmark = pytest.mark.airflow

DAG_FILE = REPOSITORY / "dags" / "lockstep_pipelines.py"
PARSED_DAG = "_AIRFLOW_PARSING_CONTEXT_DAG_ID"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("LOCKSTEP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))


def spec(name: str, **configuration: str) -> str:
    lines = [f"  lockstep.{key}: {value}" for key, value in configuration.items()]
    return "\n".join([f"name: {name}", "configuration:", *lines, ""])


def parse() -> dict[str, DAG]:
    """The DAGs that the file leaves in its globals, as Airflow collects them."""
    left = runpy.run_path(str(DAG_FILE))
    return {value.dag_id: value for value in left.values() if isinstance(value, DAG)}


def test_without_a_pipeline_there_is_no_dag_and_no_error() -> None:
    assert parse() == {}


def test_a_pipeline_is_three_tasks_and_its_maintenance(tmp_path: Path) -> None:
    record(tmp_path, "shop", spec("shop", interval="30 seconds"))
    dags = parse()
    assert sorted(dags) == ["shop", "shop__maintenance"]
    shop = dags["shop"]
    assert [task.task_id for task in shop.topological_sort()] == ["plan", "run", "publish"]
    assert (shop.max_active_runs, shop.catchup) == (1, False)
    assert shop.dagrun_timeout is None
    assert {task.max_active_tis_per_dag for task in shop.tasks} == {1}
    assert shop.timetable.summary == "30 seconds"
    assert [alias.name for alias in shop.get_task("publish").outlets] == ["lockstep:shop"]
    assert "lockstep://shop/counts" in (shop.doc_md or "")


def test_a_task_is_tried_for_as_long_as_the_page_says(tmp_path: Path) -> None:
    """Airflow waits for a delay that doubles, or for up to twice as long."""
    record(tmp_path, "shop", spec("shop"))
    page = (REPOSITORY / "docs" / "operating.md").read_text("utf-8")
    assert "tried four times more, in a minute or two, then each run fails" in page
    for task in parse()["shop"].tasks:
        assert task.retries == 4
        assert task.retry_exponential_backoff is True
        assert task.max_retry_delay is not None
        delays = [task.retry_delay.total_seconds() * 2**tried for tried in range(4)]
        longest = task.max_retry_delay.total_seconds()
        assert sum(delays) >= 60
        assert sum(min(2 * delay, longest) for delay in delays) < 150


def test_the_engine_is_chosen_by_configuration(tmp_path: Path) -> None:
    record(tmp_path, "big", spec("big", engine="submit", spark_connection="cluster"))
    dags = parse()
    run, publish = dags["big"].get_task("run"), dags["big"].get_task("publish")
    assert isinstance(run, SubmitRunOperator)
    assert isinstance(publish, SubmitPublishOperator)
    assert isinstance(dags["big__maintenance"].get_task("maintain"), SubmitMaintainOperator)
    assert run._conn_id == "cluster"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (spec("bad", interval="now and then"), "lockstep.interval has a value that cannot be used"),
        (spec("bad", cron="61 * * * *"), "lockstep.cron is no cron expression"),
        ("configuration: [", "the recorded spec of pipeline bad cannot be read"),
        ("just text", "the recorded spec of pipeline bad cannot be read"),
    ],
)
def test_a_broken_pipeline_shows_as_a_dag_that_says_why_and_hides_no_other(
    tmp_path: Path, text: str, reason: str
) -> None:
    record(tmp_path, "bad", text)
    record(tmp_path, "shop", spec("shop"))
    dags = parse()
    assert sorted(dags) == ["bad", "shop", "shop__maintenance"]
    assert "broken" in dags["bad"].tags
    assert reason in (dags["bad"].doc_md or "")
    assert reason in dags["bad"].get_task("explain").fault


def test_a_store_that_does_not_answer_breaks_no_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow keeps the DAGs of a file that cannot be imported: a task that is at work goes on."""
    record(tmp_path, "shop", spec("shop"))

    def away(*_: object) -> None:
        raise Unreachable("the control store does not answer", next_step="lockstep status")

    monkeypatch.setattr(runtime, "recorded", away)
    with pytest.raises(Unreachable, match="the control store does not answer"):
        parse()


@pytest.mark.parametrize("name", ["shop~eu", "shop eu", "shop__maintenance", "s" * 245, "ü\n"])
def test_a_name_that_no_dag_can_have_takes_no_other_dag_away(tmp_path: Path, name: str) -> None:
    """It was deployed when nobody asked."""
    for one in (name, "shop", "shop_eu"):
        record(tmp_path, one, f"name: {one}\n")
    dags = parse()
    sound = {"shop", "shop__maintenance", "shop_eu", "shop_eu__maintenance"}
    assert sound < set(dags)
    assert not any("broken" in dags[one].tags for one in sound)
    [odd] = set(dags) - sound
    assert "broken" in dags[odd].tags
    assert "cannot be that of a DAG in Airflow" in dags[odd].get_task("explain").fault


def test_in_front_of_a_task_a_broken_pipeline_is_found_by_its_dag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path, "shop~eu", spec("shop~eu"))
    record(tmp_path, "shop", spec("shop"))
    [odd] = parse().keys() - {"shop", "shop__maintenance"}
    monkeypatch.setenv(PARSED_DAG, odd)
    assert sorted(parse()) == [odd]


@pytest.mark.parametrize(
    "name", ["shop", "2nd-shop.eu_1", "größe", "a" * 237, "a" * 238, "a b", "a~b", "a/b", "a:b", ""]
)
def test_a_name_can_be_deployed_where_airflow_takes_its_two_dags(name: str) -> None:
    def takes(dag_id: str) -> bool:
        try:
            DAG(dag_id, schedule=None)
        except ValueError:
            return False
        return True

    assert is_dag_id(name) == (takes(name) and takes(f"{name}__maintenance"))


def test_in_front_of_a_task_only_its_dag_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("shop", "other"):
        record(tmp_path, name, spec(name))
    monkeypatch.setenv(PARSED_DAG, "shop__maintenance")
    assert sorted(parse()) == ["shop", "shop__maintenance"]


def test_parsing_loads_no_client_of_spark_kafka_or_iceberg(tmp_path: Path) -> None:
    record(tmp_path, "shop", spec("shop"))
    code = (
        f"import runpy, sys; runpy.run_path({str(DAG_FILE)!r});"
        "heavy = {'pyspark', 'pyiceberg', 'kafka', 'confluent_kafka', 'duckdb', 'pyarrow'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.stdout.splitlines()[-1:] == ["[]"], ended.stderr


def test_airflow_s_scan_of_the_plugins_loads_the_plugin_and_leaves_the_package_alone(
    pristine: Installation,
) -> None:
    """It would import each file by its bare name: an `errors`, a `types` in place of Python's."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from airflow import plugins_manager\n"
        "timetables = plugins_manager.get_timetables_plugins()\n"
        "print('found', sorted(timetables))\n"
        f"package = {str(REPOSITORY / 'plugins' / 'lockstep')!r}\n"
        "print('stray', [name for name, module in list(sys.modules.items())\n"
        "    if (getattr(module, '__file__', None) or '').startswith(package)\n"
        "    and not name.startswith('lockstep')])\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env=pristine.variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "lockstep.airflow.timetable.AlignedIntervalTimetable" in ended.stdout, ended.stderr
    assert "stray []" in ended.stdout


def test_a_whole_run_by_dag_test(pristine: Installation, tmp_path: Path) -> None:
    """Airflow's own way to run a DAG in one process, with the plugin's timetable stored."""
    installation = pristine.copy(tmp_path / "copy")
    code = (
        "from airflow.dag_processing.dagbag import DagBag\n"
        "bag = DagBag()\n"
        "assert not bag.import_errors, bag.import_errors\n"
        "run = bag.dags['shop'].test()\n"
        "print('ended', run.state)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env=installation.variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ended success" in ended.stdout, ended.stdout + ended.stderr
    assert (installation.home / "shop.pickle").exists()
