"""Deploying again over committed steps: what then has to be made anew."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

import pytest
from shop_project import SPEC, installed, written

from lockstep import deploying, runtime
from lockstep.adapters.settings import Settings
from lockstep.adapters.sql_store import SqlStore
from lockstep.control.changes import BeginAttempt, Change, CommitVersion, Landed, RecordInterval
from lockstep.control.model import Attempt, Division, Interval, OffsetRange, TopicSlice, Version
from lockstep.errors import ProjectError, Refused, Retry, WrongUse

SQL = """
CREATE TABLE orders (a INT, b INT) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = 'b', subscribe = 'orders'%s);
CREATE MATERIALIZED VIEW w AS SELECT a, b FROM orders;
"""


def write(folder: Path, option: str) -> str:
    return written(folder, SQL % option)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """An installation where the project is deployed."""
    found = installed(tmp_path / "home")
    deploying.deploy(write(tmp_path, ""), found)
    return found


def commit_a_step(settings: Settings) -> None:
    slice_ = TopicSlice("orders", "orders", "id", (OffsetRange(0, 10, 20),))
    division = Division(0, datetime(2026, 1, 1, tzinfo=UTC), (slice_,))
    changes: list[Change] = [
        RecordInterval(Interval((division,))),
        BeginAttempt(Attempt("a", 0, 0, "")),
        CommitVersion(Version(1, "a", 0, 0, {"w_changes": 7}), ""),
    ]
    store = SqlStore(settings.store_url)
    for change in changes:
        assert isinstance(store.apply("shop", change), Landed)


def test_a_source_that_is_read_in_another_way_is_read_again(
    tmp_path: Path, settings: Settings
) -> None:
    """Which records are rows depends on it, those of the steps before too."""
    deploying.deploy(write(tmp_path, ", missing_columns = 'null'"), settings)
    deploying.deploy(write(tmp_path, ""), settings)
    commit_a_step(settings)
    deploying.deploy(write(tmp_path, ", missing_columns = 'error', on_error = 'fail'"), settings)
    assert runtime.recorded("shop", settings).replaced is None
    folder = write(tmp_path, ", missing_columns = 'null'")
    proposal = deploying.propose(folder, settings)
    assert proposal.rebuild is not None
    assert proposal.rebuild.sources == ("orders",)
    assert runtime.recorded("shop", settings).replaced is None
    state = deploying.deploy(folder, settings)
    assert state.replaced is not None
    assert state.replaced.distrusted == ("orders",)
    assert (
        dict(state.version_files.files)["sql/shop.sql"] != dict(state.files.files)["sql/shop.sql"]
    )


def test_a_comment_is_no_change_of_what_is_computed(tmp_path: Path, settings: Settings) -> None:
    commit_a_step(settings)
    folder, sql = write(tmp_path, ""), tmp_path / "sql" / "shop.sql"
    text = sql.read_text("utf-8").replace("VIEW w AS", "VIEW w (a COMMENT 'x', b) COMMENT 'y' AS")
    sql.write_text(text, encoding="utf-8")
    assert deploying.propose(folder, settings).rebuild is None
    state = deploying.deploy(folder, settings)
    assert state.replaced is None
    assert dict(state.version_files.files)["sql/shop.sql"] == text, "by which is published next"


def test_a_change_is_recorded_only_where_it_is_approved(tmp_path: Path, settings: Settings) -> None:
    commit_a_step(settings)
    folder = write(tmp_path, ", missing_columns = 'null'")
    with pytest.raises(Refused, match="not approved") as caught:
        deploying.deploy(folder, settings, lambda _: False)
    assert f"lockstep deploy {folder} --yes" in caught.value.next_step
    assert runtime.recorded("shop", settings).replaced is None
    assert deploying.deploy(folder, settings, lambda _: True).replaced is not None


def test_a_source_of_another_topic_begins_anew(tmp_path: Path, settings: Settings) -> None:
    commit_a_step(settings)
    sql = tmp_path / "sql" / "shop.sql"
    sql.write_text(sql.read_text().replace("subscribe = 'orders'", "subscribe = 'new'"), "utf-8")
    state = deploying.deploy(str(tmp_path), settings)
    assert state.positions == ()
    assert state.replaced is not None


def test_state_is_made_anew_only_where_there_is_some(settings: Settings) -> None:
    with pytest.raises(WrongUse, match="has no version yet") as early:
        deploying.reconcile("shop", settings)
    assert early.value.next_step == "lockstep trigger shop --once, or lockstep run DIR --once"
    commit_a_step(settings)
    with pytest.raises(WrongUse, match="has no source items"):
        deploying.reconcile("shop", settings, ("items",))
    assert deploying.reconcile("shop", settings).positions
    state = deploying.reconcile("shop", settings, ("orders",))
    assert state.replaced is not None
    assert state.positions == ()


def test_before_the_first_version_a_source_can_be_forgotten(settings: Settings) -> None:
    """What is recorded of it may be gone, and every run refuses to read on."""
    with pytest.raises(WrongUse, match="has no source items"):
        deploying.reconcile("shop", settings, ("items",))
    slice_ = TopicSlice("orders", "orders", "id", (OffsetRange(0, 10, 20),))
    division = Division(0, datetime(2026, 1, 1, tzinfo=UTC), (slice_,))
    recorded = SqlStore(settings.store_url).apply("shop", RecordInterval(Interval((division,))))
    assert isinstance(recorded, Landed)
    state = deploying.reconcile("shop", settings, ("orders",))
    assert (state.positions, state.replaced) == ((), None)
    assert state.pending is not None


def test_a_stage_refuses_where_no_broker_is_known(tmp_path: Path, settings: Settings) -> None:
    """Airflow's tasks come this way, without the command line."""
    sql = tmp_path / "sql" / "shop.sql"
    sql.write_text(sql.read_text().replace("= 'b'", "= '${ lockstep.kafka }'"), encoding="utf-8")
    deploying.deploy(str(tmp_path), settings)
    with (
        runtime.open_pipeline("shop", replace(settings, kafka="")) as pipeline,
        pytest.raises(WrongUse, match="no broker is known"),
    ):
        pipeline.plan(None, print)


