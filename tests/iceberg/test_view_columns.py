"""Columns of a published view come and go, whoever dies: what is shown is what the outbox adds up to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lake_builders import Outbox

from lockstep.errors import Refused
from lockstep_engine.sinks.iceberg import SMALL_ROWS
from lockstep_engine.sinks.view_publish import ViewPoint
from lockstep_engine.tables import table_name

pytestmark = pytest.mark.spark

WITHOUT, WITH = (("id",), ("id", "c"))


class DeathError(Exception):
    """A publish ends here."""


@pytest.fixture(params=[0, 2, SMALL_ROWS], ids=["in place", "netted", "anew"])
def outbox(new_outbox: Any, request: pytest.FixtureRequest) -> Outbox:
    """Of a view that shows two rows at step 0."""
    made: Outbox = new_outbox("id bigint, c string", request.param)
    made.add([(1, "a", 1, 0), (2, "b", 1, 0)])
    made.publish(0)
    return made


def die(outbox: Outbox, step: int, columns: tuple[str, ...]) -> None:
    """A publish changes the table's columns, and does not get to move `main`."""

    def reached(point: ViewPoint) -> None:
        if point is ViewPoint.APPENDED:
            raise DeathError

    with pytest.raises(DeathError):
        outbox.publish(step, columns=columns, reached=reached)


def test_a_column_that_no_publish_has_taken_away_keeps_its_values(outbox: Outbox) -> None:
    outbox.add([(1, "a", -1, 1), (2, "b", -1, 1), (1, None, 1, 1), (2, None, 1, 1)])
    die(outbox, 1, WITHOUT)
    outbox.add([(1, None, -1, 2), (2, None, -1, 2), (1, "a", 1, 2), (2, "b", 1, 2)])
    outbox.publish(2, columns=WITH)
    assert outbox.rows() == outbox.rows_by_spark() == {(1, "a"): 1, (2, "b"): 1}
    outbox.add([(1, "a", -1, 3), (3, "c", 2, 3)])
    outbox.publish(3, columns=WITH)
    assert outbox.rows() == {(2, "b"): 1, (3, "c"): 2}
    assert set(outbox.lake.state.refs(outbox.view)) == {"main", "lockstep"}


def compact(outbox: Outbox) -> None:
    """By a user, with the columns that the table has."""
    settings = outbox.lake.settings
    outbox.spark.sql(
        f"CALL {settings.name}.system.rewrite_data_files(table => "
        f"'{settings.database}.{outbox.view}', options => map('rewrite-all', 'true'))"
    )


@pytest.mark.parametrize("meanwhile", [lambda _: None, compact], ids=["", "compacted"])
def test_whoever_adds_it_again_may_die_too(
    outbox: Outbox, meanwhile: Callable[[Outbox], None]
) -> None:
    """By then the table has all columns again, of which one is not that of before."""
    outbox.add([(1, "a", -1, 1), (2, "b", -1, 1), (1, None, 1, 1)])
    die(outbox, 1, WITHOUT)
    meanwhile(outbox)
    outbox.add([(1, None, -1, 2), (1, "a", 1, 2), (3, "c", 1, 2)])
    die(outbox, 2, WITH)
    meanwhile(outbox)
    outbox.publish(2, columns=WITH)
    assert outbox.rows() == {(1, "a"): 1, (3, "c"): 1}


@pytest.mark.parametrize("columns", [WITH, WITHOUT])
def test_a_column_that_is_dropped_late_comes_back_without_a_change(
    outbox: Outbox, columns: tuple[str, ...]
) -> None:
    """By a publish that slept: others have moved the view meanwhile, and it cannot land."""
    name = table_name(outbox.lake.settings, outbox.view)
    outbox.spark.sql(f"ALTER TABLE {name} DROP COLUMN c")
    outbox.add([])
    assert outbox.publish(1, columns=columns).marker == 1
    assert outbox.rows() == {(1, "a")[: len(columns)]: 1, (2, "b")[: len(columns)]: 1}


def test_where_rows_cannot_be_compared_it_is_refused(new_outbox: Any) -> None:
    outbox = new_outbox("id bigint, c string, m map<string, int>", SMALL_ROWS)
    outbox.add([(1, "a", None, 1, 0)])
    outbox.publish(0, columns=WITH)
    outbox.add([(1, "a", None, -1, 1), (1, None, None, 1, 1)])
    die(outbox, 1, WITHOUT)
    outbox.add([(1, None, None, -1, 2), (1, "a", {"k": 1}, 1, 2)])
    with pytest.raises(Refused, match="column m cannot be published"):
        outbox.publish(2, columns=(*WITH, "m"))
    outbox.publish(2, columns=WITH)
    assert outbox.rows() == {(1, "a"): 1}


def test_a_column_that_a_publish_has_taken_away_comes_back_with_what_is_new(outbox: Outbox) -> None:
    outbox.add([(1, "a", -1, 1), (2, "b", -1, 1), (1, None, 1, 1), (2, None, 1, 1)])
    outbox.publish(1, columns=WITHOUT)
    assert outbox.rows() == {(1,): 1, (2,): 1}
    outbox.add([(1, None, -1, 2), (1, "a", 1, 2)])
    outbox.publish(2, columns=WITH)
    assert outbox.rows() == {(1, "a"): 1, (2, None): 1}
