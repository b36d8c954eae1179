"""A pipeline that runs is given other queries: what it holds is kept, the difference goes out."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lockstep.adapters.verify import verify
from lockstep.deploying import preview, propose, reconcile
from lockstep.errors import AuditFailed, Refused, StateDiverged
from lockstep.runtime import Pipeline, recorded
from lockstep.sql import incremental
from lockstep_engine import attempt
from lockstep_engine.context import Context

sys.path.insert(0, str(Path(__file__).parent))
from followed_shop import MERGE_ON_READ, Shop, rows

pytestmark = pytest.mark.spark

SALES = "id INT, item STRING, amount INT"
ITEMS = "item STRING, kind STRING"
TOTALS = "SELECT item, count(*) AS n, sum(amount) AS amount FROM @sales GROUP BY item"
KINDS = (
    "SELECT i.kind, sum(s.amount) AS amount FROM @sales s JOIN @items i ON s.item = i.item "
    "GROUP BY i.kind"
)
LARGE = "SELECT id, amount FROM @sales WHERE amount >= 50"
FIRST = {"totals": TOTALS, "kinds": KINDS, "large": LARGE}


@pytest.fixture
def shop(shop: Shop) -> Shop:
    shop.make("sales", SALES, MERGE_ON_READ)
    shop.make("items", ITEMS, MERGE_ON_READ)
    shop.sql("INSERT INTO @items VALUES ('nut', 'metal'), ('bolt', 'metal'), ('cork', 'wood')")
    shop.sql("INSERT INTO @sales VALUES (1, 'nut', 10), (2, 'bolt', 60), (3, 'cork', 70)")
    deploy(shop, FIRST)
    shop.advance()
    changes = (
        "DELETE FROM @sales WHERE id = 3",
        "INSERT INTO @sales VALUES (4, 'cork', 80), (5, 'nut', 50)",
    )
    shop.follow(changes, FIRST)
    return shop


def deploy(shop: Shop, queries: Mapping[str, str], more: str = "") -> None:
    sources = shop.source("sales", SALES) + shop.source("items", ITEMS)
    shop.deploy(queries, sources + more)


def published(shop: Shop, view: str, step: int) -> Counter[tuple[Any, ...]]:
    """What the outbox says for one step: rows with their weights."""
    found = shop.spark.table(shop.view(f"{view}_changes")).where(f"_step = {step}")
    return rows(found.drop("_step"))


def last_step(shop: Shop) -> int:
    return recorded(shop.database, shop.settings).version.last_step


def go_on(shop: Shop, queries: Mapping[str, str]) -> None:
    """The pipeline goes on as one that has had these queries from the start."""
    shop.sql("DELETE FROM @sales WHERE id = 2")
    shop.sql("INSERT INTO @sales VALUES (6, 'bolt', 55), (7, 'nut', 5)")
    shop.sql("UPDATE @items SET kind = 'tree' WHERE item = 'cork'")
    shop.advance()
    shop.check(queries)
    assert all(check.equal for check in verify(shop.database, shop.settings, print))


def test_only_the_rows_that_differ_are_published(shop: Shop) -> None:
    changed = {**FIRST, "large": LARGE.replace(">= 50", "> 50")}
    before = last_step(shop)
    deploy(shop, changed)
    # what is published is still what the old queries give
    assert all(check.equal for check in verify(shop.database, shop.settings, print))
    shop.advance()
    assert last_step(shop) == before + 1
    assert published(shop, "large", before + 1) == Counter({(5, 50, -1): 1})
    assert not published(shop, "totals", before + 1)
    shop.check(changed)
    assert recorded(shop.database, shop.settings).replaced is None
    go_on(shop, changed)


def test_traces_that_the_new_queries_share_are_kept(shop: Shop) -> None:
    before = recorded(shop.database, shop.settings).version
    changed = {**FIRST, "totals": TOTALS.replace("GROUP BY", "WHERE amount > 10 GROUP BY")}
    deploy(shop, changed)
    shop.advance()
    after = recorded(shop.database, shop.settings).version
    kept = before.tables.keys() & after.tables.keys()
    traces = {table for table in kept if table.startswith("_trace_")}
    assert traces
    assert {before.tables[t] for t in traces} == {after.tables[t] for t in traces}
    assert any("reads nothing again" in line or "traces" in line for line in shop.said)
    shop.check(changed)
    go_on(shop, changed)


def test_traces_that_are_made_of_many_rows(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are written in the order of their keys, by the part of the circuit that is worked out."""
    monkeypatch.setattr(attempt, "Context", partial(Context, many_records=0))
    changed = {**FIRST, "kinds": KINDS.replace("sum(s.amount)", "max(s.amount)")}
    deploy(shop, changed)
    shop.advance()
    shop.check(changed)
    go_on(shop, changed)