def test_a_project_that_names_its_broker_needs_no_setting(
    tmp_path: Path, settings: Settings
) -> None:
    assert deploying.deploy(str(tmp_path), replace(settings, kafka="")).name == "shop"


def test_a_broker_in_the_configuration_is_the_projects_own(
    tmp_path: Path, settings: Settings
) -> None:
    """It needs no setting, and none takes its place."""
    sql = tmp_path / "sql" / "shop.sql"
    sql.write_text(sql.read_text().replace("= 'b'", "= '${lockstep.kafka}'"), encoding="utf-8")
    own = "configuration: {lockstep.kafka: 'own:1'}\n"
    (tmp_path / "spark-pipeline.yml").write_text(SPEC + own, encoding="utf-8")
    for kafka in ("", "elsewhere:2"):
        known = replace(settings, kafka=kafka)
        deploying.deploy(str(tmp_path), known)
        with runtime.open_pipeline("shop", known, Mock()) as pipeline:
            [source] = pipeline.project.sources
        assert source.options["kafka.bootstrap.servers"] == "own:1"


def test_a_mapper_that_cannot_be_imported_is_not_deployed(
    tmp_path: Path, settings: Settings
) -> None:
    files = runtime.recorded("shop", settings).files
    folder = write(tmp_path, "")
    named = "configuration: {lockstep.partition_mapper: 'nowhere_of_ours:f'}\n"
    (tmp_path / "spark-pipeline.yml").write_text(SPEC + named, encoding="utf-8")
    with pytest.raises(WrongUse, match="names no mapper: nowhere_of_ours:f"):
        deploying.deploy(folder, settings)
    assert runtime.recorded("shop", settings).files == files


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("lockstep.interval: 500 ms", "lockstep.interval"),
        ("lockstep.cron: now and then", "lockstep.cron is no cron expression"),
        ("lockstep.engine: sumbit", "lockstep.engine is 'sumbit'"),
        ("lockstep.retain_versions: 1", "lockstep.retain_versions"),
        ("lockstep.retain_versions: ten", "lockstep.retain_versions"),
    ],
)
def test_a_setting_that_cannot_be_used_is_not_deployed(
    tmp_path: Path, settings: Settings, setting: str, said: str
) -> None:
    files = runtime.recorded("shop", settings).files
    spec = f"{SPEC}configuration: {{{setting}}}\n"
    (tmp_path / "spark-pipeline.yml").write_text(spec, encoding="utf-8")
    with pytest.raises(WrongUse, match=said):
        deploying.deploy(str(tmp_path), settings)
    assert runtime.recorded("shop", settings).files == files


