"""What a changed project keeps, makes and reads again, from the circuits alone."""

from __future__ import annotations

from sql_builders import SOURCES, project

from lockstep.sql.circuit import Circuit
from lockstep.sql.incremental import build_circuit
from lockstep.sql.plans.nodes import Aggregate, MultiwayJoin, Scan, Watermark
from lockstep.sql.rebuild import Rebuild, ViewChange, plan_rebuild

TOTALS = "CREATE MATERIALIZED VIEW totals AS SELECT a, count(*) AS n FROM t GROUP BY a;"
JOINED = "CREATE MATERIALIZED VIEW joined AS SELECT t.b, u.d FROM t JOIN u ON t.a = u.a;"


def circuit(sql: str, sources: str = SOURCES) -> Circuit:
    return build_circuit(project(sql, sources=sources))


def held(of: Circuit) -> set[str]:
    """The tables of a version of this circuit."""
    return {trace.table for trace in of.traces} | {outbox.table for outbox in of.outboxes}


def rebuild(before: str, after: str, distrusted: tuple[str, ...] = ()) -> Rebuild:
    old = circuit(before)
    return plan_rebuild(old, circuit(after), held(old), distrusted)


def kinds(found: Rebuild) -> list[type]:
    return [type(operator.node) for operator in found.circuit.operators]


def test_the_same_queries_need_nothing() -> None:
    found = rebuild(TOTALS + JOINED, JOINED + TOTALS)
    assert found.is_empty
    assert found.circuit == Circuit((), ())
    assert found.made == found.dropped == found.sources == ()
    assert len(found.kept) == 3


def test_a_view_over_an_unchanged_one_reads_what_that_has_published() -> None:
    top = "CREATE MATERIALIZED VIEW top AS SELECT n, count(*) AS m FROM totals GROUP BY n;"
    found = rebuild(TOTALS, TOTALS + top)
    assert found.views == {"top": ViewChange.NEW, "totals": ViewChange.UNCHANGED}
    assert found.sources == ()
    [known] = found.known
    assert (known.table, known.columns) == ("totals_changes", ("a", "n"))
    assert kinds(found)[0] is Scan
    assert Aggregate in kinds(found)
    assert [outbox.view for outbox in found.circuit.outboxes] == ["top"]


def test_what_a_join_remembers_of_its_inputs_stands_for_them() -> None:
    by_d = "CREATE MATERIALIZED VIEW joined AS SELECT u.d, t.b FROM t JOIN u ON t.a = u.a;"
    found = rebuild(JOINED, by_d)
    assert found.views == {"joined": ViewChange.CHANGED}
    assert found.made == found.sources == ()
    assert sorted(known.table for known in found.known) == list(found.kept)
    assert MultiwayJoin in kinds(found)


def test_the_groups_of_an_aggregate_stand_for_it() -> None:
    """Of which no table has the rows: the join reads them off the aggregate's own trace."""
    inner = "(SELECT a, count(*) AS n FROM t GROUP BY a)"
    before = f"CREATE MATERIALIZED VIEW w AS SELECT u.d, g.n FROM u JOIN {inner} g ON u.a = g.a;"
    after = f"CREATE MATERIALIZED VIEW w AS SELECT max(n) AS m FROM {inner};"
    found = rebuild(before, after)
    [known] = found.known
    assert known.groups is not None
    assert (known.table, known.columns) == (known.groups.accumulators.table, ("a", "count"))
    assert (found.sources, found.kept) == ((), (known.table,))
    assert Aggregate in kinds(found)


def test_where_nothing_has_the_rows_the_source_is_read_again() -> None:
    by_b = "CREATE MATERIALIZED VIEW totals AS SELECT b, count(*) AS n FROM t GROUP BY b;"
    found = rebuild(TOTALS + JOINED, by_b + JOINED)
    assert found.views == {"joined": ViewChange.UNCHANGED, "totals": ViewChange.CHANGED}
    assert found.sources == ("t",)
    assert len(found.made) == len(found.dropped) == 1
    assert Aggregate in kinds(found)


