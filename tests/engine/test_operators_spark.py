"""Single operators against batch Spark SQL on the same rows: the rows, and the types of the columns."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pytest
from batch import CHANGES, NOON, TABLE, TYPES, Change, calls, check_like_batch, frame, run, sql
from intervals import Runner, as_frame, changes_of, circuit_of, up_to
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lockstep.errors import WrongUse
from lockstep.sql.plans.nodes import (
    Aggregate,
    AggregateCall,
    AggregateFunction,
    Expression,
    Filter,
    Join,
    Node,
    Output,
    Project,
    Scan,
    TimeWindow,
)
from lockstep.zset import ZSet
from lockstep_engine.context import Context
from lockstep_engine.deltas import absolute_steps
from lockstep_engine.operators import State, evaluate
from lockstep_engine.operators.linear import add_window, net_by_pane

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("keys", "extremes"),
    [
        (("k", "g"), ("k", "tiny", "x", "z", "f", "d")),
        ((), ("g", "small", "y", "e", "n", "ts", "b")),
    ],
)
def test_every_aggregate_of_every_type(
    spark: SparkSession, keys: tuple[str, ...], extremes: tuple[str, ...]
) -> None:
    numbers = ("tiny", "small", "i", "x", "y", "z", "f", "e", "n")
    aggregates = calls(
        "count",
        *(f"{function} {name}" for function in ("sum", "avg") for name in numbers),
        *(f"{function} {name}" for function in ("min", "max") for name in extremes),
        *(f"count {name}" for name in TYPES),
    )
    group = f"GROUP BY {', '.join(keys)}" if keys else ""
    query = f"SELECT {', '.join((*keys, sql(aggregates)))} FROM t {group}"
    check_like_batch(spark, Aggregate(TABLE, keys, aggregates), query)


@pytest.mark.parametrize("append_only", [False, True])
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_zeros_are_one_group_of_what_is_collected(
    spark: SparkSession, kind: pa.DataType, append_only: bool
) -> None:
    median = Expression("median(`v`)", ("v",))
    call = AggregateCall("m", AggregateFunction.COLLECTED, None, median)
    plan = Aggregate(Scan("t", ("d", "v")), ("d",), (call,))
    rows = {"d": pa.array([-0.0, 0.0, 0.0, -0.0, 1.0], kind), "v": [1, 9, 9, 9, 4]}
    change = as_frame(spark, pa.table({**rows, "_weight": [1] * 5, "_step": [0] * 5}))
    runner = Runner(spark, circuit_of(plan, frozenset("t" if append_only else "")))
    found = runner.run({"t": change}, (0, 0), 1_000_000, True)
    assert up_to(changes_of(found["root"]), 0) == ZSet([((0.0, 9.0), 1), ((1.0, 4.0), 1)])


def test_distinct(spark: SparkSession) -> None:
    keys = ("k", "g", "y")
    check_like_batch(spark, Aggregate(TABLE, keys, ()), "SELECT DISTINCT k, g, y FROM t")


@pytest.mark.parametrize("records", [len(CHANGES), 1_000_000])
@pytest.mark.parametrize(
    ("size", "slide"),
    [("6 seconds", "4 seconds"), ("6 seconds", "2 seconds"), ("7 seconds", "2 seconds")],
)
def test_aggregate_by_hopping_window_of_the_extremes_of_structs(
    spark: SparkSession, size: str, slide: str, records: int
) -> None:
    windows = TimeWindow(Scan("t", ("k", "x", "ts")), "w", "ts", size, slide)
    by_window = Aggregate(windows, ("w", "k"), calls("sum x", "count"))
    plan = Aggregate(by_window, ("k",), calls("max w", "min w", "max sum_x", "sum count_rows"))
    check_like_batch(
        spark,
        plan,
        f"""SELECT k, {sql(plan.aggregates)} FROM (
              SELECT window(ts, '{size}', '{slide}') AS w, k, sum(x) AS sum_x,
                count(*) AS count_rows
              FROM t GROUP BY window(ts, '{size}', '{slide}'), k)
            GROUP BY k""",
        records=records,
    )


@pytest.mark.parametrize(
    ("size", "slide", "columns", "left"),
    [
        ("6 seconds", "2 seconds", "k, ts", 3),
        ("7 seconds", "2 seconds", "k, ts", 4),  # by whole seconds
        ("4 seconds", "2 seconds", "k, ts", 7),
        ("6 seconds", "2 seconds", "k, ts, CAST(1 AS double) AS f", 7),
        ("6 seconds", "2 seconds", "k COLLATE UTF8_LCASE AS k, ts", 7),
    ],
)
def test_rows_are_netted_before_they_are_put_into_many_windows(
    spark: SparkSession, size: str, slide: str, columns: str, left: int
) -> None:
    rows = [("a", 0.5, 1, 1), ("a", 1.5, 1, 1), ("a", 1.6, 2, 1), ("a", 1.6, 1, 2)]
    rows += [("b", 0.5, 1, 1), ("b", 2.5, 1, 1), ("b", 2.7, -1, 1)]
    delta = spark.createDataFrame(
        [(k, NOON + dt.timedelta(seconds=at), weight, step) for k, at, weight, step in rows],
        "k string, ts timestamp, _weight bigint, _step bigint",
    ).selectExpr(*columns.split(", "), "_weight", "_step")
    node = TimeWindow(Scan("t", tuple(delta.columns[:-2])), "w", "ts", size, slide)
    netted = net_by_pane(node, delta)
    assert netted.count() == left

    def windows(of: Any) -> ZSet[Any]:
        found = add_window(node, of).drop("ts").collect()
        return ZSet(((tuple(one[:-2]), one[-1]), one[-2]) for one in found)

    assert windows(netted) - windows(delta) == ZSet()


def renamed(prefix: str, *names: str) -> Project:
    return Project(
        Scan("t", names),
        tuple(Output(prefix + name, Expression.column(name)) for name in names),
    )


@pytest.mark.parametrize(
    ("keys", "condition"),
    [
        ((("l_k", "r_k"),), None),
        ((("l_k", "r_k"),), "`l_x` < `r_x` + 5"),
        ((("l_x", "r_x"), ("l_x", "r_i")), None),
        ((("l_g", "r_g"),), None),
        ((), "`l_x` > `r_x`"),
        ((), None),
    ],
)
def test_self_join(
    spark: SparkSession, keys: tuple[tuple[str, str], ...], condition: str | None
) -> None:
    columns = ("k", "g", "x", "i")
    terms = [f"{left} = {right}" for left, right in keys] + ([condition] if condition else [])
    plan = Join(
        renamed("l_", *columns),
        renamed("r_", *columns),
        tuple(left for left, _ in keys),
        tuple(right for _, right in keys),
        Expression(condition, ("l_x", "r_x")) if condition else None,
    )
    sides = [
        "(SELECT {} FROM t)".format(", ".join(f"{name} AS {side}{name}" for name in columns))
        for side in ("l_", "r_")
    ]
    query = f"SELECT * FROM {sides[0]} JOIN {sides[1]} ON {' AND '.join(terms) or 'true'}"
    check_like_batch(spark, plan, query)


@pytest.mark.parametrize("sides", [2, 3])
@pytest.mark.parametrize("records", [10, 1_000_000])
def test_groups_that_change_at_every_step_are_joined_by_what_they_come_to(
    spark: SparkSession, sides: int, records: int
) -> None:
    """Each way gives the same after every step; what pairs of changes leave grows with their square."""
    last = 23
    changes = [((key, step), 1, step) for step in range(last + 1) for key in (1, 2)]
    changes += [((2, step - 3), -1, step) for step in range(3, last + 1)]
    functions = ("sum v", "max v", "count")[:sides]

    def side(place: int) -> Node:
        function = functions[place].replace(" ", "_").replace("count", "count_rows")
        groups = Aggregate(Scan("t", ("k", "v")), ("k",), calls(functions[place]))
        names = {"k": f"k{place}", function: f"v{place}"}
        outputs = (Output(new, Expression.column(old)) for old, new in names.items())
        return Project(groups, tuple(outputs))

    plan = reduce(
        lambda left, place: Join(left, side(place), ("k0",), (f"k{place}",)),
        range(1, sides),
        side(0),
    )
    circuit = circuit_of(plan, frozenset())
    found = []
    for many_steps in (0, 1_000):
        runner = Runner(spark, circuit, many_steps=many_steps)
        everything = []
        for first, end in ((0, 9), (10, last)):
            rows = [(*row, w, step) for row, w, step in changes if first <= step <= end]
            delta = frame(
                spark, rows, {"k": "int", "v": "int", "_weight": "bigint", "_step": "bigint"}
            )
            tables = runner.run({"t": delta}, (first, end), records, end == last)
            everything += changes_of(tables["root"])
        found.append(everything)
    by_validity, by_pairs = found
    for step in range(last + 1):
        values = {
            1: list(range(step + 1)),
            2: list(range(max(0, step - 2), step + 1)),
        }
        expected = ZSet.of_rows(
            tuple(cell for one in (sum(held), max(held), len(held))[:sides] for cell in (key, one))
            for key, held in values.items()
        )
        assert up_to(by_validity, step) == expected == up_to(by_pairs, step)


def test_what_is_collected_stays_where_another_column_changes(spark: SparkSession) -> None:
    """The collected column's changes cancel in that step, and the group has a row of that step."""
    median = Expression("median(v)", ("v",))
    plan = Aggregate(
        Scan("t", ("k", "v", "w")),
        ("k",),
        (
            AggregateCall("middle", AggregateFunction.COLLECTED, None, median),
            *calls("sum w", "max w"),
        ),
    )
    types = {"k": "int", "v": "int", "w": "int"}
    changes: list[Change] = [
        ((1, 4, 10), 1, 1),
        ((1, 4, 10), -1, 2),
        ((1, 4, 20), 1, 2),
        ((1, 8, 20), 1, 4),
        ((1, 4, 20), -1, 5),
        ((1, 4, 30), 1, 5),
    ]
    emitted = changes_of(run(spark, plan, changes, types=types))
    expected = {1: (4.0, 10, 10), 2: (4.0, 20, 20), 4: (6.0, 40, 20), 5: (6.0, 50, 30)}
    for step, values in expected.items():
        assert up_to(emitted, step) == ZSet.of_rows([(1, *values)])


