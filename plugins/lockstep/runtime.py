"""Puts the parts together for one deployed pipeline: the only place that knows all adapters.

The faces (command line, Airflow) call this and nothing below it. Importing it is cheap: Spark, Kafka
and Iceberg clients are loaded when a pipeline is opened.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from lockstep.adapters.clock import SystemClock
from lockstep.adapters.python_views import with_python_views
from lockstep.adapters.settings import Settings
from lockstep.adapters.sql_store import SqlStore
from lockstep.control import interval as stages
from lockstep.control.autoscaler import autoscale
from lockstep.control.backfill import Piece, plan_backfill, replay
from lockstep.control.changes import Landed, Rejected, SetDesired, Unknown
from lockstep.control.growth import GrowthRules
from lockstep.control.job import CatalogSettings, CompareResult
from lockstep.control.kafka_options import check_connections
from lockstep.control.layout.autoscaling import Autoscaling
from lockstep.control.layout.partitions import Grouping
from lockstep.control.layout.readers import Reader, readers
from lockstep.control.limits import retained_changes, retained_versions, retained_views
from lockstep.control.maintenance import maintain
from lockstep.control.model import Division, PipelineState, RunState, RunStatus, TopicSlice
from lockstep.control.planning import plan
from lockstep.control.ports import Engine, Progress, State
from lockstep.control.publishing import publish
from lockstep.control.receipts import (
    Receipt,
    input_of_step,
    receipts,
    snapshot_receipts,
    wait_until_settled,
)
from lockstep.control.reports import Backfilled, Committed, Maintained, Planned, Published
from lockstep.control.steps import StepLimits
from lockstep.control.stepwise import run_by_steps
from lockstep.errors import Retry, WrongUse
from lockstep.memory import keep_loaded
from lockstep.sql.circuit import (
    PARTITION_GROUPING,
    PARTITION_MAPPER,
    Circuit,
    Project,
    ProjectFiles,
)
from lockstep.sql.deployable import check_deployable
from lockstep.sql.incremental import build_circuit
from lockstep.sql.project import parse_project, read_project_files
from lockstep.sql.reading.spec import parse_spec

__all__ = [
    "Pipeline",
    "at_rest",
    "deployed",
    "desire",
    "engine_kind",
    "engine_of",
    "growth_rules",
    "load_files",
    "load_project",
    "open_pipeline",
    "partition_readers",
    "receipt",
    "recorded",
    "require_broker",
    "snapshot_receipt",
    "step_input",
    "tables_of",
    "wait_until_published",
    "wait_until_snapshot_published",
]

POLL_SECONDS = 1.0
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
        self._compile(self._store.read(name).files)
        self._parts: stages.Parts | None = None
        self._kept = ExitStack()
        self._is_held = False

    def state(self) -> PipelineState:
        """What is recorded now."""
        return self._store.read(self.name)

    def divisions(self, first_step: int, last_step: int) -> tuple[Division, ...]:
        """Recorded divisions of these steps that are still kept."""
        return self._store.divisions(self.name, first_step, last_step)

    def plan(self, until: datetime | None, progress: Progress) -> Planned:
        """Record the division of the next interval up to `until` (None: all that is there now, as
        one interval with one step boundary at the present). Gives back a pending one as it is."""
        return self._leased(lambda parts: plan(parts, until, progress), progress)

    def run(self, progress: Progress) -> Committed | None:
        """Run and commit the pending interval; None where none is pending. With `publish: step` all of
        its steps but the last are published meanwhile."""

        def stage(parts: stages.Parts) -> Committed | None:
            # Told only now: opening may have found another project.
            by_steps = self.project.publishes_steps
            return run_by_steps(parts, progress) if by_steps else stages.run(parts, progress)

        return self._leased(stage, progress)

    def publish(self, progress: Progress) -> Published:
        """Move every sink to the newest version's last step."""
        return self._leased(lambda parts: publish(parts, progress), progress)

    def backfill(self, start: datetime, end: datetime, progress: Progress) -> Backfilled:
        """Run the committed steps of start < time <= end again, and compare what they give with what
        they gave; changes nothing. The lease is held for one job at a time. Raises WrongUse where there
        are none, or no version that old is kept."""
        parts, state = self._opened(), self.state()
        kept = self.divisions(max(0, state.versions[0].last_step), state.version.last_step)
        pieces = plan_backfill(state, kept, start, end, parts.limits)

        def one(piece: Piece) -> CompareResult:
            return self._leased(lambda opened: replay(opened, piece, progress), progress)

        compared = CompareResult.joined([one(piece) for piece in pieces])
        return Backfilled(
            self.name, pieces[0].first_step, pieces[-1].last_step, len(pieces), compared
        )

    def is_published(self, until: datetime) -> bool:
        """Whether every sink has all steps up to that time, and none is to be run again."""
        state = self.state()
        last_step = min([state.version.last_step, *(s.published_step for s in state.sinks)])
        following = self.divisions(last_step + 1, last_step + 1)
        if following:
            return until < following[0].time
        return state.last_time is not None and until <= state.last_time

    def maintain(self, progress: Progress) -> Maintained:
        """Trim versions and sweep what dead attempts left; then scale, where the project has that done
        by what intervals take."""
        parts = self._opened()
        maintained = maintain(parts, progress)
        autoscale(parts, progress)
        return maintained

    def close(self) -> None:
        """Close the connections to the sources and the store."""
        self._kept.close()
        self._parts = None

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def held(self, progress: Progress) -> Iterator[None]:
        """Hold the lease from one stage to the next, for what takes them at once: no other run comes in
        between, and it is taken and given back once. Raises LeaseHeld as each stage by itself does."""
        from lockstep.adapters.lease import held, new_holder

        assert not self._is_held, "it would wait for itself"
        self._opened()
        with held(self._store, self.name, new_holder(), self._clock, progress):
            self._is_held = True
            try:
                yield
            finally:
                self._is_held = False

    def _leased(self, stage: Callable[[stages.Parts], _Answer], progress: Progress) -> _Answer:
        if self._is_held:
            return stage(self._opened())
        with self.held(progress):
            return stage(self._opened())

    def _compile(self, files: ProjectFiles) -> None:
        self._files = files
        self.project = parse_project(files, self.settings.variables())
        self.circuit = build_circuit(self.project)

    def _opened(self) -> stages.Parts:
        """With what is deployed now: somebody may have deployed since."""
        files = self.state().files
        if files != self._files:
            self.close()
            self._compile(files)
        if self._parts is None:
            self._parts = self._open()
            keep_loaded()
        return self._parts

    def _open(self) -> stages.Parts:
        from lockstep.adapters.iceberg_files import IcebergFiles
        from lockstep.adapters.sources import ProjectSources

        require_broker(self.name, self._files, self.settings)
        self._kept.enter_context(self._store.at_hand())
        project, configuration = self.project, self.project.configuration
        catalog, tables = tables_of(project, self.settings)
        sources = ProjectSources(project, catalog)
        self._kept.callback(sources.close)
        return stages.Parts(
            pipeline=self.name,
            store=self._store,
            sources=sources,
            state=tables,
            files=IcebergFiles(catalog),
            engine=self._engine or engine_of(configuration, self.settings),
            clock=self._clock,
            limits=StepLimits.from_configuration(configuration),
            retain_versions=retained_versions(configuration),
            retain_changes=retained_changes(configuration),
            retain_views=retained_views(configuration),
            source_names=tuple(source.name for source in project.sources),
            outboxes={outbox.view: outbox.table for outbox in self.circuit.outboxes},
            variables=self.settings.variables(),
            catalog=catalog,
            new_id=lambda: uuid.uuid4().hex[:12],
            reached=self._reached,
            project_files=self._files,
            reads_time=self.circuit.reads_time,
            needs_divisions=self.circuit.needs_divisions,
            growth=growth_rules(project),
            autoscaling=Autoscaling.from_configuration(configuration),
        )


