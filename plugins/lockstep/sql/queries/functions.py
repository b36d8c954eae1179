"""Which functions are maintained, and what to write in place of those that are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlglot import exp

from lockstep.errors import NotSupported
from lockstep.sql.plans.nodes import AggregateFunction
from lockstep.sql.reading.clocks import bounds_of, clock_text, clocks_in, has_months
from lockstep.sql.reading.syntax import SourceText
from lockstep.sql.reading.trees import children, function_name, outermost, without_parentheses

__all__ = [
    "AGGREGATES",
    "COLLECTED",
    "GENERATORS",
    "VARIANT_GENERATORS",
    "admit_clocks",
    "aggregates_around",
    "aggregates_in",
    "arguments_of",
    "bare_call",
    "check_supported",
    "contains_aggregate",
    "is_admitted",
    "is_aggregate",
    "is_generator",
    "is_session",
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
    # Spark's own definition: of booleans false is the least
    **dict.fromkeys(("every", "bool_and"), AggregateFunction.MIN),
    **dict.fromkeys(("any", "some", "bool_or"), AggregateFunction.MAX),
}

_NO_CLOCK = (
    "it would change every row at every step: show the row's own timestamp, and compare it with the "
    "clock in WHERE, `ts > now() - INTERVAL 1 HOUR`; or write now() where the view is read"
)
_NO_RANDOM = "derive the value from columns, for example `xxhash64(id)`"
_NO_PLACE = "leave it out: where a row was processed is not part of what a view means"

_NOT_DETERMINISTIC: Mapping[str, str] = {
    **dict.fromkeys(
        ("current_time", "localtimestamp"), "write now(), which is the time of the step"
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

COLLECTED: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("any_value", "first", "first_value", "last", "last_value", "max_by", "min_by"),
            *("bit_and", "bit_or", "bit_xor", "mode", "median", "percentile", "percentile_cont"),
            *("percentile_disc", "approx_percentile", "percentile_approx", "listagg", "string_agg"),
            *("std", "stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp"),
            *("corr", "covar_pop", "covar_samp", "skewness", "kurtosis", "histogram_numeric"),
            *("regr_avgx", "regr_avgy", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx"),
            *("regr_sxy", "regr_syy", "try_sum", "try_avg", "product", "count_min_sketch"),
            *("hll_sketch_agg", "hll_union_agg", "bitmap_construct_agg", "bitmap_or_agg"),
        ),
        "NULL",
    ),
    **dict.fromkeys(("approx_count_distinct", "regr_count"), "0L"),
    **dict.fromkeys(("collect_list", "collect_set", "array_agg"), "array()"),
}
"""Aggregates that are computed anew for the groups that changed, with what each is of no rows. Some of
them have another form in the circuit (`plans.moments`, `plans.extremes_by`)."""
VARIANT_GENERATORS = ("variant_explode", "variant_explode_outer")
GENERATORS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("explode", "explode_outer"), ("col",)),
    **dict.fromkeys(("posexplode", "posexplode_outer"), ("pos", "col")),
    **dict.fromkeys(("inline", "inline_outer", "stack", "json_tuple"), ()),
    **dict.fromkeys(VARIANT_GENERATORS, ("pos", "key", "value")),
}
"""Functions that make rows, with the names of their columns; () where the arguments decide."""


def is_window(node: Any) -> bool:
    """True for Spark's time window, `window(ts, size[, slide])`."""
    return function_name(node) == "window"


def is_session(node: Any) -> bool:
    """True for Spark's session window, `session_window(ts, gap)`."""
    return function_name(node) == "session_window"


def arguments_of(call: Any) -> tuple[list[Any], bool]:
    """The arguments of a call, and whether DISTINCT stands before them."""
    arguments = list(call.expressions)
    if arguments and isinstance(arguments[0], exp.Distinct):
        return [*arguments[0].expressions, *arguments[1:]], True
    return arguments, False


