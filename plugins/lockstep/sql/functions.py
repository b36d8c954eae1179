"""Which functions are maintained, and what to write in place of those that are not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from lockstep.errors import NotSupported
from lockstep.sql.nodes import AggregateFunction
from lockstep.sql.syntax import SourceText, children

__all__ = [
    "AGGREGATES",
    "check_supported",
    "contains_aggregate",
    "function_name",
    "is_aggregate",
    "is_window",
    "refuse",
]

AGGREGATES: Mapping[str, AggregateFunction] = {
    "count": AggregateFunction.COUNT,
    "count_if": AggregateFunction.COUNT,
    "sum": AggregateFunction.SUM,
    "avg": AggregateFunction.AVG,
    "mean": AggregateFunction.AVG,
    "min": AggregateFunction.MIN,
    "max": AggregateFunction.MAX,
}

_TIME_COLUMN = "use a timestamp column of the source; the time of a step is not a row's time"
_NO_RANDOM = "derive the value from columns, for example `xxhash64(id)`"
_NO_PLACE = "leave it out: where a row was processed is not part of what a view means"

_NOT_DETERMINISTIC: Mapping[str, str] = {
    **dict.fromkeys(
        ("now", "current_timestamp", "current_date", "curdate", "current_time", "localtimestamp"),
        _TIME_COLUMN,
    ),
    **dict.fromkeys(
        (
            "rand",
            "randn",
            "random",
            "randstr",
            "uniform",
            "uuid",
            "shuffle",
            "monotonically_increasing_id",
        ),
        _NO_RANDOM,
    ),
    **dict.fromkeys(
        (
            *(
                "spark_partition_id",
                "input_file_name",
                "input_file_block_start",
                "input_file_block_length",
            ),
            *("current_user", "user", "session_user", "current_catalog", "current_database"),
            *("current_schema", "version", "reflect", "java_method", "try_reflect"),
        ),
        _NO_PLACE,
    ),
}

_FIVE = "write it with count, sum, avg, min or max"
_OTHER_AGGREGATES = frozenset(
    {
        *("any", "any_value", "some", "every", "bool_and", "bool_or", "bit_and", "bit_or"),
        *("bit_xor", "approx_count_distinct", "approx_percentile", "percentile"),
        *("percentile_approx", "percentile_cont", "percentile_disc", "median", "mode"),
        *("collect_list", "collect_set", "array_agg", "listagg", "string_agg", "first"),
        *("first_value", "last", "last_value", "max_by", "min_by", "std", "stddev"),
        *("stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp", "corr", "covar_pop"),
        *("covar_samp", "skewness", "kurtosis", "regr_avgx", "regr_avgy", "regr_count"),
        *("regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy"),
        *("histogram_numeric", "count_min_sketch", "hll_sketch_agg", "hll_union_agg"),
        *("try_sum", "try_avg", "product", "grouping", "grouping_id", "bitmap_construct_agg"),
        "bitmap_or_agg",
    }
)
_RANKING = frozenset(
    {
        *("row_number", "rank", "dense_rank", "percent_rank", "ntile", "cume_dist", "lag"),
        *("lead", "nth_value"),
    }
)
_GENERATORS = frozenset(
    {
        *("explode", "explode_outer", "posexplode", "posexplode_outer", "inline"),
        *("inline_outer", "stack", "json_tuple"),
    }
)


def function_name(node: Any) -> str:
    """The lower-case name of a function call, '' for anything else."""
    if not isinstance(node, exp.Anonymous):
        return ""
    name = node.this
    return (name.name if isinstance(name, exp.Identifier) else str(name)).lower()


def is_window(node: Any) -> bool:
    """True for Spark's time window, `window(ts, size[, slide])`."""
    return function_name(node) == "window"


def is_aggregate(node: Any) -> bool:
    """True for an aggregate call that is maintained, with or without FILTER."""
    if isinstance(node, exp.Filter):
        return is_aggregate(node.this)
    return function_name(node) in AGGREGATES


def refuse(source: SourceText, node: Any, what: str, instead: str) -> NotSupported:
    """The error for Spark SQL that is right and not maintained."""
    return NotSupported(
        f"{what} is not supported in a view that is kept up to date",
        position=source.position_of(node),
        found=_excerpt(source, node),
        next_step=instead,
    )


def _excerpt(source: SourceText, node: Any) -> str:
    words = source.words_of(node)
    return words if len(words) <= 80 else words[:77] + "..."


def contains_aggregate(node: Any) -> bool:
    """True where an aggregate of this SELECT stands in the expression, not one of a subquery."""
    if isinstance(node, exp.Query):
        return False
    return is_aggregate(node) or any(map(contains_aggregate, children(node)))


def check_supported(source: SourceText, node: Any) -> None:
    """Walk an expression; raises NotSupported at the first part that has no incremental form."""
    match node:
        case exp.Window():
            raise refuse(
                source,
                node,
                "a window function (OVER)",
                "group and join: for the newest or largest row of a key, join with its max()",
            )
        case exp.Exists() | exp.Subquery() | exp.Query():
            raise refuse(
                source,
                node,
                "a subquery inside an expression",
                "write it as a view or a subquery in FROM, and join with it",
            )
        case exp.In() if node.args.get("query") is not None:
            raise refuse(
                source,
                node,
                "IN with a subquery",
                "join with SELECT DISTINCT of the subquery's column",
            )
        case exp.CurrentDate() | exp.CurrentTimestamp():
            raise refuse(source, node, "a function of the clock", _TIME_COLUMN)
        case exp.CurrentUser() | exp.SessionUser() | exp.CurrentRole():
            raise refuse(source, node, "a function of the session", _NO_PLACE)
        case exp.Placeholder() | exp.Parameter():
            raise refuse(
                source, node, "a parameter", "use `${name}` and set it below `configuration:`"
            )
        case exp.Anonymous():
            _check_function(source, node)
        case _:
            pass
    for child in children(node):
        check_supported(source, child)


def _check_function(source: SourceText, node: Any) -> None:
    name = function_name(node)
    if name in _NOT_DETERMINISTIC:
        raise refuse(
            source, node, f"{name}(), which is not deterministic,", _NOT_DETERMINISTIC[name]
        )
    if name == "unix_timestamp" and not node.expressions:
        raise refuse(source, node, "unix_timestamp() without an argument", _TIME_COLUMN)
    if name in _OTHER_AGGREGATES:
        raise refuse(source, node, f"the aggregate {name}", _FIVE)
    if name in _RANKING:
        raise refuse(
            source, node, f"the window function {name}", "join with min() or max() of the key"
        )
    if name in _GENERATORS:
        raise refuse(
            source, node, f"the generator {name}", "take the elements by index: `items[0]`"
        )
    if name == "session_window":
        raise refuse(
            source, node, "session_window", "use window(ts, size) or window(ts, size, slide)"
        )
    if name == "window_time":
        raise refuse(source, node, "window_time", "write `window.end - INTERVAL 1 MICROSECOND`")