def growth_rules(project: Project) -> GrowthRules:
    """What the topics of a project may grow to. Raises WrongUse where it names a mapper that is none."""
    from lockstep.adapters.partition_mapper import mapper_named

    named = project.configuration.get(PARTITION_MAPPER, "modulo")
    return GrowthRules.of(project.sources, mapper_named(named))


def engine_of(configuration: Mapping[str, str], settings: Settings) -> Engine:
    """Spark as the configuration says. Raises WrongUse where it says what there is not."""
    from lockstep.adapters.iceberg_tables import IcebergTables

    if engine_kind(configuration) == "submit":
        from lockstep.adapters.submit import SubmitEngine

        return SubmitEngine(settings)
    if not settings.spark_remote:
        raise WrongUse(
            "no Spark Connect server is known",
            expected="LOCKSTEP_SPARK_REMOTE, or a running stack",
            found="neither",
            next_step="lockstep up",
        )
    from lockstep_engine.connect import ConnectEngine

    return ConnectEngine(settings.spark_remote, IcebergTables)


def engine_kind(configuration: Mapping[str, str]) -> str:
    """What `lockstep.engine` says. Raises WrongUse where it says what there is not."""
    kind = configuration.get("lockstep.engine", "connect")
    if kind not in ("connect", "submit"):
        raise WrongUse(
            f"lockstep.engine is {kind!r}",
            expected="connect (the warm server) or submit (spark-submit)",
            found=kind,
            next_step="correct it in spark-pipeline.yml and deploy again",
        )
    return kind


