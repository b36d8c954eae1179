"""The Python views of a project as SQL files beside them: `orders.py` becomes `orders.py.sql`.

A view is translated when it is first named, as it is with SQL views; each may read the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lockstep.errors import Position, ProjectError
from lockstep.frames.context import Context, Table
from lockstep.frames.declared import PythonView, declared_views, plan_of
from lockstep.frames.frame import Frame, quoted
from lockstep.frames.functions import own_modules_by_value
from lockstep.frames.literals import string_text
from lockstep.frames.marks import MarkedText, without_marks
from lockstep.frames.session import Places, open_session
from lockstep.frames.views import translated
from lockstep.sql.circuit import PYTHON_SUFFIX, ProjectFiles, SourceTable
from lockstep.sql.project import Views, check_names, qualifiers_of
from lockstep.sql.queries.parse import Environment, lower_query
from lockstep.sql.reading.spec import SQL_SUFFIX, parse_spec
from lockstep.sql.reading.statements import Statement, ViewStatement, read_statements
from lockstep.sql.reading.syntax import SourceText, fill_variables

__all__ = ["PythonProject", "write_views"]

_HEADER = "-- Made from {file} when the project is deployed.\n"


def write_views(files: ProjectFiles, variables: Mapping[str, str]) -> ProjectFiles:
    """The project with a SQL file beside each Python file, which are executed for it.

    Raises ProjectError, NotSupported with positions in the Python files.
    """
    return PythonProject(files, variables).written()


class PythonProject:
    """A project whose Python files have been executed; its views become SQL when asked for.

    For a process of its own: it makes the session that the whole process has from then on.
    """

    def __init__(self, files: ProjectFiles, variables: Mapping[str, str]) -> None:
        self.files = files
        spec = parse_spec(files.spec)
        self.variables = spec.variables(variables)
        self.qualifiers = qualifiers_of(spec)
        folder = Path(files.folder).resolve()
        self.python = [name for name, _ in files.written if name.endswith(PYTHON_SUFFIX)]
        self.places = Places({str(folder / name): name for name in self.python})
        self.client = open_session(spec.configuration, self.places, self._column_names)
        self.declared = declared_views(folder, self.python, self.places)
        own_modules_by_value(folder)
        statements = [
            statement
            for name, text in files.written
            if name.endswith(SQL_SUFFIX)
            for statement in read_statements(SourceText(name, text, self.variables))
        ]
        check_names([*statements, *map(_placeholder, self.declared)])
        self.sources = tuple(one for one in statements if isinstance(one, SourceTable))
        self.frames: dict[str, Frame] = {}
        self.functions: dict[str, dict[str, str]] = {}
        """Declarations of the Python functions that a file's views call, by name."""
        self.statements = _Statements(self, statements)
        self.views = Views(self.sources, self.statements, self.qualifiers)

    def written(self) -> ProjectFiles:
        made = {name: [_HEADER.format(file=name)] for name in self.python}
        texts = {view.name.lower(): self.text(view.name.lower()) for view in self.declared}
        for name, declared in self.functions.items():
            made[name].extend(declared[function] for function in sorted(declared))
        for view in self.declared:
            made[view.position.file].append(texts[view.name.lower()])
        files = [(f"{name}{SQL_SUFFIX}", "\n".join(texts)) for name, texts in made.items()]
        return replace(self.files, files=tuple(sorted([*self.files.written, *files])))

    def text(self, name: str) -> str:
        """A view's statement, checked as SQL: what a view may not say is said of the line in Python."""
        self.views.view(name)
        return self.statements.texts[name]

    def statement(self, view: PythonView) -> tuple[ViewStatement, str]:
        """The view as CREATE VIEW, and its text."""
        frame = translated(plan_of(view, self.places, self.client), self._context(view))
        self.frames[view.name.lower()] = frame
        _check_named(view, frame)
        kind = "MATERIALIZED VIEW" if view.published else "TEMPORARY VIEW"
        comment = f"\nCOMMENT {string_text(view.comment)}" if view.comment else ""
        text = f"CREATE {kind} {quoted(view.name)}{comment} AS\n{frame.text()}"
        (statement,) = read_statements(MarkedText(text, view.position))
        assert isinstance(statement, ViewStatement)
        return statement, f"{without_marks(text)};\n"

    def _context(self, view: PythonView) -> Context:
        lines = {
            plan_id: line
            for plan_id, (path, line) in self.places.lines.items()
            if path == view.path
        }
        return Context(
            view.position,
            frozenset({view.path}),
            self._table,
            sorted(self.views),
            lines,
            self._query,
            functions=self.functions.setdefault(view.position.file, {}),
        )

    def _column_names(self, relation: Any) -> list[str]:
        """What df.columns gives."""
        at = self.places.caller()
        context = Context(
            self.places.position(at), frozenset(), self._table, sorted(self.views), {}, self._query
        )
        return [one.name for one in translated(relation, context).shown]

    def _table(self, parts: Sequence[str]) -> Table | None:
        name = parts[-1].lower()
        if name not in self.views or ".".join(parts[:-1]).lower() not in self.qualifiers:
            return None
        qualified = (*(self.qualifiers[-1].split(".")), name)
        types: dict[str, str] = {}
        for source in self.sources:
            if source.name.lower() == name:
                types = {column.name: column.type for column in source.columns}
        if name in self.statements.python:
            self.statements[name]
            return Table(qualified, tuple((c.name, c.type) for c in self.frames[name].shown))
        written = self.views[name].written
        return Table(qualified, tuple((column, types.get(column, "")) for column in written))

    def _query(self, text: str, position: Position) -> tuple[str, Sequence[str]]:
        """A query of spark.sql, its variables filled in, and the names of its columns."""
        filled, _ = fill_variables(text, self.variables, position.file)
        source = MarkedText(filled, position)
        query = source.parse(source.tokens, "the query of spark.sql")
        environment = Environment(self.views, self.qualifiers)
        return filled, lower_query(source, query, environment).written


