"""The views that a project's Python files declare, with Spark's own decorators.

The files are executed as `spark-pipelines` does it: each as a module, in the folder of the spec.
"""

from __future__ import annotations

import importlib.util
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pyspark.pipelines.flow import Flow
from pyspark.pipelines.graph_element_registry import (
    GraphElementRegistry,
    graph_element_registration_context,
)
from pyspark.pipelines.output import (
    MaterializedView,
    Output,
    Sink,
    StreamingTable,
)
from pyspark.pipelines.source_code_location import SourceCodeLocation
from pyspark.sql.connect.dataframe import DataFrame

from lockstep.errors import LockstepError, NotSupported, Position, ProjectError
from lockstep.frames.session import Places

__all__ = ["PythonView", "declared_views", "plan_of"]

_T = TypeVar("_T")
_VIEW = "@dp.materialized_view or @dp.temporary_view on a function that returns a DataFrame"


@dataclass(frozen=True)
class PythonView:
    """A decorated function: what SQL says as CREATE [MATERIALIZED] VIEW."""

    name: str
    published: bool
    comment: str
    function: Callable[[], Any]
    path: str
    position: Position


def declared_views(folder: Path, names: Sequence[str], places: Places) -> list[PythonView]:
    """Execute the files `names` of the project in `folder`. Raises ProjectError, NotSupported."""
    registry = _Registry(places)
    with graph_element_registration_context(registry):
        for name in names:
            path = folder / name
            with _own_errors(places, f"{name} can't be executed", Position(name)):
                spec = importlib.util.spec_from_file_location(path.stem, str(path))
                assert spec is not None
                assert spec.loader is not None
                spec.loader.exec_module(importlib.util.module_from_spec(spec))
    return registry.views()


def plan_of(view: PythonView, places: Places, client: Any) -> Any:
    """Call the function, and take the plan of the DataFrame that it gives. Raises ProjectError."""
    what = f"the function of the view {view.name} ended with an error"
    with _own_errors(places, what, view.position):
        found = view.function()
        if not isinstance(found, DataFrame):
            raise ProjectError(
                f"the function of the view {view.name} returns no DataFrame",
                position=view.position,
                expected="a DataFrame",
                found=type(found).__name__,
                next_step="end it with `return` and the DataFrame",
            )
        return found._plan.plan(client)


@contextmanager
def _own_errors(places: Places, what: str, position: Position) -> Iterator[None]:
    """Errors of a project's code, at the line of it that failed."""
    try:
        yield
    except LockstepError:
        raise
    except Exception as error:
        at = position
        if isinstance(error, SyntaxError) and error.filename in places.names:
            at = Position(places.names[error.filename], error.lineno or 1, error.offset or 1)
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename in places.names:
                at = Position(places.names[frame.filename], frame.lineno or 1)
        raise ProjectError(
            what,
            position=at,
            found=f"{type(error).__name__}: {' '.join(str(error).split())[:500]}",
            next_step="correct the code",
        ) from error


class _Registry(GraphElementRegistry):
    """Takes what the decorators register, and refuses what is no view."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._outputs: dict[str, Output] = {}
        self._flows: dict[str, Flow] = {}

    def register_output(self, output: Output) -> None:
        position = self._position(output.source_code_location)
        if isinstance(output, StreamingTable | Sink):
            raise _refused(output, position)
        if isinstance(output, MaterializedView):
            _check_storage(output, position)
        known = self._outputs.setdefault(output.name.lower(), output)
        if known is not output:
            raise ProjectError(
                f"the view {output.name!r} is declared twice",
                position=position,
                expected="a name of its own for each source, view and sink",
                found=f"{known.name} at {self._position(known.source_code_location)}",
                next_step="rename one of them",
            )

    def register_flow(self, flow: Flow) -> None:
        position = self._position(flow.source_code_location)
        if flow.target.lower() not in self._outputs or flow.name != flow.target:
            raise NotSupported(
                f"the flow {flow.name!r} into {flow.target!r} is not supported",
                position=position,
                expected=_VIEW,
                next_step="union what flows into one table in one view: a.unionByName(b)",
            )
        if flow.spark_conf:
            raise NotSupported(
                f"the view {flow.name} has settings of Spark",
                position=position,
                found=", ".join(flow.spark_conf),
                next_step="leave out spark_conf; settings stand in spark-pipeline.yml",
            )
        self._flows[flow.target.lower()] = flow

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        del sql_text
        raise AssertionError(f"only pyspark's own command registers SQL files: {file_path}")

    def views(self) -> list[PythonView]:
        return [
            PythonView(
                name=output.name,
                published=isinstance(output, MaterializedView),
                comment=output.comment or "",
                function=self._flows[name].func,
                path=output.source_code_location.filename,
                position=self._position(output.source_code_location),
            )
            for name, output in self._outputs.items()
            if name in self._flows
        ]

    def _position(self, location: SourceCodeLocation) -> Position:
        if location.filename not in self._places.names:
            return self._places.position(self._places.caller())
        return Position(self._places.names[location.filename], location.line_number or 1)


def _refused(output: Output, position: Position) -> NotSupported:
    if isinstance(output, Sink):
        return NotSupported(
            f"the sink {output.name} in Python is not supported",
            position=position,
            expected="CREATE SINK name FROM view USING kafka OPTIONS (...) in a SQL file",
            next_step="declare it there",
        )
    return NotSupported(
        f"the streaming table {output.name} is not supported",
        position=position,
        expected=_VIEW,
        found="@dp.table",
        next_step="write @dp.materialized_view, and read its inputs with spark.read.table: the view "
        "is kept up to date by their changes",
    )


def _check_storage(view: MaterializedView, position: Position) -> None:
    given = {
        "table_properties": view.table_properties,
        "partition_cols": view.partition_cols,
        "cluster_by": view.cluster_by,
        "schema": view.schema,
        "format": view.format,
    }
    for name, value in given.items():
        if value:
            raise NotSupported(
                f"{name} of the view {view.name} is not supported",
                position=position,
                found=f"{name}={value!r}",
                next_step="leave it out; Lockstep makes the tables"
                if name != "schema"
                else "leave it out; cast the columns in the function",
            )