def tables_of(project: Project, settings: Settings) -> tuple[CatalogSettings, State]:
    """The catalog and database of a project, and the tables in it."""
    from lockstep.adapters.catalogs import catalog_settings
    from lockstep.adapters.iceberg import IcebergState

    catalog = catalog_settings(project.catalog, project.database, project.configuration, settings)
    return catalog, IcebergState(catalog)


def load_project(folder: str, settings: Settings) -> tuple[Project, Circuit]:
    """Parse and compile a project folder; changes nothing. Raises ProjectError, WrongUse."""
    project, circuit, _ = load_files(folder, settings)
    return project, circuit


def load_files(folder: str, settings: Settings) -> tuple[Project, Circuit, ProjectFiles]:
    """The same with the files, as a deploy records them. Raises ProjectError, WrongUse."""
    files = with_python_views(read_project_files(Path(folder)), settings.variables())
    project = parse_project(files, settings.variables())
    check_deployable(project)
    check_connections(project)
    return project, build_circuit(project), files


def require_broker(name: str, files: ProjectFiles, settings: Settings) -> None:
    """Raise WrongUse where the files leave the broker to the settings, and these know none.

    To look at a project any address does; to record or to read offsets it has to be said: a broker
    that happens to listen at the default address may be another one.
    """
    if settings.kafka or parse_spec(files.spec).configuration.get("lockstep.kafka"):
        return
    if not any(_BROKER_VARIABLE.search(text) for _, text in files.files):
        return
    raise WrongUse(
        f"pipeline {name} names ${{lockstep.kafka}}, and no broker is known",
        expected="LOCKSTEP_KAFKA, a running stack, or lockstep.kafka in the project's configuration",
        found="none of them",
        next_step="set LOCKSTEP_KAFKA to the broker's address, or run `lockstep up`",
    )


def deployed(settings: Settings) -> tuple[str, ...]:
    """Names of the deployed pipelines."""
    return SqlStore(settings.store_url).pipelines()


def recorded(name: str, settings: Settings) -> PipelineState:
    """What is recorded of a pipeline, read without parsing its SQL. Raises NotDeployed."""
    return SqlStore(settings.store_url).read(name)


def partition_readers(state: PipelineState, settings: Settings, epoch: int) -> tuple[Reader, ...]:
    """Which task and worker reads each recorded source partition under a layout that there is. No broker
    is asked. Raises WrongUse where the mapper is none."""
    if not any(isinstance(position, TopicSlice) for position in state.positions):
        return ()
    project = parse_project(state.files, settings.variables())
    grouping = Grouping(project.configuration.get(PARTITION_GROUPING, "partition"))
    tasks = growth_rules(project).tasks(state, grouping)
    return readers(tasks, [record.layout for record in state.layouts[: epoch + 1]])


def desire(
    name: str, desired: RunState, settings: Settings, stop_at: int | None = None
) -> PipelineState:
    """Have a pipeline run, pause at the next step boundary, or stop before a step (None: the next one
    that is not recorded). Raises NotDeployed; WrongUse where that step is recorded already."""
    outcome = SqlStore(settings.store_url).apply(name, SetDesired(desired, stop_at))
    match outcome:
        case Landed(state):
            return state
        case Rejected(reason, _):
            raise WrongUse(
                f"pipeline {name}: {reason}",
                expected="a step that is not recorded yet",
                found=str(stop_at),
                next_step=f"lockstep steps {name} --last 1",
            )
        case Unknown(reason):
            raise Retry(
                f"the control store does not say whether pipeline {name} is to "
                f"{desired.value}: {reason}",
                next_step="run the command again",
            )


