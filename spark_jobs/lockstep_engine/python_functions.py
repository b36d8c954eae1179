"""Python functions of a project, made known to a session under the names by which its views call them.

They are handed on as they were pickled when the project was deployed: only Spark's workers, which are
to run the same minor version of Python, unpickle them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType

from lockstep.sql.circuit import PythonFunction
from lockstep_engine.told import is_of_connect

__all__ = ["register_functions"]


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
    declared.python_udf.output_type.CopyFrom(
        pyspark_types_to_proto_types(DataType.fromDDL(function.returns))
    )
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
