"""Python functions of a project in the other engine: unpickled here, called as by Spark's workers."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

from lockstep.errors import WrongUse
from lockstep.sql.circuit import PythonFunction
from lockstep.sql.duckdb_text import duckdb_type

__all__ = ["make_functions"]

_BY_ROW = {100, 101}
"""Kinds of `pyspark.util.PythonEvalType` that Spark's workers call with the values of a row."""


def make_functions(
    connection: duckdb.DuckDBPyConnection, functions: Sequence[PythonFunction]
) -> None:
    """Let views call them by name. Raises WrongUse where another Python has pickled them."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    for function in functions:
        if function.python != here:
            raise WrongUse(
                f"the function {function.name} was pickled by another Python",
                expected=f"Python {here}, which verifies",
                found=f"Python {function.python}",
                next_step=f"deploy and verify with the same Python, or verify with {function.python}",
            )
        called, _ = pickle.loads(function.pickled)
        by_row = function.kind in _BY_ROW
        connection.create_function(
            function.name,
            called if by_row else _of_columns(called, function),
            return_type=duckdb_type(function.returns),
            null_handling=FunctionNullHandling.SPECIAL,
            type=PythonUDFType.NATIVE if by_row else PythonUDFType.ARROW,
        )


def _of_columns(called: Callable[..., Any], function: PythonFunction) -> Callable[..., pa.Array]:
    """The function on columns of Arrow, which is how DuckDB calls it."""
    # Not above: most projects have no such function, and Spark's package takes its time.
    from lockstep_engine.python_functions import of_columns

    return of_columns(called, function.kind, function.returns)
