"""Puts the parts together for one deployed pipeline: the only place that knows all adapters.

The faces (command line, Airflow) call this and nothing below it. Importing it is cheap: Spark, Kafka
and Iceberg clients are loaded when a pipeline is opened.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from lockstep.adapters.clock import SystemClock
from lockstep.adapters.python_views import with_python_views
from lockstep.adapters.settings import Settings
from lockstep.adapters.sql_store import SqlStore
from lockstep.control import interval as stages
from lockstep.control.changes import Change, Deploy, Landed
from lockstep.control.maintenance import maintain
from lockstep.control.model import Division, PipelineState, SinkState
from lockstep.control.ports import Engine, Progress, Store
from lockstep.control.receipts import Receipt, receipts, snapshot_receipts
from lockstep.control.reports import Committed, Maintained, Planned, Published
from lockstep.control.steps import StepLimits
from lockstep.errors import NotDeployed, Retry, WrongUse
from lockstep.sql.circuit import Circuit, Project, ProjectFiles, SourceTable
from lockstep.sql.incremental import build_circuit
from lockstep.sql.project import parse_project, read_project_files
from lockstep.sql.sources.source_layout import decoding_options
from lockstep.sql.sources.watermarks import watermark_of

if TYPE_CHECKING:
    from lockstep.adapters.sources import ProjectSources

__all__ = [
    "Pipeline",
    "deploy",
    "deployed",
    "load_project",
    "open_pipeline",
    "receipt",
    "recorded",
    "require_broker",
    "snapshot_receipt",
]

DEFAULT_RETAIN_VERSIONS = 10
_BROKER_VARIABLE = re.compile(r"\$\{\s*lockstep\.kafka\s*\}")

_Answer = TypeVar("_Answer")


class Pipeline:
    """One deployed pipeline with its store, sources, tables and Spark. Close it when done.

    `reached` is told each point that a stage gets to: tests kill the process there.
    """

    def __init__(
        self,
        name: str,
        settings: Settings,
        reached: Callable[[stages.Point], None] = lambda _: None,
        engine: Engine | None = None,
    ) -> None:
        self.name = name
        self.settings = settings
        self._reached = reached
        self._engine = engine
        self._store = SqlStore(settings.store_url)
        self._clock = SystemClock()
        self._files = self._store.read(name).files
        self.project = parse_project(self._files, settings.variables())
        self.circuit = build_circuit(self.project)
        self._sources: ProjectSources | None = None
        self._parts: stages.Parts | None = None

    def state(self) -> PipelineState:
        """What is recorded now."""
        return self._store.read(self.name)

    def divisions(self, first_step: int, last_step: int) -> tuple[Division, ...]:
        """Recorded divisions of these steps that are still kept."""
        return self._store.divisions(self.name, first_step, last_step)

    def plan(self, until: datetime | None, progress: Progress) -> Planned:
        """Record the division of the next interval up to `until` (None: all that is there now, as
        one interval with one step boundary at the present). Gives back a pending one as it is."""
        return self._leased(lambda parts: stages.plan(parts, until, progress), progress)

    def run(self, progress: Progress) -> Committed | None:
        """Run and commit the pending interval; None where none is pending."""
        return self._leased(lambda parts: stages.run(parts, progress), progress)

    def publish(self, progress: Progress) -> Published:
        """Move every sink to the newest version's last step."""
        return self._leased(lambda parts: stages.publish(parts, progress), progress)

    def maintain(self, progress: Progress) -> Maintained:
        """Trim versions and sweep what dead attempts left."""
        return maintain(self._opened(), progress)

    def close(self) -> None:
        """Close the connections to the sources."""
        if self._sources is not None:
            self._sources.close()
            self._sources = None
            self._parts = None

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _leased(self, stage: Callable[[stages.Parts], _Answer], progress: Progress) -> _Answer:
        from lockstep.adapters.lease import held, new_holder

        parts = self._opened()
        with held(self._store, self.name, new_holder(), self._clock, progress):
            return stage(parts)

    def _opened(self) -> stages.Parts:
        if self._parts is None:
            self._parts = self._open()
        return self._parts

    def _open(self) -> stages.Parts:
        from lockstep.adapters.catalogs import catalog_settings
        from lockstep.adapters.iceberg import IcebergState
        from lockstep.adapters.iceberg_files import IcebergFiles
        from lockstep.adapters.sources import ProjectSources

        require_broker(self.name, self._files, self.settings)
        project, configuration = self.project, self.project.configuration
        catalog = catalog_settings(project.catalog, project.database, configuration, self.settings)
        self._sources = ProjectSources(project, catalog)
        return stages.Parts(
            pipeline=self.name,
            store=self._store,
            sources=self._sources,
            state=IcebergState(catalog),
            files=IcebergFiles(catalog),
            engine=self._engine or _engine(configuration, self.settings),
            clock=self._clock,
            limits=StepLimits.from_configuration(configuration),
            retain_versions=int(
                configuration.get("lockstep.retain_versions", DEFAULT_RETAIN_VERSIONS)
            ),
            source_names=tuple(source.name for source in project.sources),
            outboxes={outbox.view: outbox.table for outbox in self.circuit.outboxes},
            variables=self.settings.variables(),
            catalog=catalog,
            new_id=lambda: uuid.uuid4().hex[:12],
            reached=self._reached,
            reads_time=self.circuit.reads_time,
        )


