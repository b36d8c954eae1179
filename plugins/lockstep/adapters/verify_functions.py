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
        by_row = function.kind in _BY_ROW
        connection.create_function(
            function.name,
            called if by_row else _of_arrow(called, function),
            return_type=duckdb_type(function.returns),
            null_handling=FunctionNullHandling.SPECIAL,
            type=PythonUDFType.NATIVE if by_row else PythonUDFType.ARROW,
        )


def _of_arrow(called: Callable[..., Any], function: PythonFunction) -> Callable[..., pa.Array]:
    """The function on columns of Arrow, which is how DuckDB calls it; pandas has them as Spark makes
    them."""
    # Not above: most projects have no such function, and pandas takes its time.
    from pyspark.sql.pandas.serializers import ArrowStreamPandasUDFSerializer
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import DataType

    wanted = to_arrow_type(DataType.fromDDL(function.returns))
    pandas: Any = ArrowStreamPandasUDFSerializer("UTC", False, True)  # type: ignore[no-untyped-call]
    is_arrow = function.kind in _OF_ARROW

    def of_columns(*chunked: pa.ChunkedArray) -> pa.Array:
        columns: Sequence[Any] = [one.combine_chunks() for one in chunked]
        if not is_arrow:
            columns = [pandas.arrow_to_pandas(one, at) for at, one in enumerate(columns)]
        if function.kind in _OF_BATCHES:
            [result] = called(iter([columns[0] if len(columns) == 1 else tuple(columns)]))
        else:
            result = called(*columns)
        return result.cast(wanted) if is_arrow else pandas._create_array(result, wanted)

    return of_columns