def bare_call(node: Any) -> Any:
    """An aggregate's call without FILTER, WITHIN GROUP and IGNORE NULLS around it."""
    while isinstance(node, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        node = node.this
    return node


def is_aggregate(node: Any) -> bool:
    """True for a call of an aggregate function, with all that can follow it but OVER."""
    name = function_name(bare_call(node))
    return name in AGGREGATES or name in COLLECTED


def is_generator(node: Any) -> bool:
    """True for a function that makes rows."""
    return function_name(node) in GENERATORS


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
    """True where an aggregate of this SELECT stands in the expression, not one of a subquery, and not
    one that is a window function."""
    if isinstance(node, exp.Query):
        return False
    if isinstance(node, exp.Window):
        inside = [*children(bare_call(node.this)), *(node.args.get("partition_by") or [])]
        inside += [node.args["order"]] if node.args.get("order") is not None else []
        return any(map(contains_aggregate, inside))
    return is_aggregate(node) or any(map(contains_aggregate, children(node)))


def aggregates_around(query: Any) -> Iterator[Any]:
    """The aggregates that a subquery reads of the query around: none names a relation of its own."""
    match query:
        case exp.In():
            yield from aggregates_in(query.this)
            yield from aggregates_around(query.args["query"])
        case exp.Not() | exp.Exists() | exp.Paren() | exp.Subquery():
            yield from aggregates_around(query.this)
        case exp.SetOperation():
            yield from aggregates_around(query.this)
            yield from aggregates_around(query.expression)
        case exp.Select():
            joins = query.args.get("joins") or []
            first = [query.args["from_"].this] if query.args.get("from_") else []
            own = {one.alias_or_name.lower() for one in (*first, *(join.this for join in joins))}
            clauses = (query.args.get("where"), *(join.args.get("on") for join in joins))
            for clause in filter(None, clauses):
                for call in aggregates_in(clause):
                    if own.isdisjoint(one.table.lower() for one in call.find_all(exp.Column)):
                        yield call


def aggregates_in(node: Any) -> Iterator[Any]:
    """The aggregates of an expression, not those of its subqueries."""
    return outermost(node, is_aggregate)


_ADMITTED = "lockstep_clock"


def admit_clocks(source: SourceText, condition: Any) -> None:
    """Let now() stand in a condition (WHERE, HAVING, QUALIFY, ON) whose parts, joined by AND, each
    compare a row's expression with it. Raises NotSupported for a part that has it elsewhere."""
    condition = without_parentheses(condition)
    if isinstance(condition, exp.And):
        admit_clocks(source, condition.this)
        admit_clocks(source, condition.expression)
        return
    clocks = list(clocks_in(condition))
    if clocks and bounds_of(condition) is None:
        instead = (
            "a month has no fixed length: write it on the row's side, `ts + INTERVAL 1 MONTH > now()`"
            if has_months(condition)
            else "write comparisons joined by AND, with a row's expression on one side, and on the "
            "other now(), or now() and an interval of days and shorter units: "
            "`ts > now() - INTERVAL 1 HOUR AND until >= now()`"
        )
        raise refuse(source, clocks[0], "this condition on the clock", instead)
    for clock in clocks:
        clock.meta[_ADMITTED] = True


def is_admitted(node: Any) -> bool:
    """True for a function of the clock in a comparison that is kept up to date."""
    return _ADMITTED in node.meta


def check_supported(source: SourceText, node: Any) -> None:
    """Walk an expression; raises NotSupported at the first part that has no incremental form.

    Subqueries are not entered: they are checked where they are lowered.
    """
    match node:
        case exp.Query():
            return
        case _ if clock_text(node):
            if is_admitted(node):
                return
            raise refuse(source, node, "the clock as a value", _NO_CLOCK)
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
        raise refuse(source, node, "unix_timestamp() without an argument", _NO_CLOCK)
    if name == "identifier":
        raise refuse(source, node, "a name that is computed", "write the name itself")
    if name == "window_time":
        raise refuse(source, node, "window_time", "write `window.end - INTERVAL 1 MICROSECOND`")