@pytest.mark.parametrize("merges_traces", [True, False])
def test_sum_of_doubles_neither_drifts_nor_depends_on_the_division(
    spark: SparkSession, merges_traces: bool
) -> None:
    values = [1e20, 1.0, 0.1, 0.2, 0.3, -1e20, 1e-320]
    changes = [((value,), 1, step) for step, value in enumerate(values)]
    changes += [((value,), -1, len(values)) for value in (1e20, -1e20)]
    plan = Aggregate(Scan("t", ("v",)), (), calls("sum v"))
    last = len(values)
    for intervals in ([(0, last)], [(0, 1), (2, 5), (6, 6), (7, last)]):
        emitted = changes_of(run(spark, plan, changes, intervals, {"v": "double"}, merges_traces))
        sums = [list(up_to(emitted, step)) for step in range(last + 1)]
        expected = [1e20, 1e20, 1e20, 1e20, 1e20, 1.6, 1.6, 1.6]
        assert sums == [[((value,), 1)] for value in expected]


def test_an_aggregate_without_keys_has_a_row_from_the_first_step_on(spark: SparkSession) -> None:
    plan = Aggregate(Scan("t", ("v",)), (), calls("count", "sum v", "max v"))
    changes = [((7,), 1, 5), ((7,), -1, 6)]
    emitted = changes_of(run(spark, plan, changes, [(0, 1), (2, 3), (4, 9)], {"v": "int"}))
    nothing, seven = (0, None, None), (1, 7, 7)
    assert sorted(emitted, key=lambda change: (change[2], change[1])) == [
        (nothing, 1, 0),
        (nothing, -1, 5),
        (seven, 1, 5),
        (seven, -1, 6),
        (nothing, 1, 6),
    ]


