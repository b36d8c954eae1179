"""Python functions of a project in the other engine: unpickled here, and called row by row."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.func import FunctionNullHandling

from lockstep.errors import WrongUse
from lockstep.sql.circuit import PythonFunction
from lockstep.sql.duckdb_text import duckdb_type

__all__ = ["make_functions"]

_BY_ROW, _OF_ARROW, _OF_BATCHES = {100, 101}, {250, 251}, {204, 251}
"""Kinds of `pyspark.util.PythonEvalType`: how Spark's workers call a function."""


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
        connection.create_function(
            function.name,
            _of_a_row(called, function.kind),
            return_type=duckdb_type(function.returns),
            null_handling=FunctionNullHandling.SPECIAL,
        )


def _of_a_row(called: Callable[..., Any], kind: int) -> Callable[..., Any]:
    """The function on the values of one row, as DuckDB calls it."""
    if kind in _BY_ROW:
        return called

    def batch(values: Sequence[Any]) -> tuple[Any, ...]:
        if kind in _OF_ARROW:
            return tuple(pa.array([value]) for value in values)
        import pandas as pd

        return tuple(pd.Series([value]) for value in values)

    def of_batch(*values: Any) -> Any:
        columns = batch(values)
        if kind in _OF_BATCHES:
            [result] = called(iter([columns[0] if len(columns) == 1 else columns]))
        else:
            result = called(*columns)
        [value] = result.to_pylist() if isinstance(result, pa.Array) else result.tolist()
        return value

    return of_batch
