"""`lockstep bench nexmark`: the whole path at a small size, its results checked, its figures saved."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from lockstep.adapters.embedded.ports import HOST, free_ports
from lockstep.adapters.spark_stages import Stage, TaskTimes, stages_between
from lockstep.cli.bench import EXAMPLE, QUERIES, chosen, write_project
from lockstep.cli.main import cli
from lockstep.cli.profile import SparkWork, profile_text, spark_work
from lockstep.control import limits
from lockstep.errors import Unreachable, WrongUse
from lockstep.sql.project import parse_project, read_project_files
from lockstep_engine import attempt
from lockstep_engine.context import Context


@pytest.mark.spark
@pytest.mark.kafka
def test_bench_prints_and_saves_events_a_second(
    tmp_path: Path, spark_server: Any, broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LOCKSTEP_KAFKA", broker.bootstrap)
    monkeypatch.setenv("LOCKSTEP_SPARK_REMOTE", spark_server.remote)
    monkeypatch.setenv("LOCKSTEP_SPARK_UI", spark_server.ui)
    # What Spark does is shown, so that there has to be some: the driver would do all of it.
    monkeypatch.setattr(attempt, "FEW_RECORDS", 0)
    monkeypatch.setattr(attempt, "Context", partial(Context, many_records=0))
    monkeypatch.setattr(attempt, "can_be_worked_out", lambda *_: False)
    # Of q5 two intervals, of two steps each.
    monkeypatch.setattr(limits, "_ROWS_OF_FEW", 2_500)
    saved = tmp_path / "figures.json"
    words = ["bench", "nexmark", "--events", "5000", "--queries", "q3,q5", "--warmups", "0"]
    result = CliRunner().invoke(
        cli,
        [*words, "--steps", "4", "--profile", "--save", str(saved)],
        obj={},
        catch_exceptions=False,
    )
    assert result.exit_code == 0
    figures = json.loads(saved.read_text())
    assert set(figures["events_per_second"]) == {"q3", "q5"}
    assert all(rate > 0 for rate in figures["events_per_second"].values())
    q3, q5 = figures["queries"]["q3"], figures["queries"]["q5"]
    assert (q3["records"], q5["records"]) == (400, 4600)
    assert (q3["equal"], q5["equal"]) == (True, True)
    assert q5["steps"] >= 4
    assert q5["rows"] > 0
    assert "events/s" in result.stdout
    # Stages of tests that run at the same time are counted too.
    spark = SparkWork(**q5["spark"])
    assert 0 <= spark.idle < q5["seconds"]
    assert 0 < spark.cpu <= spark.run
    assert spark.stages <= spark.tasks
    assert f"q5: {q5['seconds']:.2f} s\n  plan" in result.stdout
    assert f"Spark: {spark.stages} stages, {spark.tasks} tasks" in result.stdout


STAGE = Stage(10.0, 12.0, 4, TaskTimes(3.0, 2.0, 0.5, 0.25, 0.125))


def test_time_without_a_task_is_what_no_stage_covers() -> None:
    within, later = replace(STAGE, started=11.0, ended=11.5), replace(STAGE, started=14, ended=17)
    found = spark_work((STAGE, within, later), 9.0, 15.0)
    assert found == SparkWork(
        run=9.0,
        cpu=6.0,
        garbage=1.5,
        shuffle_write=0.75,
        shuffle_wait=0.375,
        stages=3,
        tasks=12,
        idle=3.0,
    )
    assert spark_work((), 1.0, 3.0).idle == 2.0


def test_a_profile_shows_parts_below_their_whole() -> None:
    inside = {"decode": 2.0, "append": 1.0, "append small": 0.25, "append large": 1.0}
    shown = profile_text("q", 4.0, {"plan": 0.5, "run": 3.5}, inside, None)
    assert shown.splitlines() == [
        "q: 4.00 s",
        "  plan         0.50  █████",
        "  run          3.50  ███████████████████████████████████",
        "    decode     2.00  ████████████████████",
        "    append     1.00  ██████████",
        "      large    1.00  ██████████",
        "      small    0.25  ██",
        "    other      0.50  █████",
    ]


def test_the_whole_of_a_profile_is_the_one_that_the_table_shows() -> None:
    stages = {"plan": 1.65, "run": 0.537, "publish": 1.748}
    seconds = round(sum(stages.values()), 3)
    assert f"{seconds:.2f}" != f"{sum(stages.values()):.2f}"
    assert profile_text("q", seconds, stages, {}, None).startswith(f"q: {seconds:.2f} s\n")


def test_a_server_without_a_ui_is_said() -> None:
    [port] = free_ports(1)
    with pytest.raises(Unreachable, match="does not say what ran"):
        stages_between(f"http://{HOST}:{port}", 0, 1)


@pytest.mark.parametrize("query", list(QUERIES))
def test_project_of_a_query_reads_its_sources_and_no_others(query: str, tmp_path: Path) -> None:
    write_project(EXAMPLE, tmp_path / query, query, query, "bench.", 100)
    project = parse_project(read_project_files(tmp_path / query), {"lockstep.kafka": "127.0.0.1:9"})
    assert {source.name for source in project.sources} == set(QUERIES[query])
    assert {source.options["subscribe"] for source in project.sources} == {
        f"bench.{name}" for name in QUERIES[query]
    }
    assert [view.name for view in project.views] == [query]


def test_every_query_of_the_example_can_be_measured() -> None:
    files = {path.stem for path in (EXAMPLE / "transformations").glob("q*.sql")}
    assert files == set(QUERIES)
    spec = yaml.safe_load((EXAMPLE / "spark-pipeline.yml").read_text())
    assert "nexmark.prefix" in spec["configuration"]


def test_query_that_is_not_there_is_said() -> None:
    with pytest.raises(WrongUse, match="no Nexmark query q99") as error:
        chosen("q0,q99")
    assert "q0, q1, q2" in str(error.value)