def test_an_interval_of_which_every_row_falls_out(spark: SparkSession) -> None:
    """Spark's optimizer then sees that what is left is of the step before the interval's first."""
    plan = Aggregate(Filter(Scan("t", ("v",)), Expression("v > 0", ("v",))), ("v",), calls("count"))
    changes = [((7,), 1, 5), ((-7,), 1, 6)]
    emitted = changes_of(run(spark, plan, changes, [(5, 5), (6, 6)], {"v": "int"}))
    assert emitted == [((7, 1), 1, 5)]


def test_overflow_is_judged_at_the_end_of_a_step(spark: SparkSession) -> None:
    huge = 1 << 62
    plan = Aggregate(Scan("t", ("v",)), (), calls("sum v"))
    passing = [((huge,), 1, 0), ((huge,), 1, 0), ((huge,), 1, 0), ((-huge,), 2, 0)]
    emitted = changes_of(run(spark, plan, passing, [(0, 0)], {"v": "bigint"}))
    assert emitted == [((huge,), 1, 0)]
    with pytest.raises(PySparkException, match="overflow"):
        run(spark, plan, passing[:2], [(0, 0)], {"v": "bigint"})


def test_a_weight_multiplies_a_wide_decimal_without_loss(spark: SparkSession) -> None:
    value = Decimal("-123456789012345.123456789012345678")
    plan = Aggregate(Scan("t", ("v",)), (), calls("sum v", "avg v"))
    emitted = changes_of(run(spark, plan, [((value,), 7, 0)], [(0, 0)], {"v": "decimal(38,18)"}))
    assert emitted == [((Decimal("-864197523086415.864197523086419746"), value), 1, 0)]


