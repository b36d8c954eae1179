"""Python functions of a project, made known to a session under the names by which its views call them.

They are handed on as they were pickled when the project was deployed: only Spark's workers, which are
to run the same minor version of Python, unpickle them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType
from pyspark.util import PythonEvalType

from lockstep.sql.circuit import PythonFunction
from lockstep_engine.sessions import is_of_connect
from lockstep_engine.told import types_of_columns

__all__ = ["of_columns", "register_functions"]

_OF_ARROW = {PythonEvalType.SQL_SCALAR_ARROW_UDF, PythonEvalType.SQL_SCALAR_ARROW_ITER_UDF}
_OF_BATCHES = {
    PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF,
    PythonEvalType.SQL_SCALAR_ARROW_ITER_UDF,
}


def register_functions(spark: SparkSession, functions: Iterable[PythonFunction]) -> None:
    """Temporary functions of the session; again is harmless."""
    register = _register_by_connect if is_of_connect(spark) else _register_in_driver
    for function in functions:
        register(spark, function)


def _register_by_connect(spark: Any, function: PythonFunction) -> None:
    """`spark.udf.register`, which takes a function, sends the same command with what it pickles."""
    # Not above: the package asks for grpc, which a classic session does without.
    from pyspark.sql.connect import proto
    from pyspark.sql.connect.types import pyspark_types_to_proto_types

    command = proto.Command()
    declared = command.register_function
    declared.function_name = function.name
    declared.deterministic = True
    # Not by `DataType.fromDDL`, which asks whichever session is the thread's.
    [returned] = types_of_columns(spark, f"returned {function.returns}")
    declared.python_udf.output_type.CopyFrom(pyspark_types_to_proto_types(returned.dataType))
    declared.python_udf.eval_type = function.kind
    declared.python_udf.command = function.pickled
    declared.python_udf.python_ver = function.python
    spark.client.execute_command(command)


def _register_in_driver(spark: Any, function: PythonFunction) -> None:
    from pyspark.core.rdd import _prepare_for_python_RDD

    context = spark.sparkContext
    # Of nothing: what surrounds a command is the same for all of them.
    _, broadcasts, environment, includes = _prepare_for_python_RDD(context, None)
    jvm = context._jvm
    command = jvm.SimplePythonFunction(
        bytearray(function.pickled),
        environment,
        includes,
        context.pythonExec,
        function.python,
        broadcasts,
        context._javaAccumulator,
    )
    returns = spark._jsparkSession.parseDataType(DataType.fromDDL(function.returns).json())
    made = jvm.org.apache.spark.sql.execution.python.UserDefinedPythonFunction(
        function.name, command, returns, function.kind, True
    )
    spark._jsparkSession.udf().registerPython(function.name, made)


def of_columns(called: Callable[..., Any], kind: int, returns: str) -> Callable[..., pa.Array]:
    """A function of the rows of columns, as a function of these columns in Arrow, outside Spark's
    workers: pandas has them as there."""
    # Not above: pandas takes its time.
    from pyspark.sql.pandas.serializers import ArrowStreamPandasUDFSerializer
    from pyspark.sql.pandas.types import to_arrow_type

    wanted = to_arrow_type(DataType.fromDDL(returns))
    pandas: Any = ArrowStreamPandasUDFSerializer("UTC", False, True)  # type: ignore[no-untyped-call]
    is_arrow = kind in _OF_ARROW

    def run(*chunked: pa.ChunkedArray) -> pa.Array:
        columns: Sequence[Any] = [one.combine_chunks() for one in chunked]
        if not is_arrow:
            columns = [pandas.arrow_to_pandas(one, at) for at, one in enumerate(columns)]
        if kind in _OF_BATCHES:
            [result] = called(iter([columns[0] if len(columns) == 1 else tuple(columns)]))
        else:
            result = called(*columns)
        return result.cast(wanted) if is_arrow else pandas._create_array(result, wanted)

    return run
