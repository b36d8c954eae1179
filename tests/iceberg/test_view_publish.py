"""A published view is the integral of its outbox, each row as often as its weight, whoever dies."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from lake_builders import EVERY_TYPE, FLAT, FLAT_TYPES, ROWS_OF_ALL_TYPES, Outbox, comparable

from lockstep.errors import AttemptLost, Refused, StateDiverged
from lockstep_engine.sinks import iceberg
from lockstep_engine.sinks.iceberg import NETTED_ROWS, SMALL_ROWS
from lockstep_engine.sinks.view_publish import ViewPoint
from lockstep_engine.tables import table_name

pytestmark = pytest.mark.spark

PAIR = "id bigint, name string"


@pytest.fixture(
    scope="module",
    params=[(0, NETTED_ROWS), (0, 0), (SMALL_ROWS, NETTED_ROWS)],
    ids=["in place", "by Spark", "anew"],
)
def any_outbox(new_outbox: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Outboxes of views that are changed in place, without Spark and by it, and of views small enough
    to be written anew."""
    small_rows, netted_rows = request.param
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(iceberg, "NETTED_ROWS", netted_rows)
        yield lambda columns: new_outbox(columns, small_rows)


def stored(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row of EVERY_TYPE as PyIceberg finds it: structs by name, and a null array of structs as an
    empty one (https://github.com/apache/iceberg-python/issues/3833); Spark tells them apart."""

    def structs(place: int, value: Any) -> Any:
        if place == 14 and value is None:
            return []
        if value is None:
            return None
        if place == 12:
            return dict(zip(("x", "y y", "z"), value, strict=True))
        if place == 14:
            return [None if one is None else {"p": one[0]} for one in value]
        return value

    return comparable(structs(place, value) for place, value in enumerate(row))


# ── the law ─────────────────────────────────────────────────────────────────────────────────────


@st.composite
def streams(draw: st.DrawFn) -> list[list[tuple[int, int]]]:
    """Per step, changes (row number, weight) that never take back what is not there."""
    there: Counter[int] = Counter()
    steps = []
    for _ in range(draw(st.integers(2, 5))):
        step = []
        for row in draw(st.lists(st.integers(0, len(ROWS_OF_ALL_TYPES) - 1), unique=True)):
            weight = draw(st.integers(-there[row], 3))
            if weight:
                there[row] += weight
                step.append((row, weight))
        steps.append(step)
    return steps


@settings(
    max_examples=5,
    # A publish takes a second: a failing stream is short enough as it is.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(stream=streams(), cuts=st.sets(st.integers(0, 4)))
@pytest.mark.parametrize(
    ("types", "width"), [(EVERY_TYPE, None), (FLAT_TYPES, FLAT)], ids=["every type", "flat types"]
)
def test_the_view_is_the_integral_of_its_outbox(
    any_outbox: Any,
    types: str,
    width: int | None,
    stream: list[list[tuple[int, int]]],
    cuts: set[int],
) -> None:
    outbox = any_outbox(types)
    expected: Counter[tuple[Any, ...]] = Counter()
    for step, changes in enumerate(stream):
        outbox.add([(*ROWS_OF_ALL_TYPES[row][:width], weight, step) for row, weight in changes])
        for row, weight in changes:
            expected[stored(ROWS_OF_ALL_TYPES[row][:width])] += weight
        if step in cuts or step == len(stream) - 1:
            assert outbox.publish(step).marker == step
            assert outbox.rows() == +expected


def test_only_steps_up_to_the_last_are_published(any_outbox: Any) -> None:
    outbox = any_outbox(PAIR)
    outbox.add([(1, "a", 2, 0), (1, "a", -1, 1), (2, "b", 1, 1), (2, "b", -1, 2)])
    outbox.publish(1)
    assert outbox.rows() == {(1, "a"): 1, (2, "b"): 1}
    assert outbox.publish(2).rows == 1
    assert outbox.rows() == {(1, "a"): 1}


def test_equal_rows_of_an_append_only_view_all_stay(any_outbox: Any) -> None:
    outbox = any_outbox(PAIR)
    outbox.add([(1, "a", 1, 0), (1, "a", 1, 0), (1, "a", 3, 0), (None, None, 1, 0)])
    outbox.publish(0)
    assert outbox.rows() == {(1, "a"): 5, (None, None): 1}


def test_zero_and_minus_zero_are_one_row(any_outbox: Any) -> None:
    outbox = any_outbox("d double, s struct<d: double>")
    outbox.add([(-0.0, (-0.0,), 2, 0), (1.0, (1.0,), 1, 0)])
    outbox.publish(0)
    outbox.add([(0.0, (0.0,), -2, 1)])
    outbox.publish(1)
    assert outbox.rows() == comparable_rows([(1.0, {"d": 1.0})])


def test_zeros_and_nans_are_one_row_each(any_outbox: Any) -> None:
    outbox = any_outbox("d double, f float")
    outbox.add([(-0.0, -0.0, 2, 0), (math.nan, None, 2, 0), (None, math.nan, 1, 0)])
    outbox.publish(0)
    outbox.add([(0.0, 0.0, -1, 1), (-math.nan, None, -1, 1), (None, -math.nan, -1, 1)])
    outbox.publish(1)
    assert outbox.rows() == comparable_rows([(0.0, 0.0), (math.nan, None)])


def comparable_rows(rows: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    return Counter(comparable(row) for row in rows)


def test_a_change_of_nothing_moves_the_marker(any_outbox: Any) -> None:
    outbox = any_outbox(PAIR)
    outbox.publish(0)
    assert outbox.rows() == {}
    outbox.add([(1, "a", 1, 1), (1, "a", -1, 2)])
    outbox.publish(2)
    head = outbox.lake.state.view_head(outbox.view)
    assert head.marker.step == 2
    assert head.marker.snapshot_id == head.snapshot_id
    before = outbox.lake.state.refs(outbox.view)
    assert outbox.publish(2) == outbox.publish(1)
    assert (
        outbox.lake.state.refs(outbox.view)
        == before
        == {
            "main": head.snapshot_id,
            "lockstep": head.snapshot_id,
        }
    )


def test_changes_are_counted_where_the_server_sends_no_metrics(
    any_outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = any_outbox(PAIR)
    outbox.publish(0)
    outbox.add([(1, "a", 2, 1), (2, "b", 1, 1), (3, "c", 1, 1), (3, "c", -1, 2)])
    monkeypatch.setattr("pyspark.sql.connect.observation.Observation.get", {})
    assert outbox.publish(2).rows == 2


def test_what_spark_deleted_before_is_not_counted_again(
    new_outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes it once more, beside what it deletes now: no copies are left over for that."""
    monkeypatch.setattr(iceberg, "NETTED_ROWS", 0)
    outbox = new_outbox(PAIR)
    outbox.add([(n, "a", 1, 0) for n in range(10)])
    outbox.publish(0)
    looks = list[int]()
    look = iceberg._left_over

    def left_over(*arguments: Any) -> Any:
        looks.append(1)
        return look(*arguments)

    monkeypatch.setattr(iceberg, "_left_over", left_over)
    for step in range(1, 4):
        outbox.add([(n, "a", -1, step) for n in (step, step + 5)])
        outbox.publish(step)
    assert not looks
    assert outbox.rows() == {(n, "a"): 1 for n in (0, 4, 5, 9)}


def test_main_shows_every_publish_as_one_change(new_outbox: Any) -> None:
    outbox = new_outbox(PAIR)
    outbox.add([(1, "a", 1, 0), (2, "b", 1, 0)])
    outbox.publish(0)
    outbox.add([(1, "a", -1, 1), (3, "c", 1, 1)])
    outbox.publish(1)
    table = outbox.lake.table(outbox.view)
    shown = [table.snapshot_by_id(entry.snapshot_id) for entry in table.history()]
    assert [snapshot.summary["lockstep.step"] for snapshot in shown] == ["-1", "0", "1"]
    at_step_0 = outbox.lake.rows(outbox.view, shown[1].snapshot_id)
    assert at_step_0 == {(1, "a"): 1, (2, "b"): 1}


def test_a_view_that_was_dropped_is_made_anew(new_outbox: Any) -> None:
    outbox = new_outbox(PAIR)
    outbox.add([(1, "a", 2, 0)])
    outbox.publish(0)
    outbox.add([(1, "a", -1, 1)])
    outbox.spark.sql(f"DROP TABLE {table_name(outbox.lake.settings, outbox.view)}")
    assert outbox.publish(1).marker == 1
    assert outbox.rows() == {(1, "a"): 1}


# ── what is refused ─────────────────────────────────────────────────────────────────────────────


def test_a_foreign_view_is_refused_and_both_are_named(new_outbox: Any) -> None:
    outbox = new_outbox(PAIR)
    outbox.add([(1, "a", 1, 0)])
    outbox.publish(0)
    with pytest.raises(StateDiverged) as refused:
        outbox.publish(0, incarnation="another")
    assert "expected: incarnation another" in str(refused.value)
    assert f"found: incarnation {outbox.incarnation}, at step 0" in str(refused.value)


def test_a_table_with_rows_and_no_marker_is_refused(new_outbox: Any) -> None:
    outbox = new_outbox(PAIR)
    name = table_name(outbox.lake.settings, outbox.view)
    outbox.spark.sql(f"CREATE TABLE {name} USING iceberg AS SELECT 1L AS id, 'x' AS name")
    with pytest.raises(StateDiverged, match="Lockstep has not written it"):
        outbox.publish(0)
    assert outbox.rows() == {(1, "x"): 1}


def test_a_view_of_a_later_format_is_refused(any_outbox: Any) -> None:
    outbox = any_outbox(PAIR)
    outbox.add([(1, "a", 1, 0)])
    outbox.publish(0)
    name = table_name(outbox.lake.settings, outbox.view)
    outbox.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('format-version' = '3')")
    outbox.add([(2, "b", 1, 1)])
    with pytest.raises(Refused, match="cannot be written") as refused:
        outbox.publish(1)
    assert f"if {outbox.view} is a view, drop it" in refused.value.next_step
    assert outbox.rows() == {(1, "a"): 1}


def test_an_empty_table_made_by_hand_is_taken(new_outbox: Any) -> None:
    outbox = new_outbox(PAIR)
    name = table_name(outbox.lake.settings, outbox.view)
    outbox.spark.sql(f"CREATE TABLE {name} ({PAIR}) USING iceberg PARTITIONED BY (bucket(4, id))")
    outbox.add([(1, "a", 1, 0)])
    outbox.publish(0)
    assert outbox.rows() == {(1, "a"): 1}


def test_rows_that_somebody_else_changed_are_refused(new_outbox: Any) -> None:
    outbox = new_outbox(PAIR)
    outbox.add([(1, "a", 1, 0), (2, "b", 1, 0)])
    outbox.publish(0)
    name = table_name(outbox.lake.settings, outbox.view)
    outbox.spark.sql(f"DELETE FROM {name} WHERE id = 1")
    with pytest.raises(StateDiverged, match="changed rows, and Lockstep has not written it"):
        outbox.publish(1)


def test_taking_back_what_is_not_there_is_refused(any_outbox: Any) -> None:
    outbox = any_outbox(PAIR)
    outbox.add([(1, "a", 1, 0)])
    outbox.publish(0)
    outbox.add([(1, "a", -2, 1)])
    with pytest.raises(StateDiverged, match=r"too few of .*1.*a"):
        outbox.publish(1)
    assert set(outbox.lake.state.refs(outbox.view)) == {"main", "lockstep"}


def test_columns_that_cannot_be_compared_are_refused(new_outbox: Any) -> None:
    outbox = new_outbox("id bigint, deep array<struct<m: map<string, int>>>")
    with pytest.raises(Refused, match="column deep cannot be published"):
        outbox.publish(0)
    assert outbox.lake.state.view_head(outbox.view) is None


# ── others at work on the view ──────────────────────────────────────────────────────────────────


def test_a_users_compaction_has_no_marker_and_harms_nothing(new_outbox: Any) -> None:
    outbox = new_outbox(PAIR)
    for step in range(3):
        outbox.add([(step, "a", 1, step)])
        outbox.publish(step)
    compact(outbox)
    outbox.add([(0, "a", -1, 3)])
    assert outbox.publish(3).marker == 3
    assert outbox.rows() == {(1, "a"): 1, (2, "a"): 1}


def compact(outbox: Outbox) -> None:
    settings = outbox.lake.settings
    outbox.spark.sql(
        f"CALL {settings.name}.system.rewrite_data_files(table => "
        f"'{settings.database}.{outbox.view}', options => map('rewrite-all', 'true'))"
    )


def test_a_compaction_during_a_publish_starts_it_again(new_outbox: Any) -> None:
    outbox = new_outbox(PAIR)
    outbox.add([(1, "a", 1, 0), (2, "b", 1, 0)])
    outbox.publish(0)
    outbox.add([(1, "a", -1, 1)])
    left = [1]

    def reached(point: ViewPoint) -> None:
        if point is ViewPoint.APPENDED and left:
            left.pop()
            compact(outbox)

    assert outbox.publish(1, reached=reached).marker == 1
    assert not left
    assert outbox.rows() == {(2, "b"): 1}
    assert set(outbox.lake.state.refs(outbox.view)) == {"main", "lockstep"}


def test_others_that_never_stop_end_the_publish(new_outbox: Any) -> None:
    outbox = new_outbox(PAIR)
    outbox.publish(0)
    outbox.add([(1, "a", 1, 1)])

    def reached(point: ViewPoint) -> None:
        if point is ViewPoint.APPENDED:
            view = outbox.lake.table(outbox.view)
            marker = {"lockstep.step": "0", "lockstep.incarnation": outbox.incarnation}
            view.append(view.schema().as_arrow().empty_table(), snapshot_properties=marker)

    with pytest.raises(AttemptLost, match="main moved 5 times"):
        outbox.publish(1, reached=reached)
    assert outbox.publish(1).marker == 1
    assert outbox.rows() == {(1, "a"): 1}


@pytest.mark.parametrize(
    "changes",
    [[], [(2, "b", 1, 1)], [(1, "a", -1, 1), (2, "b", 1, 1)]],
    ids=["nothing", "rows to add", "rows to change"],
)
@pytest.mark.parametrize("asleep", [ViewPoint.BRANCHED, ViewPoint.APPENDED])
def test_a_zombie_that_wakes_up_late_lands_nothing_and_has_not_failed(
    any_outbox: Any, asleep: ViewPoint, changes: list[tuple[Any, ...]]
) -> None:
    """Whoever has overtaken it has swept its branch."""
    outbox = any_outbox(PAIR)
    outbox.add([(1, "a", 2, 0)])
    outbox.publish(0)
    if changes:
        outbox.add([*changes, (3, "c", 1, 2)])
    woken = []

    def reached(point: ViewPoint) -> None:
        if point is asleep and not woken:
            woken.append(outbox.publish(1))

    assert outbox.publish(1, reached=reached).rows == 0
    assert [published.rows for published in woken] == [len(changes)]
    after = Counter({(1, "a"): 2})
    for *row, weight, _ in changes:
        after[tuple(row)] += weight
    assert outbox.rows() == after
    assert set(outbox.lake.state.refs(outbox.view)) == {"main", "lockstep"}


def test_an_append_that_the_server_executes_twice_is_void(
    new_outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = new_outbox(PAIR)
    outbox.add([(7, "z", 1, 0)])
    outbox.publish(0)
    outbox.add([(1, "a", 2, 1)])
    once, calls = iceberg.append, []

    def twice(*arguments: Any) -> None:
        calls.append(once(*arguments))
        if len(calls) == 1:
            once(*arguments)

    monkeypatch.setattr(iceberg, "NETTED_ROWS", 0)
    monkeypatch.setattr(iceberg, "append", twice)
    assert outbox.publish(1).marker == 1
    assert outbox.rows() == {(7, "z"): 1, (1, "a"): 2}
    assert len(calls) == 2


# ── deaths ──────────────────────────────────────────────────────────────────────────────────────


class DeathError(Exception):
    """A publish ends here."""


@pytest.mark.parametrize("at", list(ViewPoint))
def test_a_publish_that_dies_is_repeated_without_loss_or_doubling(
    any_outbox: Any, at: ViewPoint
) -> None:
    outbox = any_outbox(PAIR)
    if at is ViewPoint.DELETED and iceberg.NETTED_ROWS:
        return  # Only Spark deletes first, and then appends.
    outbox.add([(1, "a", 3, 0), (2, "b", 1, 0)])
    if at is not ViewPoint.MADE:
        outbox.publish(0)
    outbox.add([(1, "a", -1, 1), (2, "b", -1, 1), (3, "c", 2, 1)])
    before = outbox.rows() if at is not ViewPoint.MADE else Counter()
    after = {(1, "a"): 2, (3, "c"): 2}

    def reached(point: ViewPoint) -> None:
        if point is at:
            raise DeathError

    with pytest.raises(DeathError):
        outbox.publish(1, reached=reached)
    assert outbox.rows() == (after if at is ViewPoint.SHOWN else before)
    assert outbox.publish(1).marker == 1
    assert outbox.rows() == after
    outbox.add([(1, "a", -2, 2)])
    outbox.publish(2)
    assert outbox.rows() == {(3, "c"): 2}
    assert set(outbox.lake.state.refs(outbox.view)) == {"main", "lockstep"}


@pytest.mark.parametrize(
    ("at", "netted_rows"),
    [
        (ViewPoint.BRANCHED, NETTED_ROWS),
        (ViewPoint.APPENDED, NETTED_ROWS),
        (ViewPoint.DELETED, 0),
        (ViewPoint.APPENDED, 0),
    ],
)
def test_a_killed_process_leaves_a_publish_that_can_be_repeated(
    new_outbox: Any, spark_server: Any, at: ViewPoint, netted_rows: int
) -> None:
    outbox = new_outbox(PAIR)
    outbox.add([(1, "a", 2, 0)])
    outbox.publish(0)
    outbox.add([(1, "a", -1, 1), (2, "b", 1, 1)])
    catalog = outbox.lake.settings
    given_to_it = {
        "remote": spark_server.remote,
        "catalog": {
            "name": catalog.name,
            "database": catalog.database,
            "spark": dict(catalog.spark),
            "pyiceberg": dict(catalog.pyiceberg),
        },
        "view": outbox.view,
        "columns": outbox.columns,
        "outbox_table": outbox.table,
        "outbox_snapshot_id": outbox.snapshot,
        "last_step": 1,
        "incarnation": outbox.incarnation,
        "point": at.name,
        "netted_rows": netted_rows,
    }
    program = Path(__file__).parent / "publish_and_die.py"
    died = subprocess.run(
        [sys.executable, str(program), json.dumps(given_to_it)],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert outbox.rows() == {(1, "a"): 2}
    assert outbox.publish(1).marker == 1
    assert outbox.rows() == {(1, "a"): 1, (2, "b"): 1}
    assert set(outbox.lake.state.refs(outbox.view)) == {"main", "lockstep"}