def test_a_view_that_is_gone_needs_no_work() -> None:
    found = rebuild(TOTALS + JOINED, JOINED)
    assert found.views["totals"] is ViewChange.DROPPED
    assert not found.is_empty
    assert found.circuit.operators == ()
    assert len(found.dropped) == 1


def test_other_columns_are_another_view() -> None:
    renamed = "CREATE MATERIALIZED VIEW totals AS SELECT a, count(*) AS amount FROM t GROUP BY a;"
    found = rebuild(TOTALS, renamed)
    assert found.views == {"totals": ViewChange.CHANGED}
    assert found.circuit.outboxes[0].columns == ("a", "amount")


def test_a_source_of_other_columns_is_another_relation() -> None:
    wider = SOURCES.replace("t (a INT", "t (a BIGINT")
    old, new = circuit(TOTALS + JOINED), circuit(TOTALS + JOINED, wider)
    found = plan_rebuild(old, new, held(old))
    assert set(found.views.values()) == {ViewChange.CHANGED}
    assert found.sources == ("t",)
    assert (len(found.made), len(found.kept)) == (2, 1)


def test_what_follows_from_a_distrusted_source_is_made_anew() -> None:
    found = rebuild(TOTALS + JOINED, TOTALS + JOINED, distrusted=("t",))
    assert set(found.views.values()) == {ViewChange.CHANGED}
    assert found.sources == ("t",)
    assert (len(found.made), len(found.kept)) == (2, 1)
    assert [known.table for known in found.known] == list(found.kept)
    only_joined = rebuild(TOTALS + JOINED, TOTALS + JOINED, distrusted=("u",))
    assert only_joined.views == {"joined": ViewChange.CHANGED, "totals": ViewChange.UNCHANGED}


def test_a_watermark_that_is_asked_for_is_made_from_its_source() -> None:
    late = SOURCES.replace(
        "subscribe = 't'", "subscribe = 't', 'watermark' = 'ts', 'watermark_delay' = '1 minute'"
    )
    view = (
        "CREATE MATERIALIZED VIEW w TBLPROPERTIES ('emit' = 'final') AS "
        "SELECT window.start AS s, count(*) AS n FROM t GROUP BY window(ts, '1 minute');"
    )
    joined = "CREATE MATERIALIZED VIEW j AS SELECT t.b, u.d FROM t JOIN u ON t.a = u.a;"
    old = circuit(joined, late)
    found = plan_rebuild(old, circuit(joined + view, late), held(old))
    assert found.circuit.needs_divisions
    assert found.sources == ("t",)
    assert Watermark in kinds(found)
    only_joined = plan_rebuild(circuit(view, late), circuit(joined + view, late), set())
    assert only_joined.sources == ("t", "u")


FOLLOWED = "CREATE TABLE s (a INT, b INT) USING iceberg OPTIONS ('table' = 'other.s'{});"
MET = "CREATE MATERIALIZED VIEW met AS SELECT l.a, r.a AS other FROM s l JOIN s r ON l.b = r.b;"


def test_an_index_that_was_left_out_is_made_anew() -> None:
    """The version goes on to hold its table, at a snapshot of then, until something takes it out."""
    plain, indexed = (circuit(MET, FOLLOWED.format(index)) for index in ("", ", 'index' = 'b'"))
    indexes = tuple(sorted(indexed.indexes))
    declared = plan_rebuild(plain, indexed, held(plain))
    assert declared.made == indexes
    left_out = plan_rebuild(indexed, plain, held(indexed))
    assert left_out.dropped == indexes
    assert not left_out.is_empty
    again = plan_rebuild(plain, indexed, held(indexed))
    assert (again.made, again.known, again.sources) == (indexes, (), ("s",))
    assert set(declared.views.values()) == {ViewChange.UNCHANGED}