def test_another_plan_of_the_same_query_does_not_begin_with_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another release may make it: each trace then has another name."""
    named = incremental.canonical
    monkeypatch.setattr(incremental, "canonical", lambda *about: ["anew", *named(*about)])
    incremental.build_circuit.cache_clear()  # of the release before
    before = recorded(shop.database, shop.settings).version
    shop.sql("INSERT INTO @sales VALUES (6, 'nut', 90)")
    with pytest.raises(StateDiverged, match="need state that version") as caught:
        shop.advance()
    assert "lockstep deploy" in caught.value.next_step
    assert recorded(shop.database, shop.settings).version == before
    deploy(shop, FIRST)
    shop.advance()
    assert published(shop, "large", before.last_step + 1) == Counter({(6, 90, 1): 1})
    shop.check(FIRST)
    go_on(shop, FIRST)


def test_groups_that_a_join_reads_stand_for_their_aggregate(shop: Shop) -> None:
    """The source is not read again for what only the trace of accumulators has."""
    inner = "(SELECT item, count(*) AS n, avg(amount) AS m FROM @sales GROUP BY item)"
    joined = f"SELECT i.kind, g.n, g.m FROM @items i JOIN {inner} g ON i.item = g.item"
    deploy(shop, {**FIRST, "average": joined})
    shop.advance()
    shop.follow(("INSERT INTO @sales VALUES (8, 'nut', 7)",), {**FIRST, "average": joined})
    changed = {**FIRST, "average": f"SELECT n, max(m) AS m FROM {inner} GROUP BY n"}
    shop.said.clear()
    deploy(shop, changed)
    shop.advance()
    shop.check(changed)
    go_on(shop, changed)


def test_a_new_view_and_one_that_is_gone(shop: Shop) -> None:
    changed = {
        "totals": TOTALS,
        "ranked": "SELECT item, amount, rank() OVER (ORDER BY amount DESC) AS place FROM "
        "(SELECT item, sum(amount) AS amount FROM @sales GROUP BY item)",
        "empty": "SELECT count(*) AS n FROM @sales WHERE id > 1000",
    }
    deploy(shop, changed)
    shop.advance()
    shop.check(changed)
    assert "kinds_changes" not in recorded(shop.database, shop.settings).version.tables
    go_on(shop, changed)


def test_columns_come_and_go(shop: Shop) -> None:
    wider = {
        **FIRST,
        "totals": TOTALS.replace("count(*) AS n,", "min(amount) AS least, count(*) AS n,"),
    }
    deploy(shop, wider)
    shop.advance()
    table = shop.spark.table(shop.view("totals"))
    assert set(table.columns) == {"item", "least", "n", "amount"}
    assert rows(table.select("item", "least", "n", "amount")) == rows(shop.sql(wider["totals"]))
    narrow = {**FIRST, "totals": "SELECT item, sum(amount) AS amount FROM @sales GROUP BY item"}
    deploy(shop, narrow)
    shop.advance()
    shop.check(narrow)
    deploy(shop, FIRST)
    shop.advance()
    back = shop.spark.table(shop.view("totals")).select("item", "n", "amount")
    assert rows(back) == rows(shop.sql(TOTALS))


def test_a_query_that_was_dropped_comes_back(shop: Shop) -> None:
    deploy(shop, {"totals": TOTALS})
    shop.advance()
    shop.sql("INSERT INTO @sales VALUES (8, 'cork', 90)")
    shop.advance()
    deploy(shop, FIRST)
    shop.advance()
    shop.check(FIRST)
    go_on(shop, FIRST)


def test_a_change_that_changes_no_row_publishes_none(shop: Shop) -> None:
    changed = {**FIRST, "large": LARGE + " AND id < 1000"}
    before = last_step(shop)
    deploy(shop, changed)
    shop.advance()
    assert last_step(shop) == before + 1
    assert not published(shop, "large", before + 1)
    go_on(shop, changed)


def test_input_that_is_divided_already_goes_through_the_new_queries(shop: Shop) -> None:
    """An interval that the old queries cannot get past: it is recorded, and they fail."""
    failing = {
        **FIRST,
        "large": "SELECT id, CAST(raise_error('no') AS INT) AS e FROM @sales WHERE id > 5",
    }
    deploy(shop, failing)
    shop.advance()
    shop.sql("INSERT INTO @sales VALUES (6, 'nut', 99)")
    with pytest.raises(Exception, match="no"):
        shop.advance()
    deploy(shop, {"totals": TOTALS, "kinds": KINDS, "mended": LARGE})
    shop.advance()
    shop.check({"totals": TOTALS, "kinds": KINDS, "mended": LARGE})


def test_rows_that_failed_before_the_change_are_taken_back(shop: Shop) -> None:
    each = "SELECT id, 100 DIV (amount - 50) AS each FROM @sales"
    deploy(shop, {**FIRST, "each": each})
    shop.advance()
    assert failed_rows(shop) == 1
    deploy(shop, {**FIRST, "each": each.replace("- 50", "- 49")})
    shop.advance()
    assert failed_rows(shop) == 0
    shop.check({**FIRST, "each": each.replace("- 50", "- 49")})


def failed_rows(shop: Shop) -> int:
    failed = shop.spark.table(shop.view("_failed_rows"))
    return int(failed.selectExpr("sum(_weight) AS n").collect()[0].n)


def test_a_preview_counts_what_a_deploy_then_publishes(shop: Shop) -> None:
    changed = {**FIRST, "large": LARGE.replace(">= 50", "> 50"), "new": "SELECT id FROM @sales"}
    proposal = proposed(shop, changed)
    found = {one.view: one for one in preview(proposal, shop.settings, print)}
    assert (found["large"].added, found["large"].removed) == (0, 1)
    assert found["large"].sample == ('- {"id":5,"amount":50}',)
    assert found["new"].added == 4
    assert recorded(shop.database, shop.settings).replaced is None


def proposed(shop: Shop, queries: Mapping[str, str]) -> Any:
    """The project's files as they would be deployed."""
    file = shop.folder / "sql" / "shop.sql"
    sources = shop.source("sales", SALES) + shop.source("items", ITEMS)
    views = "".join(
        f"CREATE MATERIALIZED VIEW {name} AS {query.replace('@', '')};\n"
        for name, query in queries.items()
    )
    file.write_text(sources + views, "utf-8")
    return propose(str(shop.folder), shop.settings)


