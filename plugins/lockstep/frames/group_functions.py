"""Python functions of a group's rows, as functions of the list of these rows.

In the SQL that is made of a view, `f(a)` of a group is `f(collect_list(named_struct('0', a)))`: an
aggregate that the circuit keeps, and a function of a row's value on top of it. What is in this module
is pickled with the function, and runs in Spark's workers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["of_rows"]


def of_rows(called: Callable[..., Any], returns: Any, *, of_arrow: bool) -> Callable[[Any], Any]:
    """A function of Arrow's lists of structs, each list the rows of a group, that calls `called` with
    the fields as columns, of Arrow or as Spark makes them pandas' for functions of groups. It gives
    Arrow's array of Spark's type `returns`."""

    def of_lists(lists: Any) -> Any:
        import pyarrow as pa
        from pyspark.sql.pandas.serializers import GroupPandasUDFSerializer
        from pyspark.sql.pandas.types import to_arrow_type

        wanted = to_arrow_type(returns)
        # Every session of the engine has this time zone, and Spark's defaults beside it.
        pandas: Any = GroupPandasUDFSerializer("UTC", False, True, False)  # type: ignore[no-untyped-call]
        results = []
        for rows in lists:
            columns = rows.values.flatten()
            if of_arrow:
                results.append(pa.array([called(*columns)]).cast(wanted))
            else:
                import pandas as pd

                series = [pandas.arrow_to_pandas(one, at) for at, one in enumerate(columns)]
                given = pd.Series([called(*series)])
                results.append(pandas._create_array(given, wanted, arrow_cast=True))
        return pa.concat_arrays(results) if results else pa.array([], wanted)

    return of_lists