def _engine(configuration: Mapping[str, str], settings: Settings) -> Engine:
    from lockstep.adapters.iceberg import IcebergState

    kind = configuration.get("lockstep.engine", "connect")
    if kind == "submit":
        from lockstep.adapters.submit import SubmitEngine

        return SubmitEngine(settings)
    if kind != "connect":
        raise WrongUse(
            f"lockstep.engine is {kind!r}",
            expected="connect (the warm server) or submit (spark-submit)",
            found=kind,
            next_step="correct it in spark-pipeline.yml and deploy again",
        )
    if not settings.spark_remote:
        raise WrongUse(
            "no Spark Connect server is known",
            expected="LOCKSTEP_SPARK_REMOTE, or a running stack",
            found="neither",
            next_step="lockstep up",
        )
    from lockstep_engine.connect import ConnectEngine

    return ConnectEngine(settings.spark_remote, IcebergState)


def load_project(folder: str, settings: Settings) -> tuple[Project, Circuit]:
    """Parse and compile a project folder; changes nothing. Raises ProjectError."""
    project, circuit, _ = _load(folder, settings)
    return project, circuit


def _load(folder: str, settings: Settings) -> tuple[Project, Circuit, ProjectFiles]:
    files = with_python_views(read_project_files(Path(folder)), settings.variables())
    project = parse_project(files, settings.variables())
    return project, build_circuit(project), files


def require_broker(name: str, files: ProjectFiles, settings: Settings) -> None:
    """Raise WrongUse where the files leave the broker to the settings, and these know none.

    To look at a project any address does; to record or to read offsets it has to be said: a broker
    that happens to listen at the default address may be another one.
    """
    if settings.kafka or not any(_BROKER_VARIABLE.search(text) for _, text in files.files):
        return
    raise WrongUse(
        f"pipeline {name} names ${{lockstep.kafka}}, and no broker is known",
        expected="LOCKSTEP_KAFKA, or a running stack",
        found="neither",
        next_step="set LOCKSTEP_KAFKA to the broker's address, or run `lockstep up`",
    )


def deploy(folder: str, settings: Settings) -> PipelineState:
    """Check a project and record it under its spec's name; a second deploy keeps the incarnation.

    Raises WrongUse where no broker is known, and where versions exist and the new SQL needs other
    state than they hold.
    """
    project, circuit, files = _load(folder, settings)
    require_broker(project.name, files, settings)
    store = SqlStore(settings.store_url)
    _check_same_state(store, project, circuit, settings)
    sinks = tuple(
        SinkState(outbox.view, outbox.view, "iceberg") for outbox in circuit.outboxes
    ) + tuple(SinkState(sink.name, sink.view, sink.provider) for sink in project.sinks)
    change = Deploy(files, uuid.uuid4().hex, sinks, tuple(s.name for s in project.sources))
    return _landed(store, project.name, change)


