"""Recording a project: what it changes in one that runs already, and how published rows would differ."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from lockstep.adapters.cron import check_cron
from lockstep.adapters.settings import Settings
from lockstep.adapters.sql_store import SqlStore
from lockstep.control import transitions
from lockstep.control.changes import Deploy, Landed
from lockstep.control.history import rebuilding, standing_interval
from lockstep.control.job import IntervalJob, Placement, ViewDifference
from lockstep.control.kafka_options import refuse_unused
from lockstep.control.layout.autoscaling import Autoscaling
from lockstep.control.limits import (
    retained_changes,
    retained_versions,
    retained_views,
    run_seconds,
)
from lockstep.control.model import PipelineState, SinkState
from lockstep.control.ports import Engine, Progress
from lockstep.errors import NotDeployed, Refused, Retry, WrongUse
from lockstep.runtime import (
    engine_kind,
    engine_of,
    growth_rules,
    load_files,
    require_broker,
    tables_of,
)
from lockstep.sql.circuit import Circuit, Project, ProjectFiles, SourceTable
from lockstep.sql.incremental import build_circuit
from lockstep.sql.project import parse_project
from lockstep.sql.reading.spec import check_name, parse_spec
from lockstep.sql.rebuild import Rebuild, plan_rebuild
from lockstep.sql.sources.source_layout import decoding_options
from lockstep.sql.sources.watermarks import watermark_of

__all__ = ["Proposal", "deploy", "preview", "propose", "reconcile"]


@dataclass(frozen=True)
class Proposal:
    """A project that could be deployed. `state` is what is recorded under its name, None where nothing
    is; `rebuild` what would have to be made, None where no version exists or all stays as it is."""

    project: Project
    circuit: Circuit
    files: ProjectFiles
    change: Deploy
    state: PipelineState | None = None
    rebuild: Rebuild | None = None


def propose(folder: str, settings: Settings) -> Proposal:
    """Read a project folder and compare it with what is deployed; changes nothing.

    Raises ProjectError, for a new name also where no DAG can have it; WrongUse for options that no
    client could connect by, and for other files while steps are run again after a rollback.
    """
    project, circuit, files = load_files(folder, settings)
    state = _state(project.name, settings)
    if state is None:
        spec = parse_spec(files.spec)
        check_name(spec.name, spec.name_line)
        return Proposal(project, circuit, files, _change(project, circuit, files))
    if state.dropped and files != state.files:
        raise WrongUse(
            f"pipeline {project.name} runs steps up to {state.output_step} again after a rollback, and "
            "compares what they give with what its files gave",
            expected="the files that are deployed, until that is done",
            found="other files",
            next_step=f"lockstep run DIR --once, or lockstep rollback {project.name} --undo",
        )
    return _compared(project, circuit, files, state, settings)


def _state(name: str, settings: Settings) -> PipelineState | None:
    try:
        return SqlStore(settings.store_url).read(name)
    except NotDeployed:
        return None


def reconcile(name: str, settings: Settings, forget: Collection[str] = ()) -> PipelineState:
    """Have the next interval make all state of a deployed pipeline anew from the sources, and publish
    by what the views then differ. The sources `forget` are read from the first record that they hold
    now, as if they had just been declared; before the first version that is all, as there is no state.
    Raises NotDeployed; WrongUse for a source that there is not, or where there is nothing to be done."""
    store = SqlStore(settings.store_url)
    state = store.read(name)
    if state.version.number == 0 and not forget:
        raise WrongUse(
            f"pipeline {name} has no version yet",
            expected="a version, whose state is to be made anew",
            found="version 0",
            next_step=f"lockstep trigger {name} --once, or lockstep run DIR --once",
        )
    project = parse_project(state.files, settings.variables())
    change = _change(project, build_circuit(project), state.files)
    sources = tuple(sorted(source.name for source in project.sources))
    unknown = sorted(set(forget) - set(sources))
    if unknown:
        raise WrongUse(
            f"pipeline {name} has no source {unknown[0]}",
            expected=f"one of {', '.join(sources)}",
            found=unknown[0],
            next_step=f"lockstep reconcile {name} --forget {sources[0]}",
        )
    kept = tuple(source for source in sources if source not in forget)
    change = replace(
        change,
        sources=kept,
        rebuilds=True,
        distrusted=sources,
        compared_with=(state.files, state.version_files),
    )
    return _landed(store, name, change)


def deploy(
    folder: str,
    settings: Settings,
    approves: Callable[[Proposal], bool] | None = None,
) -> PipelineState:
    """Check a project and record it under its spec's name; a second deploy keeps the incarnation.

    Where it needs other state than the newest version holds, the next interval makes that, and
    publishes the difference; `approves` is asked before. Raises WrongUse where no broker is known, or
    the project has a setting that cannot be used, Refused where it was not approved.
    """
    proposal = propose(folder, settings)
    name = proposal.project.name
    require_broker(name, proposal.files, settings)
    _check_settings(proposal.project)
    if proposal.rebuild is not None and approves is not None and not approves(proposal):
        raise Refused(
            f"pipeline {name} was not deployed: the change was not approved",
            expected="a yes",
            found="none",
            next_step=f"lockstep plan {folder} shows it; lockstep deploy {folder} --yes",
        )
    return _landed(SqlStore(settings.store_url), name, proposal.change)


def _check_settings(project: Project) -> None:
    """Raises WrongUse where a stage, maintenance or Airflow could not use one. Nothing that is recorded
    is looked at so: what was deployed when it was not checked yet has to be read to be replaced."""
    configuration = project.configuration
    engine_kind(configuration)
    for sink in project.sinks:
        refuse_unused(sink.options, f"sink {sink.name}", str(sink.position))
    growth_rules(project)
    Autoscaling.from_configuration(configuration)
    run_seconds(configuration)
    check_cron(configuration)
    retained_versions(configuration)
    retained_changes(configuration)
    retained_views(configuration)


def preview(
    proposal: Proposal, settings: Settings, progress: Progress, engine: Engine | None = None
) -> tuple[ViewDifference, ...]:
    """By how many rows each view that changes would differ from what it is at the newest version; runs
    the new queries over the past on Spark, and writes nothing. Raises EngineFailed, Unreachable."""
    state = proposal.state
    if state is None or proposal.rebuild is None:
        return ()
    configuration = proposal.project.configuration
    catalog, tables = tables_of(proposal.project, settings)
    after = transitions.apply(state, proposal.change)
    interval = after.pending or standing_interval(after)
    store = SqlStore(settings.store_url)
    [last] = store.divisions(after.name, interval.first_step - 1, interval.first_step - 1)
    job = IntervalJob(
        pipeline=after.name,
        incarnation=after.incarnation,
        attempt="",
        branch="",
        base_version=after.version.number,
        base_tables=after.version.tables,
        interval=interval,
        layout_epoch=after.layout.epoch,
        placement=Placement.of(after.layout),
        files=proposal.files,
        variables=settings.variables(),
        catalog=catalog,
        time_before=last.time,
        rebuilding=rebuilding(
            after, interval, last.time, store, tables, proposal.circuit.needs_divisions
        ),
    )
    return (engine or engine_of(configuration, settings)).preview(job, progress)


def _compared(
    project: Project,
    circuit: Circuit,
    files: ProjectFiles,
    state: PipelineState,
    settings: Settings,
) -> Proposal:
    old = parse_project(state.version_files, settings.variables())
    before = {source.name: source for source in old.sources}
    now = {source.name: source for source in project.sources}
    both = sorted(before.keys() & now.keys())
    elsewhere = [name for name in both if _place(before[name]) != _place(now[name])]
    reread = tuple(name for name in both if _reading(before[name]) != _reading(now[name]))
    rebuild = plan_rebuild(build_circuit(old), circuit, state.version.tables, reread)
    is_other = not rebuild.is_empty or (state.replaced is not None and files != state.files)
    change = replace(
        _change(project, circuit, files),
        sources=tuple(name for name in now if name not in elsewhere),
        rebuilds=is_other,
        distrusted=reread,
        compared_with=(state.files, state.version_files),
    )
    has_version = state.version.number > 0
    return Proposal(
        project, circuit, files, change, state, rebuild if is_other and has_version else None
    )


def _change(project: Project, circuit: Circuit, files: ProjectFiles) -> Deploy:
    sinks = tuple(
        SinkState(outbox.view, outbox.view, "iceberg")
        for outbox in circuit.outboxes
        if not outbox.audit
    ) + tuple(SinkState(sink.name, sink.view, sink.provider) for sink in project.sinks)
    return Deploy(files, uuid.uuid4().hex, sinks, tuple(s.name for s in project.sources))


def _place(source: SourceTable) -> str:
    """Where a source's rows come from."""
    return f"table {source.table}" if source.is_table else f"topic {source.topic}"


def _reading(source: SourceTable) -> tuple[object, ...]:
    """What a source's declaration says about its rows."""
    declared = (source.columns, source.provider, _place(source))
    if source.is_table:
        return (*declared, source.append_only, watermark_of(source))
    how = (source.options.get("format"), source.absent_is_null)
    return (*declared, *how, *decoding_options(source).items())


def _landed(store: SqlStore, pipeline: str, change: Deploy) -> PipelineState:
    outcome = store.apply(pipeline, change)
    if isinstance(outcome, Landed):
        return outcome.state
    raise Retry(
        f"pipeline {pipeline}: the deploy did not land: {outcome.reason}",
        next_step="run the command again",
    )