def test_state_is_made_anew_and_nothing_differs(shop: Shop) -> None:
    before = recorded(shop.database, shop.settings).version
    reconcile(shop.database, shop.settings)
    shop.advance()
    after = recorded(shop.database, shop.settings).version
    assert after.last_step == before.last_step + 1
    traces = [table for table in after.tables if table.startswith("_trace_")]
    assert all(before.tables[table] != after.tables[table] for table in traces)
    for view in FIRST:
        assert not published(shop, view, after.last_step)
    go_on(shop, FIRST)


def test_nothing_is_published_while_an_audit_has_rows(shop: Shop) -> None:
    audit = "CREATE AUDIT no_loss AS SELECT id, amount FROM sales WHERE amount < 0;\n"
    deploy(shop, FIRST, more=audit)
    shop.advance()
    shop.check(FIRST)
    assert not shop.spark.catalog.tableExists(shop.view("no_loss"))
    before = rows(shop.spark.table(shop.view("totals")))
    shop.sql("INSERT INTO @sales VALUES (10, 'nut', -5), (11, 'cork', 1)")
    with pytest.raises(AuditFailed, match="audit no_loss has rows") as failed:
        shop.advance()
    assert failed.value.found == '{"id":10,"amount":-5}'
    assert rows(shop.spark.table(shop.view("totals"))) == before
    with Pipeline(shop.database, shop.settings) as pipeline, pytest.raises(AuditFailed):
        pipeline.publish(shop.said.append)
    shop.sql("UPDATE @sales SET amount = 5 WHERE id = 10")
    shop.advance()
    shop.check(FIRST)
    assert [check.view for check in verify(shop.database, shop.settings, print)] == list(FIRST)