def _check_same_state(store: Store, project: Project, circuit: Circuit, settings: Settings) -> None:
    """The positions in the sources belong to the traces: new traces would start empty in mid-stream."""
    try:
        recorded = store.read(project.name)
    except NotDeployed:
        return
    if recorded.next_step == 0:
        return
    old = parse_project(recorded.files, settings.variables())
    before, after = _state_of(old, build_circuit(old)), _state_of(project, circuit)
    if before != after:
        changed = sorted(str(name) for name, _ in before ^ after)
        raise WrongUse(
            f"pipeline {project.name} has recorded {recorded.next_step} steps, and the new files "
            "need other state than its versions hold",
            expected="the same sources and queries",
            found=f"changes in {', '.join(dict.fromkeys(changed))}",
            next_step="deploy the changed project under another name and database",
        )


def _state_of(project: Project, circuit: Circuit) -> set[tuple[str, object]]:
    """What versions depend on, by the name that a person knows."""
    sources = {(one.name, (one.columns, one.provider, *_reading(one))) for one in project.sources}
    plans = {view.name: view.plan for view in project.views}
    views = {(outbox.view, (plans[outbox.view], outbox.columns)) for outbox in circuit.outboxes}
    return sources | views


def _reading(source: SourceTable) -> tuple[object, ...]:
    """What a source's options say about its rows."""
    if source.is_table:
        return (source.table, source.append_only, watermark_of(source))
    topic = (source.topic, source.options.get("format"), source.absent_is_null)
    return (*topic, *decoding_options(source).items())


def _landed(store: Store, pipeline: str, change: Change) -> PipelineState:
    outcome = store.apply(pipeline, change)
    if isinstance(outcome, Landed):
        return outcome.state
    raise Retry(
        f"pipeline {pipeline}: {type(change).__name__} did not land: {outcome.reason}",
        next_step="run the command again",
    )


def deployed(settings: Settings) -> tuple[str, ...]:
    """Names of the deployed pipelines."""
    return SqlStore(settings.store_url).pipelines()


def recorded(name: str, settings: Settings) -> PipelineState:
    """What is recorded of a pipeline, read without parsing its SQL. Raises NotDeployed."""
    return SqlStore(settings.store_url).read(name)


def receipt(
    name: str, topic: str, partition: int, offset: int, settings: Settings
) -> tuple[Receipt, ...]:
    """What became of one record, for each source that reads its topic. Raises NotDeployed; WrongUse
    for a topic that no source reads."""
    state, divisions, project = _recorded_steps(name, settings)
    topics = {source.name: source.topic for source in project.sources if not source.is_table}
    return receipts(state, divisions, topics, topic, partition, offset)


def snapshot_receipt(
    name: str, table: str, snapshot_id: int, settings: Settings
) -> tuple[Receipt, ...]:
    """What became of one snapshot, for each source that follows its table (the full name). Raises
    NotDeployed, Unreachable; WrongUse for a table that no source follows, or has no such snapshot."""
    from lockstep.adapters.catalogs import catalog_settings
    from lockstep.adapters.sources import ProjectSources

    state, divisions, project = _recorded_steps(name, settings)
    catalog = catalog_settings(project.catalog, project.database, project.configuration, settings)
    sources = ProjectSources(project, catalog)
    tables = {s.name: sources.history(s.name) for s in project.sources if s.is_table}
    return snapshot_receipts(state, divisions, tables, table, snapshot_id)


def _recorded_steps(
    name: str, settings: Settings
) -> tuple[PipelineState, tuple[Division, ...], Project]:
    store = SqlStore(settings.store_url)
    state = store.read(name)
    divisions = store.divisions(name, state.oldest_step, max(0, state.next_step - 1))
    return state, divisions, parse_project(state.files, settings.variables())


def open_pipeline(name: str, settings: Settings, engine: Engine | None = None) -> Pipeline:
    """Raises NotDeployed. `engine` stands in for the one that the configuration names."""
    return Pipeline(name, settings, engine=engine)
