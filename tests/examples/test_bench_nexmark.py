"""`lockstep bench nexmark`: the whole path at a small size, its results checked, its figures saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from lockstep.cli.bench import EXAMPLE, QUERIES, chosen, write_project
from lockstep.cli.main import cli
from lockstep.errors import WrongUse
from lockstep.sql.project import parse_project, read_project_files


@pytest.mark.spark
@pytest.mark.kafka
def test_bench_prints_and_saves_events_a_second(
    tmp_path: Path, spark_server: Any, broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LOCKSTEP_KAFKA", broker.bootstrap)
    monkeypatch.setenv("LOCKSTEP_SPARK_REMOTE", spark_server.remote)
    saved = tmp_path / "figures.json"
    words = ["bench", "nexmark", "--events", "5000", "--queries", "q3,q5", "--warmups", "0"]
    result = CliRunner().invoke(
        cli, [*words, "--steps", "4", "--save", str(saved)], obj={}, catch_exceptions=False
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