def test_sum_of_a_date_is_refused(spark: SparkSession) -> None:
    plan = Aggregate(TABLE, (), calls("sum d"))
    with pytest.raises(WrongUse, match="sum of column d is not defined on its type") as error:
        run(spark, plan)
    assert error.value.found == "date"


def test_a_scan_is_not_evaluated(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="the driver reads"):
        evaluate(circuit_of(TABLE, frozenset()).operators[0], (), State(), Context(spark, 1))


def test_a_kept_delta_is_recognised(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark finds a kept frame by its plan: one that is never equal to itself is computed again."""
    plan = Aggregate(TABLE, ("k",), calls("count", "sum x", "avg f", "max y", "min ts"))
    operator = circuit_of(plan, frozenset()).operators[-1]
    everything = {**TYPES, "_weight": "bigint", "_step": "bigint"}
    delta = frame(spark, [(*row, weight, step) for row, weight, step in CHANGES], everything)
    evaluation = evaluate(operator, (delta,), State(), Context(spark, len(CHANGES)))
    kept = evaluation.delta.persist()
    try:
        kept.groupBy("k").count().explain()
        assert "InMemoryTableScan" in capsys.readouterr().out
    finally:
        kept.unpersist()


def test_intervals_of_other_steps_run_the_same_code(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """A recorded step that stood in the generated Java would have it compiled anew each interval."""
    plan = Aggregate(TABLE, ("k",), calls("count", "sum x", "max y"))
    operator = circuit_of(plan, frozenset()).operators[-1]
    everything = {**TYPES, "_weight": "bigint", "_step": "bigint"}
    delta = frame(spark, [(*row, weight, step) for row, weight, step in CHANGES], everything)

    def code(first: int, last: int) -> list[str]:
        evaluation = evaluate(operator, (delta,), State(), Context(spark, len(CHANGES)))
        absolute_steps(evaluation.delta, first, last).explain("codegen")
        shown = capsys.readouterr().out
        return [line for line in shown.splitlines() if line.startswith("/*")]

    assert len(code(0, 6)) > 100
    assert code(1_000_003, 1_000_009) == code(2_000_005, 2_000_011)