KINDS_OF_STATE = {
    "distinct_items": "SELECT DISTINCT item FROM @sales",
    "most": "SELECT item, max(amount) AS most, avg(amount) AS mean FROM @sales GROUP BY item",
    "left_joined": "SELECT s.id, i.kind FROM @sales s LEFT JOIN @items i ON s.item = i.item",
    "unsold": "SELECT item FROM @items WHERE item NOT IN (SELECT item FROM @sales)",
    "above": "SELECT id FROM @sales s WHERE amount > (SELECT avg(amount) FROM @sales t "
    "WHERE t.item = s.item)",
    "running": "SELECT id, sum(amount) OVER (PARTITION BY item ORDER BY id) AS total FROM @sales",
    "dearest": "SELECT id, amount FROM @sales ORDER BY amount DESC, id LIMIT 2",
    "middle": "SELECT item, median(amount) AS middle, collect_set(id) AS ids FROM @sales GROUP BY item",
    "both": "SELECT item FROM @sales INTERSECT SELECT item FROM @items",
    "parts": "SELECT id, part FROM @sales LATERAL VIEW explode(sequence(1, amount DIV 20)) t AS part",
    "spread": "SELECT kind, count(DISTINCT s.item) AS n, stddev(amount) AS spread FROM @sales s "
    "JOIN @items i ON s.item = i.item GROUP BY kind",
    "chain": "WITH RECURSIVE up (id, level) AS (SELECT id, 1 FROM @sales WHERE id < 3 UNION ALL "
    "SELECT s.id, level + 1 FROM up JOIN @sales s ON s.id = up.id + 2) SELECT id, level FROM up",
}


def test_every_kind_of_state_is_made_from_the_past(shop: Shop) -> None:
    names = sorted(KINDS_OF_STATE)
    odd = {name: KINDS_OF_STATE[name] for name in names[::2]}
    even = {name: KINDS_OF_STATE[name] for name in names[1::2]}
    for queries in (odd, even, {**odd, **FIRST}):
        deploy(shop, queries)
        shop.advance()
        shop.check(queries)
        shop.sql("INSERT INTO @sales SELECT max(id) + 1, 'cork', 45 FROM @sales")
        shop.sql("DELETE FROM @sales WHERE id = (SELECT min(id) FROM @sales)")
        shop.advance()
        shop.check(queries)


def test_a_column_cannot_change_its_type(shop: Shop) -> None:
    deploy(shop, {**FIRST, "large": "SELECT id, CAST(amount AS STRING) AS amount FROM @sales"})
    with pytest.raises(Refused, match="column amount cannot change its type"):
        shop.advance()
    deploy(shop, FIRST)
    shop.advance()
    go_on(shop, FIRST)
