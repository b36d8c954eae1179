"""A Spark session without a server: it takes the plans of DataFrames, and refuses to be asked.

pyspark's Connect client builds unresolved plans by itself, and asks the server only for what needs the
rows or the catalog. The client here answers what the project itself knows (the names of columns, the
spec's configuration), and raises ProjectError for everything else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pyspark.errors.utils
from pyspark.sql.connect import functions
from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.group import GroupedData
from pyspark.sql.connect.plan import LogicalPlan
from pyspark.sql.connect.session import SparkSession
from pyspark.sql.types import DataType

from lockstep.errors import Position, ProjectError
from lockstep.frames.schemas import parsed_schema

__all__ = ["OfflineClient", "Places", "open_session"]

# What building a plan asks for; a project's own configuration comes before.
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.session.localRelationCacheThreshold": str(1 << 30),
    "spark.sql.session.localRelationChunkSizeRows": str(1 << 20),
    "spark.sql.session.localRelationChunkSizeBytes": str(1 << 30),
    "spark.sql.session.localRelationBatchOfChunksSizeBytes": str(1 << 30),
    "spark.sql.execution.pandas.convertToArrowArraySafely": "false",
    "spark.sql.execution.pandas.inferPandasDictAsMap": "false",
    "spark.sql.pyspark.inferNestedDictAsStruct.enabled": "false",
    "spark.sql.pyspark.legacy.inferArrayTypeFromFirstElement.enabled": "false",
    "spark.sql.pyspark.legacy.inferMapTypeFromFirstPair.enabled": "false",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    "spark.sql.execution.pythonUDF.arrow.enabled": "false",
}
_ASKED = {
    "schema": "the types of a DataFrame (schema, dtypes, printSchema)",
    "to_table": "the rows of a DataFrame (collect, count, first, toArrow)",
    "to_table_as_iterator": "the rows of a DataFrame (toLocalIterator)",
    "to_pandas": "the rows of a DataFrame (toPandas)",
    "execute_command": "a command (write, cache, a temporary view)",
    "execute_command_as_iterator": "a command (write, cache, a temporary view)",
    "persist": "a command (write, cache, a temporary view)",
    "explain_string": "its plan (explain)",
    "register_udf": "a function registered by name (spark.udf.register)",
}


class Places:
    """Where in a project's files something is called from.

    `lines` are the lines at which DataFrames were made, as (path, line) by plan id.
    """

    def __init__(self, files: Mapping[str, str]) -> None:
        self.names = dict(files)
        self.lines: dict[int, tuple[str, int]] = {}

    def caller(self) -> tuple[str, int] | None:
        """The path and line of the innermost call from a project's file."""
        frame: Any = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename in self.names:
                return frame.f_code.co_filename, frame.f_lineno
            frame = frame.f_back
        return None

    def position(self, at: tuple[str, int] | None) -> Position:
        """A path and a line as a position in the project."""
        if at is None:
            return Position(next(iter(self.names.values()), "spark-pipeline.yml"))
        return Position(self.names[at[0]], at[1])


class OfflineClient:
    """Stands where pyspark's Connect client would."""

    _session_id = "00000000-0000-0000-0000-000000000000"
    _user_id = None
    is_closed = False

    def __init__(self, configuration: Mapping[str, str], places: Places) -> None:
        self._configuration = configuration
        self._places = places

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._refuse(_ASKED.get(name, name))

    def _refuse(self, what: str) -> ProjectError:
        return ProjectError(
            f"a view's function may not ask Spark for {what}",
            position=self._places.position(self._places.caller()),
            expected="code that only describes the rows: nothing is read when it runs",
            next_step="describe them with columns and functions, and return the DataFrame",
        )

    def _set_relation_in_plan(self, plan: Any, relation: Any) -> None:
        """What comes before any question; the question itself is refused."""
        plan.root.CopyFrom(relation)

    def execute_command(self, command: Any, *_: Any) -> tuple[None, dict[str, Any], None]:
        """spark.sql sends its text here; a query among them stays a plan."""
        if command.WhichOneof("command_type") != "sql_command":
            raise self._refuse(_ASKED["execute_command"])
        return None, {}, None

    def _analyze(self, method: str, **arguments: Any) -> Any:
        if method != "ddl_parse":
            raise self._refuse(_ASKED.get(method, f"an analysis ({method})"))
        try:
            parsed: DataType = parsed_schema(arguments["ddl_string"])
        except ValueError as error:
            raise ProjectError(
                "a schema in text can't be read",
                position=self._places.position(self._places.caller()),
                expected="name TYPE, name TYPE, ... with types that are not nested",
                found=str(error),
                next_step="write it as a StructType",
            ) from None
        return SimpleNamespace(parsed=parsed)

    def get_config_dict(self, *keys: str) -> dict[str, str]:
        return {key: self._setting(key) for key in keys}

    def get_configs(self, *keys: str) -> tuple[str, ...]:
        return tuple(map(self._setting, keys))

    def config(self, operation: Any) -> Any:
        """spark.conf.get gives the configuration of the project's spec."""
        match operation.WhichOneof("op_type"):
            case "get":
                pairs = [(key, self._setting(key)) for key in operation.get.keys]
            case "get_with_default":
                pairs = [
                    (one.key, self._configuration.get(one.key, one.value))
                    for one in operation.get_with_default.pairs
                ]
            case "get_all":
                pairs = list(self._configuration.items())
            case _:
                raise self._refuse("a change of its configuration (spark.conf.set)")
        return SimpleNamespace(pairs=pairs, warnings=[])

    def _setting(self, key: str) -> str:
        for known in (self._configuration, _SETTINGS):
            if key in known:
                return known[key]
        raise ProjectError(
            f"the setting {key!r} is not known",
            position=self._places.position(self._places.caller()),
            expected=f"one of {', '.join(self._configuration) or '(none is set)'}",
            found=key,
            next_step=f"add `{key}: ...` below `configuration:` in spark-pipeline.yml",
        )


def open_session(
    configuration: Mapping[str, str], places: Places, columns: Callable[[Any], list[str]]
) -> OfflineClient:
    """Make the session that `SparkSession.active()` and `builder.getOrCreate()` give from now on.

    `columns` gives the names of the columns of a plan. For the whole process: it is made for this.
    """
    client = OfflineClient(configuration, places)
    session = SparkSession.__new__(SparkSession)
    session._client = client  # type: ignore[assignment]
    session._session_id = client._session_id
    session.release_session_on_close = False
    SparkSession._set_default_and_active_session(session)
    # expressions carry the line that they come from
    pyspark.errors.utils._enable_debugging_cache = True  # type: ignore[assignment]
    numbered = LogicalPlan._fresh_plan_id

    def noted() -> int:
        number = numbered()
        at = places.caller()
        if at is not None:
            places.lines[number] = at
        return number

    LogicalPlan._fresh_plan_id = staticmethod(noted)  # type: ignore[method-assign]
    DataFrame.columns = property(lambda frame: columns(frame._plan.plan(client)))  # type: ignore[method-assign, assignment]
    # groupBy(...).sum("a") would look up first whether a is a number
    GroupedData._numeric_agg = _aggregated(GroupedData._numeric_agg)  # type: ignore[method-assign]
    return client


def _aggregated(asking: Callable[..., Any]) -> Callable[..., Any]:
    def aggregate(grouped: GroupedData, function: str, columns: Sequence[str]) -> Any:
        if not columns:
            return asking(grouped, function, columns)
        return grouped.agg(*(getattr(functions, function)(one) for one in columns))

    return aggregate
