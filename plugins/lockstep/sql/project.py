"""A project: its spec and SQL files, parsed, resolved and checked.

Views are lowered when they are first named, so their order in the files is free; a view that needs
itself is refused with the chain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from lockstep.errors import Position, ProjectError
from lockstep.sql.circuit import (
    PYTHON_SUFFIX,
    Project,
    ProjectFiles,
    PythonFunction,
    SinkTable,
    SourceTable,
    View,
)
from lockstep.sql.names import closest
from lockstep.sql.plans.expansion import expand
from lockstep.sql.plans.final import NotFinalError, emit_final
from lockstep.sql.plans.nesting import ShapesOf
from lockstep.sql.plans.nodes import CHANGE_COLUMNS, Node, Scan, Upsert, Watermark
from lockstep.sql.plans.rewrites import rewrite, tidy
from lockstep.sql.plans.shapes import shape_of_type
from lockstep.sql.plans.sharing import fill_shared, has_state
from lockstep.sql.plans.temporal import write_temporal
from lockstep.sql.queries.parse import Environment, lower_query, output_position
from lockstep.sql.queries.relations import rename_columns
from lockstep.sql.queries.scope import Lowered
from lockstep.sql.reading.spec import SQL_SUFFIX, Spec, parse_spec, read_project_files
from lockstep.sql.reading.statements import (
    Statement,
    ViewStatement,
    read_statements,
    refuse_underscore,
)
from lockstep.sql.reading.syntax import SourceText
from lockstep.sql.sources.options import BROKER, check_known, need, wrong
from lockstep.sql.sources.source_layout import layout_of
from lockstep.sql.sources.source_options import checked_source
from lockstep.sql.sources.table_options import check_not_own, checked_table
from lockstep.sql.sources.watermarks import watermark_of

__all__ = ["Views", "check_names", "parse_project", "qualifiers_of", "read_project_files"]

_SINK_OPTIONS = (
    "topic",
    "format",
    "key",
    "shards",
    "steps_together",
    "steps_topic",
    "resume_after",
)
_SINK_FORMATS = ("changelog", "debezium", "upsert")


def parse_project(files: ProjectFiles, variables: Mapping[str, str]) -> Project:
    """The project that the files declare. Raises ProjectError with file, line and column.

    `${key}` in SQL and options is filled from the spec's configuration, then from `variables`.
    """
    return _parsed(files, tuple(sorted(variables.items())))


@lru_cache(maxsize=16)
def _parsed(files: ProjectFiles, variables: tuple[tuple[str, str], ...]) -> Project:
    """Each stage of an interval asks for the same project."""
    spec = parse_spec(files.spec)
    _check_made(files)
    filled = spec.variables(dict(variables))
    statements = [
        statement
        for name, text in files.files
        if name.endswith(SQL_SUFFIX)
        for statement in read_statements(SourceText(name, text, filled))
    ]
    check_names(statements)
    sources = tuple(
        checked_table(one, spec) if one.is_table else checked_source(one, dict(files.files))
        for one in statements
        if isinstance(one, SourceTable)
    )
    views = Views(
        sources,
        {one.name.lower(): one for one in statements if isinstance(one, ViewStatement)},
        qualifiers_of(spec),
    )
    project = Project(
        name=spec.name,
        catalog=spec.catalog,
        database=spec.database,
        configuration=dict(spec.configuration),
        sources=sources,
        views=tuple(views.view(one.name.lower()) for one in views.statements.values()),
        sinks=tuple(one for one in statements if isinstance(one, SinkTable)),
        functions=_functions(statements),
    )
    for sink in project.sinks:
        _check_sink(sink, project.views)
        _check_steps(sink, project.sinks)
    for source in project.sources:
        check_not_own(source, project)
    if not any(view.published and not view.audit for view in project.views):
        raise ProjectError(
            f"the project {spec.name} publishes nothing",
            position=Position(files.files[0][0] if files.files else "spark-pipeline.yml"),
            expected="at least one CREATE MATERIALIZED VIEW ... AS SELECT ...",
            found=", ".join(view.name for view in project.views) or "no views",
        )
    return project


def _functions(statements: list[Statement]) -> tuple[PythonFunction, ...]:
    """Those of several files that are named alike are the same: a name says what its function does."""
    named = {one.name: one for one in statements if isinstance(one, PythonFunction)}
    return tuple(named[name] for name in sorted(named))


def _check_made(files: ProjectFiles) -> None:
    """Python files are read as the SQL that was made from them."""
    names = {name for name, _ in files.files}
    for name in sorted(names):
        if name.endswith(PYTHON_SUFFIX) and f"{name}{SQL_SUFFIX}" not in names:
            raise ProjectError(
                "the views of a Python file have not been made into SQL",
                position=Position(name),
                expected=f"{name}{SQL_SUFFIX} beside it, which `lockstep deploy` records",
                found=name,
            )


def qualifiers_of(spec: Spec) -> tuple[str, ...]:
    """The dotted prefixes of names that mean this project."""
    return ("", spec.database.lower(), f"{spec.catalog}.{spec.database}".lower())


def check_names(statements: list[Statement]) -> None:
    """Names are unique over sources, views and sinks, and over the tables that views become."""
    seen: dict[str, Statement] = {}
    statements = [one for one in statements if not isinstance(one, PythonFunction)]
    for statement in statements:
        known = seen.setdefault(statement.name.lower(), statement)
        if known is not statement:
            raise ProjectError(
                f"{_kind(statement)} {statement.name!r} has the name of {_kind(known)}",
                position=statement.position,
                expected="a name of its own for each source, view and sink",
                found=f"{_kind(known)} {known.name} at {known.position}",
                next_step="rename one of them",
            )
    for statement in statements:
        name = statement.name.lower()
        for suffix in ("_changes", "_errors", "_late"):
            other = seen.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
            if other is not None and isinstance(statement, ViewStatement) and statement.published:
                raise ProjectError(
                    f"the view {statement.name!r} has the name of a table made for {other.name}",
                    position=statement.position,
                    expected=f"another name than {other.name}{suffix}",
                    found=statement.name,
                )
        if name.startswith("_") and isinstance(statement, ViewStatement) and statement.published:
            raise ProjectError(
                f"the view {statement.name!r} begins with an underscore",
                position=statement.position,
                expected="a name that begins with a letter: tables with _ are Lockstep's own",
                found=statement.name,
            )


def _kind(statement: Statement) -> str:
    match statement:
        case PythonFunction():
            return "the function"
        case SourceTable():
            return "the source"
        case SinkTable():
            return "the sink"
        case ViewStatement():
            return "the audit" if statement.audit else "the view"


def _check_sink(sink: SinkTable, views: tuple[View, ...]) -> None:
    published = {view.name.lower(): view for view in views if view.published and not view.audit}
    if sink.view.lower() not in published:
        known = closest(sink.view, [view.name for view in published.values()])
        temporary = any(v.name.lower() == sink.view.lower() and not v.audit for v in views)
        raise ProjectError(
            f"the sink {sink.name} reads {sink.view!r}, which is "
            + ("a temporary view" if temporary else "no view of this project"),
            position=sink.position,
            expected=f"one of {', '.join(known)}" if known else "a published view",
            found=sink.view,
            next_step="publish it with CREATE MATERIALIZED VIEW"
            if temporary
            else "correct the name",
        )
    need(sink, "topic", "topic")
    need(sink, BROKER, "${lockstep.kafka}")
    check_known(sink, _SINK_OPTIONS)
    found = sink.options.get("format", "changelog")
    if found.lower() not in _SINK_FORMATS:
        raise ProjectError(
            f"the sink {sink.name} has an unknown format",
            position=sink.position,
            expected=f"one of {', '.join(_SINK_FORMATS)}",
            found=found,
        )


def _check_steps(sink: SinkTable, sinks: tuple[SinkTable, ...]) -> None:
    topic, resume_after = sink.options.get("steps_topic"), sink.options.get("resume_after", "0")
    if topic is not None and topic in {"", *(one.options.get("topic") for one in sinks)}:
        raise wrong(sink, "steps_topic", "a topic to which no sink writes rows")
    if resume_after != "-1" and not resume_after.isdecimal():
        raise wrong(sink, "resume_after", "the number of a step, or -1 for none")
    if sink.options.get("steps_together", "false").lower() not in ("true", "false"):
        raise wrong(sink, "steps_together", "'true' or 'false'")


class Views(Mapping[str, Lowered]):
    """Sources and views by lower-case name; a view is lowered when it is first asked for.

    A published view with state is a leaf to the views that read it: a Scan of `view <name>`, which
    no source can be called, until the reader's own plan is rewritten. Then the leaf is filled in.
    """

    def __init__(
        self,
        sources: tuple[SourceTable, ...],
        statements: Mapping[str, ViewStatement],
        qualifiers: tuple[str, ...],
    ) -> None:
        self.statements = statements
        self._sources = {one.name.lower(): one for one in sources}
        self._qualifiers = qualifiers
        self._lowered: dict[str, Lowered] = {}
        self._plans: dict[str, Node] = {}
        self._open: list[str] = []

    def __iter__(self) -> Iterator[str]:
        yield from self._sources
        yield from self.statements

    def __len__(self) -> int:
        return len(self._sources) + len(self.statements)

    def __contains__(self, name: object) -> bool:
        return name in self._sources or name in self.statements

    def __getitem__(self, name: str) -> Lowered:
        source = self._sources.get(name)
        if source is not None:
            return Lowered(_source_node(source), tuple(column.name for column in source.columns))
        if name not in self._lowered:
            self._lowered[name] = self._lower(self.statements[name])
        return self._lowered[name]

    def _lower(self, view: ViewStatement) -> Lowered:
        name = view.name.lower()
        if name in self._open:
            chain = [*self._open[self._open.index(name) :], name]
            first = self.statements[chain[0]]
            raise ProjectError(
                f"the view {first.name!r} needs itself",
                position=first.position,
                expected="views that read sources and other views, without a cycle",
                found=" reads ".join(self.statements[one].name for one in chain),
                next_step="take one of these reads out",
            )
        self._open.append(name)
        lowered = lower_query(view.source, view.query, Environment(self, self._qualifiers))
        self._open.pop()
        if view.columns:
            lowered = rename_columns(view.source, view.query, view.columns, lowered)
        _check_columns(view, lowered)
        if view.final_at is not None:
            lowered = replace(lowered, node=self._final(view, view.final_at, lowered.node))
        plan = fill_shared(tidy(write_temporal(expand(rewrite(lowered.node)))), self._plans)
        self._plans[_leaf(name)] = plan
        if view.published and has_state(plan):
            shapes = ShapesOf(lowered.node)
            return replace(lowered, node=Scan(_leaf(name), lowered.node.columns, shapes))
        return lowered

    def _final(self, view: ViewStatement, at: Position, node: Node) -> Node:
        try:
            return emit_final(node, self._plans)
        except NotFinalError as error:
            raise ProjectError(
                f"the view {view.name} has 'emit' = 'final', and no groups that become final",
                position=at,
                expected="GROUP BY window(ts, ...), where ts is what the source's 'watermark' names",
                found=str(error),
                next_step="give the source 'watermark' = 'ts', and group by a window of it in this view",
            ) from None

    def view(self, name: str) -> View:
        lowered, statement = self[name], self.statements[name]
        return View(
            name=statement.name,
            plan=self._plans[_leaf(statement.name.lower())],
            columns=lowered.written,
            published=statement.published,
            sql=statement.sql,
            position=statement.position,
            audit=statement.audit,
            says_both=statement.says_both,
            comment=statement.comment,
            column_comments=statement.column_comments,
        )


def _source_node(source: SourceTable) -> Node:
    columns, keys = tuple(column.key for column in source.columns), layout_of(source).keys
    declared = ((column.key, shape_of_type(column.type)) for column in source.columns)
    shapes = {key: shape for key, shape in declared if shape is not None}
    watermark = watermark_of(source)
    if watermark is not None:
        return Watermark(Scan(source.name, columns, shapes), watermark.column, watermark.delay)
    if keys:
        return Upsert(Scan(source.name, (*columns, *CHANGE_COLUMNS), shapes), keys)
    return Scan(source.name, columns, shapes)


def _leaf(view: str) -> str:
    """The leaf that stands for a view: no source can be called so."""
    return f"view {view}"


def _check_columns(view: ViewStatement, lowered: Lowered) -> None:
    """A view's columns have names, each its own, as an Iceberg table asks; none begins with `_`."""
    seen: set[str] = set()
    for place, written in enumerate(lowered.written, start=1):
        if not written:
            raise ProjectError(
                f"column {place} of the view {view.name} has no name",
                position=view.position,
                expected="a name for each column",
                found="an expression without AS",
                next_step="write `AS name` after it, or a list of names after the view's name",
            )
        refuse_underscore(
            written,
            f"the view {view.name}",
            output_position(view.source, view.query, written) or view.position,
            f"give it another name with AS: `AS {written.lstrip('_') or 'name'}`",
        )
        if written.lower() in seen:
            raise ProjectError(
                f"the view {view.name} has two columns named {written!r}",
                position=view.position,
                expected="a name of its own for each column, without regard to case",
                found=", ".join(name or "?" for name in lowered.written),
                next_step="give it another name with AS",
            )
        seen.add(written.lower())
