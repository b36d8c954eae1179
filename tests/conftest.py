"""The real parts that tests share: one Spark Connect server and one Kafka broker for all of them.

Both are started when a test first asks for them, on free ports and in a temporary folder, and ended
with the session. Tests keep apart by names of their own: a database, topics, groups. They run in
several processes (`make test`): those of a file in one, and all that share an Airflow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import hypothesis
import pytest
from shared import common_folder, shared

from lockstep.adapters.embedded import broker as embedded_broker
from lockstep.adapters.embedded import connect, process
from lockstep.adapters.embedded.ports import HOST, free_ports
from lockstep.adapters.jars import jar_paths
from lockstep.adapters.settings import Settings
from lockstep.control.job import CatalogSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG = "lake"

# No test asserts a time: what is slow on a busy machine is not wrong.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


# First: xdist reads the groups in this hook, too.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file's tests share what it makes, and those of Airflow share one: each in one process."""
    for item in items:
        is_of_airflow = item.get_closest_marker("airflow") is not None
        group = "airflow" if is_of_airflow else item.path.name
        item.add_marker(pytest.mark.xdist_group(group))


@dataclass(frozen=True)
class SparkServer:
    """A Spark Connect server with the Iceberg catalog `lake` below `folder`."""

    remote: str
    pid: int
    folder: Path
    ui: str

    @property
    def catalog_uri(self) -> str:
        """For SQLAlchemy and PyIceberg; LOCKSTEP_CATALOG_URI."""
        return f"sqlite:///{self.folder}/catalog.db"

    @property
    def warehouse(self) -> str:
        """LOCKSTEP_WAREHOUSE."""
        return f"file://{self.folder}/warehouse"

    def catalog_settings(self, database: str) -> CatalogSettings:
        """The catalog `lake` as the server and PyIceberg see it, and a database in it."""
        return CatalogSettings(
            name=CATALOG,
            database=database,
            spark=_spark_catalog(self.folder),
            pyiceberg={"type": "sql", "uri": self.catalog_uri, "warehouse": self.warehouse},
        )


def _spark_catalog(folder: Path) -> dict[str, str]:
    return {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{folder}/catalog.db?busy_timeout=30000&journal_mode=WAL",
        "warehouse": f"file://{folder}/warehouse",
        "jdbc.schema-version": "V1",
        "cache-enabled": "false",
    }


@pytest.fixture(scope="session")
def spark_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkServer]:
    """One Spark Connect server for all processes of the session."""
    common = common_folder(tmp_path_factory)
    with shared(common, "spark", _start_spark, connect.STOP_SECONDS) as (server, found):
        yield SparkServer(found["remote"], server.pid, common / "spark", found["ui"])


def _start_spark(folder: Path) -> tuple[process.Process, dict[str, str]]:
    (folder / "warehouse").mkdir()
    prefix = f"spark.sql.catalog.{CATALOG}"
    port, ui_port = free_ports(2)
    options = connect.ConnectOptions(
        port=port,
        ui_port=ui_port,
        driver_memory="3g",
        conf={
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            **{f"{prefix}.{key}": value for key, value in _spark_catalog(folder).items()},
        },
    )
    log = folder / "connect.log"
    server = connect.start(folder, jar_paths("spark"), options, log)

    def ready() -> None:
        connect.wait_ready(server, options.port, log)
        _open_catalog(options.remote)

    _wait(server, ready, connect.STOP_SECONDS)
    return server, {"remote": options.remote, "ui": f"http://{HOST}:{ui_port}"}


def _open_catalog(remote: str) -> None:
    """Two sessions that are the first at the same moment would both make the catalog's tables."""
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(remote).create()
    session.sql(f"SHOW NAMESPACES IN {CATALOG}").collect()
    session.stop()


def _wait(server: process.Process, ready: Callable[[], None], seconds: float) -> None:
    """A server that does not become ready is not left behind."""
    try:
        ready()
    except BaseException:
        process.stop(server, seconds)
        raise


@pytest.fixture(scope="session")
def spark(spark_server: SparkServer) -> Iterator[SparkSession]:
    """A Connect session on the shared server."""
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(spark_server.remote).create()
    yield session
    session.stop()


@dataclass(frozen=True)
class Broker:
    """A Kafka broker; topics are not made by themselves."""

    bootstrap: str
    pid: int


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One KRaft broker for all processes of the session."""
    common, seconds = common_folder(tmp_path_factory), embedded_broker.STOP_SECONDS
    with shared(common, "broker", _start_broker, seconds) as (running, found):
        yield Broker(found["bootstrap"], running.pid)


def _start_broker(folder: Path) -> tuple[process.Process, dict[str, str]]:
    port, controller_port = free_ports(2)
    log = folder / "broker.log"
    running = embedded_broker.start(folder, jar_paths("broker"), port, controller_port, log)
    _wait(
        running,
        lambda: embedded_broker.wait_ready(running, port, log),
        embedded_broker.STOP_SECONDS,
    )
    return running, {"bootstrap": f"{HOST}:{port}"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings of a fresh installation in a temporary folder; nothing runs there."""
    return Settings.load({"LOCKSTEP_HOME": str(tmp_path / "home")})


@pytest.fixture
def database() -> str:
    """A name that no other test uses, for a database, a topic or a pipeline."""
    return f"t{uuid4().hex[:10]}"


@pytest.fixture
def by_spark(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What kinds of operators Spark evaluates."""
    from lockstep_engine import evaluation

    found: list[str] = []
    evaluate = evaluation.evaluate

    def noted(operator: Any, *others: Any) -> Any:
        found.append(type(operator.node).__name__)
        return evaluate(operator, *others)

    monkeypatch.setattr(evaluation, "evaluate", noted)
    return found
