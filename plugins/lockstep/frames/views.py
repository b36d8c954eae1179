"""A view's DataFrame as SQL: all kinds of relations together, and what is said of those that are not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lockstep.frames.columns import COLUMN_KINDS
from lockstep.frames.context import Context
from lockstep.frames.expressions import Expressions
from lockstep.frames.frame import Frame
from lockstep.frames.groups import GROUP_KINDS
from lockstep.frames.joins import JOIN_KINDS
from lockstep.frames.leaves import LEAF_KINDS
from lockstep.frames.missing import MISSING_KINDS
from lockstep.frames.translation import Kind, Translator

__all__ = ["translated"]

_KINDS: Mapping[str, Kind] = {
    **LEAF_KINDS,
    **COLUMN_KINDS,
    **JOIN_KINDS,
    **GROUP_KINDS,
    **MISSING_KINDS,
}

_IN_PYTHON = "write it with functions of columns, or in a job that reads the view"
_EXECUTES = "leave it out: a view's function only describes the rows"
_STATISTICS = "write the aggregates: df.agg(F.avg(...), ...)"
_REFUSED: Mapping[str, tuple[str, str]] = {
    "sample": ("sample", 'filter on a hash: F.pmod(F.xxhash64("id"), F.lit(100)) < 5'),
    "sample_by": ("sampleBy", 'filter on a hash: F.pmod(F.xxhash64("id"), F.lit(100)) < 5'),
    "tail": ("tail", "order the other way, and write limit"),
    "show_string": ("show", _EXECUTES),
    "html_string": ("a DataFrame's picture", _EXECUTES),
    "collect_metrics": ("observe", _EXECUTES),
    "with_watermark": ("withWatermark", "declare it at the source: OPTIONS ('watermark' = ...)"),
    "map_partitions": ("mapInPandas or mapInArrow", _IN_PYTHON),
    "group_map": ("applyInPandas or applyInArrow", _IN_PYTHON),
    "co_group_map": ("cogroup", _IN_PYTHON),
    "apply_in_pandas_with_state": ("applyInPandasWithState", _IN_PYTHON),
    "common_inline_user_defined_table_function": ("a Python table function", _IN_PYTHON),
    "common_inline_user_defined_data_source": (
        "a Python data source",
        "declare the source in a SQL file: CREATE TABLE ... USING kafka or iceberg",
    ),
    "unresolved_table_valued_function": (
        "spark.tvf",
        'write the function as a column: df.select(F.explode("array"))',
    ),
    "as_of_join": ("an as-of join", "write it in a SQL file: a ASOF JOIN b ON ..."),
    "to_schema": ("to(schema)", "select the columns, and cast them"),
    "transpose": ("transpose", "write unpivot, or groupBy with pivot"),
    "parse": ("reading CSV or JSON from a DataFrame", "write F.from_json or F.from_csv"),
    "cached_local_relation": ("createDataFrame of many rows", "put them into a table"),
    "chunked_cached_local_relation": ("createDataFrame of many rows", "put them into a table"),
    "cached_remote_relation": ("a checkpoint", _EXECUTES),
    "ml_relation": ("a machine learning model", "leave it to a job that reads the view"),
    "catalog": ("the catalog", "read tables by name: spark.read.table"),
    **dict.fromkeys(
        ("summary", "describe", "crosstab", "cov", "corr", "approx_quantile", "freq_items"),
        ("a statistic of the whole DataFrame", _STATISTICS),
    ),
}


def translated(relation: Any, context: Context) -> Frame:
    """The frame of a DataFrame's plan: its `text()` is the SQL, with marks, its `shown` the columns.

    Raises ProjectError, NotSupported with positions in the Python file.
    """
    translator = Translator(context, _KINDS, _REFUSED)

    def subquery(plan_id: int, outer: Expressions) -> str:
        return replace(translator, outer=outer).query(context.references[plan_id])

    context.subquery = subquery
    return translator.frame(relation)