def at_rest(name: str, settings: Settings) -> PipelineState:
    """Wait until a pipeline that is to pause or stop does so; at once for one that is to run."""
    clock, state = SystemClock(), recorded(name, settings)
    while state.status in (RunStatus.PAUSE, RunStatus.STOP):
        clock.sleep(POLL_SECONDS)
        state = recorded(name, settings)
    return state


def receipt(
    name: str, topic: str, partition: int, offset: int, settings: Settings
) -> tuple[Receipt, ...]:
    """What became of one record, for each source that reads its topic. Raises NotDeployed; WrongUse
    for a topic that no source reads."""
    return _receipts(_recorded_steps(name, settings), topic, partition, offset)


def snapshot_receipt(
    name: str, table: str, snapshot_id: int, settings: Settings
) -> tuple[Receipt, ...]:
    """What became of one snapshot, for each source that follows its table (the full name). Raises
    NotDeployed, Unreachable; WrongUse for a table that no source follows, or has no such snapshot."""
    from lockstep.adapters.sources import ProjectSources

    state, divisions, project = _recorded_steps(name, settings)
    catalog, _ = tables_of(project, settings)
    sources = ProjectSources(project, catalog)
    tables = {s.name: sources.history(s.name) for s in project.sources if s.is_table}
    return snapshot_receipts(state, divisions, tables, table, snapshot_id)


def wait_until_published(
    name: str,
    offsets: Mapping[tuple[str, int], int],
    settings: Settings | None = None,
    timeout_seconds: float = 300.0,
) -> tuple[Receipt, ...]:
    """Return once every sink of the pipeline shows the records at these offsets: of (topic, partition)
    the last one that was sent, so that all before it are out as well.

    One receipt for each source that reads one of them, in the order of topic and partition. What is
    before a source's beginning is never published: its receipt is skipped. Raises NotDeployed;
    WrongUse for a topic that no source reads; Retry once `timeout_seconds` have passed.
    """
    known = settings or Settings.load()

    def ask() -> tuple[Receipt, ...]:
        recorded = _recorded_steps(name, known)
        return tuple(
            found
            for (topic, partition), offset in sorted(offsets.items())
            for found in _receipts(recorded, topic, partition, offset)
        )

    what = ", ".join(f"offset {o} of {t}[{p}]" for (t, p), o in sorted(offsets.items()))
    return wait_until_settled(ask, what or "nothing", timeout_seconds, SystemClock())


def wait_until_snapshot_published(
    name: str, table: str, snapshot_id: int, settings: Settings, timeout_seconds: float = 300.0
) -> tuple[Receipt, ...]:
    """The same for one snapshot of a followed table."""
    return wait_until_settled(
        lambda: snapshot_receipt(name, table, snapshot_id, settings),
        f"snapshot {snapshot_id} of {table}",
        timeout_seconds,
        SystemClock(),
    )


def step_input(name: str, step: int, settings: Settings) -> Division:
    """What a recorded step was made from: its time, offsets and snapshots. Raises NotDeployed;
    WrongUse for a step that is not recorded yet, or is trimmed."""
    store = SqlStore(settings.store_url)
    return input_of_step(store.read(name), store.divisions(name, step, step), step)


_Recorded = tuple[PipelineState, tuple[Division, ...], Project]


def _receipts(recorded: _Recorded, topic: str, partition: int, offset: int) -> tuple[Receipt, ...]:
    state, divisions, project = recorded
    topics = {source.name: source.topic for source in project.sources if not source.is_table}
    return receipts(state, divisions, topics, topic, partition, offset)


def _recorded_steps(name: str, settings: Settings) -> _Recorded:
    store = SqlStore(settings.store_url)
    state = store.read(name)
    divisions = store.divisions(name, state.oldest_step, max(0, state.next_step - 1))
    return state, divisions, parse_project(state.files, settings.variables())


def open_pipeline(name: str, settings: Settings, engine: Engine | None = None) -> Pipeline:
    """Raises NotDeployed. `engine` stands in for the one that the configuration names."""
    return Pipeline(name, settings, engine=engine)