def test_a_setting_that_a_sinks_producers_are_not_given_is_not_deployed(
    tmp_path: Path, settings: Settings
) -> None:
    sink = (
        "CREATE SINK out FROM w USING kafka OPTIONS (\n"
        "  'kafka.bootstrap.servers' = 'b', topic = 'o', 'kafka.acks' = '1', 'kafka.linger.ms' = '5');"
    )
    (tmp_path / "sql" / "sink.sql").write_text(sink, encoding="utf-8")
    with pytest.raises(WrongUse) as refused:
        deploying.deploy(str(tmp_path), settings)
    assert refused.value.message == (
        "sink out has settings that its producers are not given: kafka.acks, kafka.linger.ms"
    )
    assert "kafka.bootstrap.servers" in refused.value.expected
    assert refused.value.next_step == "leave them out at sql/sink.sql:1:1 and deploy again"


def test_what_was_approved_is_not_recorded_over_another_deploy(
    tmp_path: Path, settings: Settings
) -> None:
    """What it changes was told of what was deployed before."""
    commit_a_step(settings)
    mine, other = (tmp_path / name for name in ("mine", "other"))
    for folder, option in ((mine, ", missing_columns = 'null'"), (other, ", on_error = 'fail'")):
        folder.mkdir()
        write(folder, option)

    def somebody_deploys(_: deploying.Proposal) -> bool:
        deploying.deploy(str(other), settings)
        return True

    with pytest.raises(Retry, match="another project was deployed since") as caught:
        deploying.deploy(str(mine), settings, somebody_deploys)
    assert caught.value.next_step == "run the command again"
    deployed = dict(runtime.recorded("shop", settings).files.files)
    assert "on_error" in deployed["sql/shop.sql"]
    deploying.deploy(str(mine), settings)


def test_a_pipeline_that_is_open_goes_on_with_what_is_deployed(
    tmp_path: Path, settings: Settings
) -> None:
    """`run --follow` stays open for days: sources may be elsewhere by then."""
    with runtime.Pipeline("shop", settings, engine=Mock()) as pipeline, pipeline.held(print):
        [before] = pipeline.project.sources
        deploying.deploy(write(tmp_path, ", 'startingOffsets' = 'latest'"), settings)
        assert pipeline.run(print) is None, "nothing is pending"
        [after] = pipeline.project.sources
    assert (before.options.get("startingoffsets"), after.options["startingoffsets"]) == (
        None,
        "latest",
    )


def test_a_name_that_no_dag_can_have_is_not_deployed(tmp_path: Path, settings: Settings) -> None:
    """Airflow would show nothing of it, or less of the others."""
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.replace("shop", "shop~eu", 1), "utf-8")
    with pytest.raises(ProjectError, match=r"spark-pipeline.yml:2:1: the name 'shop~eu' cannot be"):
        deploying.propose(str(tmp_path), settings)
    with pytest.raises(ProjectError, match="cannot be that of a DAG"):
        deploying.deploy(str(tmp_path), settings)
    assert runtime.deployed(settings) == ("shop",)


def test_what_was_deployed_under_such_a_name_can_be_deployed_again(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its queries may have to change, wherever it runs."""
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.replace("shop", "my shop", 1), "utf-8")
    with monkeypatch.context() as before_it_was_asked:
        before_it_was_asked.setattr(deploying, "check_name", lambda *_: None)
        deploying.deploy(str(tmp_path), settings)
    folder = write(tmp_path, ", 'startingOffsets' = 'latest'")
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.replace("shop", "my shop", 1), "utf-8")
    files = deploying.deploy(folder, settings).files
    assert "latest" in dict(files.files)["sql/shop.sql"]
