"""Looking at a pipeline from all sides: the control store against its tables, sinks and sources; and
recording it again from what tables and sinks say, where the store has lost it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lockstep.adapters.clock import SystemClock
from lockstep.adapters.settings import Settings
from lockstep.adapters.sources import ProjectSources
from lockstep.adapters.sql_store import SqlStore
from lockstep.control import diagnosis
from lockstep.control.changes import Landed
from lockstep.control.diagnosis import Finding, Health
from lockstep.control.kafka_options import KafkaConnection
from lockstep.control.model import PipelineState, SinkState, TableSlice, TopicSlice
from lockstep.control.opening import examine
from lockstep.control.ports import State, TopicBounds, ViewHead
from lockstep.control.restoring import said_by_tables
from lockstep.control.steps import check_continues
from lockstep.errors import LockstepError, Retry
from lockstep.ids import (
    FAILED_ROWS_TABLE,
    LAYOUTS_TABLE,
    STEPS_TABLE,
    TABLE_STEPS_TABLE,
    errors_table,
    late_table,
    outbox_table,
)
from lockstep.runtime import growth_rules, load_files, recorded, tables_of
from lockstep.sql.circuit import Circuit, Project, SinkTable
from lockstep.sql.project import parse_project
from lockstep.threads import in_parallel
from lockstep_engine.sinks.kafka_plan import Marker, step_of_all

__all__ = ["diagnose", "rebuild"]


def diagnose(name: str, settings: Settings) -> tuple[Finding, ...]:
    """What is found, the store's own first. Raises NotDeployed; what does not answer is a finding."""
    state = recorded(name, settings)
    project = parse_project(state.version_files, settings.variables())
    return tuple(_findings(state, project, settings))


def _findings(state: PipelineState, project: Project, settings: Settings) -> Iterator[Finding]:
    yield from diagnosis.of_leases(state, SystemClock().now())
    catalog, tables = tables_of(project, settings)
    try:
        yield from diagnosis.of_versions(state, examine(tables, state.versions))
        yield from _tables(state, tables)
    except LockstepError as error:
        yield diagnosis.of_error("tables", error)
    moved = state.version_sinks
    yield from (diagnosis.of_waiting(state, sink) for sink in state.sinks if sink not in moved)
    for sink in moved:
        try:
            yield _sink(state, sink, project, tables)
        except LockstepError as error:
            yield diagnosis.of_error(f"sink {sink.name}", error)
    sources = ProjectSources(project, catalog)
    try:
        for source in project.sources:
            yield _source(state, source.name, sources, project)
    finally:
        sources.close()


def _tables(state: PipelineState, tables: State) -> Iterator[Finding]:
    there = set(tables.tables())
    names = sorted(there & state.version.tables.keys())
    refs = dict(zip(names, in_parallel(tables.refs, names), strict=True))
    outboxes = sorted({outbox_table(sink.view) for sink in state.sinks} & there)
    found = dict(zip(outboxes, in_parallel(tables.view_head, outboxes), strict=True))
    heads = {table: head for table, head in found.items() if head is not None}
    yield from diagnosis.of_tables(state, refs, heads)


def _sink(state: PipelineState, sink: SinkState, project: Project, tables: State) -> Finding:
    if sink.provider == "iceberg":
        return diagnosis.of_view(state, sink, tables.view_head(sink.view))
    [declared] = [one for one in project.sinks if one.name == sink.name]
    return diagnosis.of_markers(state, sink, _kafka_markers(declared, state.incarnation))


def _kafka_markers(sink: SinkTable, incarnation: str) -> Mapping[str, int]:
    """The step of each shard's marker."""
    found = _read_markers(sink, incarnation)
    shards = found[0].shards if 0 in found else len(found)
    return {str(shard): marker.step for shard, marker in found.items() if shard < shards}


def _read_markers(sink: SinkTable, incarnation: str) -> Mapping[int, Marker]:
    from lockstep_engine.sinks.kafka_link import SinkAddress, partition_count, read_markers

    connection = KafkaConnection.from_options(sink.options, f"sink {sink.name}")
    topic = sink.options["topic"]
    address = SinkAddress(connection.librdkafka(), topic, incarnation, sink.name)
    return read_markers(address, range(partition_count(address)))


def _source(state: PipelineState, name: str, sources: ProjectSources, project: Project) -> Finding:
    """Whether what was read last can be gone on from, and what has been added can be followed."""
    position = next((one for one in state.positions if one.source == name), None)
    try:
        bounds = sources.bounds(name)
        if isinstance(bounds, TopicBounds):
            if isinstance(position, TopicSlice):
                check_continues(position, bounds)
                growth_rules(project).growing(state, {name: bounds})
            what = f"topic {bounds.topic} holds what comes next"
        else:
            if isinstance(position, TableSlice):
                bounds.check_same(position)
            what = f"table {bounds.table} holds what comes next"
    except LockstepError as error:
        return diagnosis.of_error(f"source {name}", error)
    return Finding(Health.SOUND, f"source {name}", what)


# ── recording again ─────────────────────────────────────────────────────────────────────────────


def rebuild(folder: str, settings: Settings) -> PipelineState:
    """Record the pipeline of a project folder from its tables and sinks, at the newest version that is
    pinned on all tables. The project has to be the one that wrote them.

    Raises StateDiverged where they do not fit together; Retry, with the reason, where the store has the
    pipeline at that version or a newer one; Unreachable.
    """
    project, circuit, files = load_files(folder, settings)
    _, tables = tables_of(project, settings)
    change = said_by_tables(
        project.name,
        files,
        _needed(project, circuit),
        _beside(project),
        tables,
        lambda incarnation: _published(project, circuit, tables, incarnation),
    )
    outcome = SqlStore(settings.store_url).apply(project.name, change)
    if isinstance(outcome, Landed):
        return outcome.state
    raise Retry(
        f"pipeline {project.name} was not recorded again: {outcome.reason}",
        next_step=f"lockstep doctor {folder}",
    )


def _needed(project: Project, circuit: Circuit) -> set[str]:
    """The tables that every version names."""
    traces = {trace.table for trace in circuit.traces}
    logs = {TABLE_STEPS_TABLE if one.is_table else STEPS_TABLE for one in project.sources}
    return traces | {outbox.table for outbox in circuit.outboxes} | logs


def _beside(project: Project) -> set[str]:
    """The tables that a version names once there was something to write to them."""
    names = [source.name for source in project.sources]
    return {FAILED_ROWS_TABLE, LAYOUTS_TABLE, *map(errors_table, names), *map(late_table, names)}


def _published(
    project: Project, circuit: Circuit, tables: State, incarnation: str
) -> tuple[SinkState, ...]:
    """Every sink where it says itself that it is."""

    def view_step(head: ViewHead | None) -> int:
        return -1 if head is None or head.marker is None else head.marker.step

    views = tuple(
        SinkState(one.view, one.view, "iceberg", view_step(tables.view_head(one.view)))
        for one in circuit.outboxes
        if not one.audit
    )
    topics = tuple(
        SinkState(
            sink.name,
            sink.view,
            sink.provider,
            step_of_all(_read_markers(sink, incarnation), sink.name),
        )
        for sink in project.sinks
    )
    return views + topics