class _Statements(Mapping[str, ViewStatement]):
    """All views by lower-case name; one in Python is translated when it is first asked for."""

    def __init__(self, project: PythonProject, statements: Sequence[Statement]) -> None:
        self._project = project
        self._known = {
            one.name.lower(): one for one in statements if isinstance(one, ViewStatement)
        }
        self.python = {view.name.lower(): view for view in project.declared}
        self.texts: dict[str, str] = {}
        self._open: list[str] = []

    def __iter__(self) -> Iterator[str]:
        yield from {**self._known, **self.python}

    def __len__(self) -> int:
        return len({**self._known, **self.python})

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in self.python

    def __getitem__(self, name: str) -> ViewStatement:
        if name in self._known:
            return self._known[name]
        view = self.python[name]
        if name in self._open:
            chain = [*self._open[self._open.index(name) :], name]
            raise ProjectError(
                f"the view {view.name!r} needs itself",
                position=view.position,
                expected="views that read sources and other views, without a cycle",
                found=" reads ".join(chain),
                next_step="take one of these reads out",
            )
        self._open.append(name)
        try:
            self._known[name], self.texts[name] = self._project.statement(view)
        finally:
            self._open.pop()
        return self._known[name]


def _check_named(view: PythonView, frame: Frame) -> None:
    for place, column in enumerate(frame.shown, start=1):
        if not column.name:
            raise ProjectError(
                f"column {place} of the view {view.name} has no name",
                position=MarkedText(column.text, view.position).position(0),
                expected="a name for each column",
                found=without_marks(column.text),
                next_step='write .alias("name") behind it',
            )


def _placeholder(view: PythonView) -> ViewStatement:
    """The view before it is translated, for what is said of its name."""
    source = SourceText(view.position.file, "")
    return ViewStatement(view.name, view.published, (), None, source, "", view.position)
