"""Pipelines over Iceberg tables: after each interval a view is the query over the tables as they are.

Whatever a writer does to a table, and in whichever way Iceberg keeps it, the published view is compared
with Spark's answer to the view's own query, asked of the tables themselves.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lockstep.adapters.overview import overview
from lockstep.adapters.verify import verify
from lockstep.control.receipts import ReceiptStatus
from lockstep.control.table_history import TableHistory
from lockstep.errors import ProjectError, SourceChanged
from lockstep.runtime import snapshot_receipt
from lockstep.sql.circuit import SMALL_RECORDS, Circuit
from lockstep_engine import attempt
from lockstep_engine.context import Context
from lockstep_engine.local.rows import Rows
from lockstep_engine.sources import file_rows

sys.path.insert(0, str(Path(__file__).parent))
from followed_shop import (
    COPY_ON_WRITE,
    DELETION_VECTORS,
    FULL_READ,
    MERGE_ON_READ,
    ORDERS,
    QUERIES,
    REWRITE,
    Shop,
    make_orders,
    rows,
    two_tables,
)

pytestmark = [pytest.mark.spark]

COUNTS = {
    "counts": "SELECT customer, count(*) AS n, sum(amount) AS total FROM @orders GROUP BY customer"
}
NEW_ORDER = "INSERT INTO @orders VALUES ({}, 'c1', 77, TIMESTAMP '2026-01-01 00:00:00Z')"


def count_orders(shop: Shop, more: str = "", rows_per_step: int = 1_000_000) -> None:
    shop.deploy(COUNTS, shop.source("orders", ORDERS, more), rows_per_step)


MERGE = (
    "MERGE INTO @orders t USING (SELECT id, CAST(99 AS INT) AS amount FROM range(290, 310)) s "
    "ON t.id = s.id WHEN MATCHED AND t.id < 295 THEN DELETE "
    "WHEN MATCHED THEN UPDATE SET amount = s.amount "
    "WHEN NOT MATCHED THEN INSERT (id, customer, amount) VALUES (s.id, 'c6', s.amount)"
)
IN_ONE_INTERVAL = (
    (),
    (NEW_ORDER.format(1000), "INSERT INTO @customers VALUES ('c6', 'IT')"),
    ("DELETE FROM @orders WHERE id % 50 = 3", "DELETE FROM @orders WHERE id IN (4, 54)"),
    ("UPDATE @orders SET amount = amount + 50 WHERE customer = 'c2'",),
    (MERGE, "DELETE FROM @customers WHERE customer = 'c0'"),
    (REWRITE,),
    (
        "INSERT INTO @orders VALUES (2000, 'c1', 60, NULL), (2000, 'c1', 60, NULL)",
        REWRITE,
        "DELETE FROM @orders WHERE id = 1000",
        "INSERT INTO @orders VALUES (3000, 'c3', 61, NULL)",
    ),
    (
        "INSERT OVERWRITE @customers SELECT * FROM @customers WHERE customer <> 'c1'",
        "INSERT OVERWRITE @orders SELECT id, customer, amount + 1, placed FROM @orders",
    ),
    ("DELETE FROM @customers",),
)


@pytest.mark.parametrize("how", ["read_here", "read_by_tasks", "large"])
@pytest.mark.parametrize(
    "properties",
    [COPY_ON_WRITE, MERGE_ON_READ, DELETION_VECTORS],
    ids=["copy_on_write", "merge_on_read", "deletion_vectors"],
)
def test_a_view_follows_whatever_happens_to_its_tables(
    shop: Shop, properties: dict[str, str], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "read_by_tasks":
        monkeypatch.setattr(file_rows, "FEW_ROWS", -1)
        monkeypatch.setattr(attempt, "can_be_worked_out", lambda *_: False)
    if how == "large":
        # Also an interval in which a file is only rewritten.
        monkeypatch.setattr(attempt, "FEW_RECORDS", -1)
        monkeypatch.setattr(attempt, "Context", partial(Context, many_records=-1))
    read, evaluated = list[Any](), attempt.evaluate_circuit

    def noted(circuit: Circuit, deltas: Mapping[str, Any], *more: Any) -> Any:
        read.extend(deltas.values())
        return evaluated(circuit, deltas, *more)

    monkeypatch.setattr(attempt, "evaluate_circuit", noted)
    two_tables(shop, properties)
    for statements in IN_ONE_INTERVAL:
        shop.follow(statements, QUERIES)
        assert not any(FULL_READ in line for line in shop.said)
        assert not any("Spark reads and works on all of it" in line for line in shop.said)
    assert read
    assert how != "large" or {type(one) for one in read} == {Rows}
    checks = verify(shop.database, shop.settings, shop.said.append)
    assert [(check.view, check.equal) for check in checks] == [("big", True), ("totals", True)]


def test_what_is_recorded_is_shown(shop: Shop) -> None:
    make_orders(shop, COPY_ON_WRITE)
    count_orders(shop)
    shop.advance()
    shop.advance()
    assert "nothing to do" in shop.said[-1]
    [first] = shop.snapshots("orders")
    assert [(s.start, s.end, s.records) for s in shop.slices("orders")] == [(None, first, 300)]
    steps = rows(shop.spark.table(shop.view("_table_steps")).drop("time", "table_id"))
    assert steps == Counter([(0, "orders", shop.table("orders"), None, first)])

    shop.sql(NEW_ORDER.format(1000))
    assert overview(shop.database, shop.settings).lag_records == {"orders": 1}
    second = shop.snapshots("orders")[1]
    receipts = [
        snapshot_receipt(shop.database, shop.table("orders"), snapshot, shop.settings)
        for snapshot in (first, second)
    ]
    statuses = [[(one.status, one.step) for one in found] for found in receipts]
    assert statuses == [[(ReceiptStatus.PUBLISHED, 0)], [(ReceiptStatus.PENDING, None)]]


@pytest.mark.parametrize("properties", [COPY_ON_WRITE, DELETION_VECTORS], ids=["whole", "vectors"])
def test_each_step_is_the_table_at_its_own_snapshot(shop: Shop, properties: dict[str, str]) -> None:
    """Many snapshots in one interval, cut into steps by their rows, where `main` has shown them."""
    make_orders(shop, properties, count=30)
    count_orders(shop, rows_per_step=2)
    shop.advance()
    for number in range(3):
        shop.sql(NEW_ORDER.format(1000 + number))
        shop.sql(f"INSERT INTO @orders VALUES ({2000 + number}, 'c9', 5, NULL)")
    shop.sql("DELETE FROM @orders WHERE id IN (7, 1001)")
    shop.rewrite_files("orders")
    for number in range(3):
        shop.sql(f"INSERT INTO @orders VALUES ({3000 + number}, 'c8', 5, NULL), (8, 'c8', 1, NULL)")
    shop.sql("DELETE FROM @orders WHERE customer = 'c9'")
    shop.sql("ALTER TABLE @orders CREATE BRANCH beside")
    shop.sql("DELETE FROM @orders.branch_beside WHERE customer = 'c8'")
    hidden = shop.snapshots("orders")[-1]
    shop.sql("INSERT INTO @orders.branch_beside VALUES (4000, 'c8', 5, NULL)")
    table = f"table => '{shop.table('orders')}'"
    shop.sql(f"CALL lake.system.fast_forward({table}, branch => 'main', to => 'beside')")
    shop.advance()
    divisions = shop.divisions()
    assert len(divisions) > 5
    outbox = shop.spark.table(shop.view("counts_changes"))
    for division in divisions:
        [slice_] = division.slices
        at = shop.sql(COUNTS["counts"].replace("@orders", f"@orders VERSION AS OF {slice_.end}"))
        changed = outbox.where(f"_step <= {division.step}").drop("_step").collect()
        found: Counter[tuple[Any, ...]] = Counter()
        for *values, weight in map(tuple, changed):
            found[tuple(values)] += weight
        assert Counter({row: n for row, n in found.items() if n}) == rows(at), division.step
    assert hidden not in [slice_.end for slice_ in shop.slices("orders")]
    shop.check(COUNTS)


def test_only_what_changed_is_read(shop: Shop) -> None:
    """The files of the first interval are gone from the disk: nothing asks for them."""
    make_orders(shop, MERGE_ON_READ)
    count_orders(shop)
    shop.advance()
    before = rows(shop.spark.table(shop.view("counts")))
    for file in shop.data_files("orders"):
        file.unlink()
    shop.sql("INSERT INTO @orders VALUES (1000, 'new', 1, NULL), (1001, 'new', 2, NULL)")
    shop.advance()
    assert rows(shop.spark.table(shop.view("counts"))) - before == Counter([("new", 2, 3)])
    shop.sql("DELETE FROM @orders WHERE id >= 1001")
    shop.advance()
    assert rows(shop.spark.table(shop.view("counts"))) - before == Counter([("new", 1, 1)])


def test_a_rollback_is_compared_in_full(shop: Shop) -> None:
    make_orders(shop, COPY_ON_WRITE)
    count_orders(shop)
    shop.sql(NEW_ORDER.format(1000))
    shop.advance()
    first = shop.snapshots("orders")[0]
    table = f"table => '{shop.table('orders')}'"
    shop.sql(f"CALL lake.system.rollback_to_snapshot({table}, snapshot_id => {first})")
    shop.sql("INSERT INTO @orders VALUES (1, 'c5', 3, NULL)")
    shop.advance()
    assert any("is no ancestor of" in line for line in shop.said)
    shop.check(COUNTS)
    shop.sql(f"CALL lake.system.rollback_to_snapshot({table}, snapshot_id => {first})")
    shop.advance()
    shop.check(COUNTS)


def test_rows_are_read_whatever_is_recorded_of_how_many_there_are(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Summaries are a writer's word: how much is read goes by them, and not whether."""
    silent, evaluated = list[Any](), attempt.evaluate_circuit

    def noted(circuit: Circuit, deltas: Any, nothing_of: Any, *more: Any) -> Any:
        silent.append(set(nothing_of))
        return evaluated(circuit, deltas, nothing_of, *more)

    monkeypatch.setattr(attempt, "evaluate_circuit", noted)
    monkeypatch.setattr(TableHistory, "records", lambda *_: 0)
    make_orders(shop, COPY_ON_WRITE)
    count_orders(shop)
    first = shop.snapshots("orders")[0]
    shop.follow((), COUNTS)
    shop.follow((NEW_ORDER.format(1000),), COUNTS)
    table = f"table => '{shop.table('orders')}'"
    back = f"CALL lake.system.rollback_to_snapshot({table}, snapshot_id => {first})"
    shop.follow((back,), COUNTS)
    assert silent == [set(), set(), set()]
    shop.follow((REWRITE,), COUNTS)
    shop.follow(("INSERT INTO @orders SELECT * FROM @orders WHERE false",), COUNTS)
    assert silent[3:] == [{"orders"}, {"orders"}]


def test_expired_snapshots(shop: Shop) -> None:
    make_orders(shop, COPY_ON_WRITE)
    count_orders(shop)
    shop.advance()

    def expire(snapshot_id: int) -> None:
        shop.sql(
            f"CALL lake.system.expire_snapshots(table => '{shop.table('orders')}', "
            f"snapshot_ids => array({snapshot_id}))"
        )

    shop.sql(NEW_ORDER.format(1000))
    expire(shop.snapshots("orders")[0])
    shop.advance()
    shop.check(COUNTS)
    read = shop.snapshots("orders")[-1]
    shop.sql("DELETE FROM @orders WHERE id = 3")
    expire(read)
    with pytest.raises(SourceChanged, match=f"snapshot {read} of table .* has expired"):
        shop.advance()


def test_a_table_that_was_made_anew_is_refused(shop: Shop) -> None:
    make_orders(shop, COPY_ON_WRITE)
    count_orders(shop)
    shop.advance()
    shop.sql("DROP TABLE @orders")
    with pytest.raises(SourceChanged, match="does not exist"):
        shop.advance()
    make_orders(shop, COPY_ON_WRITE)
    with pytest.raises(SourceChanged, match="was dropped and made anew"):
        shop.advance()


def test_an_append_only_source_grows_and_stops_at_a_delete(shop: Shop) -> None:
    make_orders(shop, COPY_ON_WRITE)
    count_orders(shop, ", 'append_only' = 'true'")
    shop.advance()
    shop.sql(NEW_ORDER.format(1000))
    shop.rewrite_files("orders")
    shop.advance()
    shop.check(COUNTS)
    shop.sql("DELETE FROM @orders WHERE id = 3")
    with pytest.raises(SourceChanged) as caught:
        shop.advance()
    assert f"snapshot {shop.snapshots('orders')[-1]}, a commit of type" in caught.value.found


def test_a_tables_columns_may_grow_and_not_change(shop: Shop) -> None:
    make_orders(shop, COPY_ON_WRITE)
    count_orders(shop)
    shop.advance()
    shop.sql("ALTER TABLE @orders ADD COLUMN note STRING FIRST")
    shop.sql("INSERT INTO @orders VALUES ('hello', 1000, 'c1', 5, NULL)")
    shop.advance()
    shop.check(COUNTS)
    shop.sql("DELETE FROM @orders WHERE id < 10")
    shop.advance()
    shop.check(COUNTS)
    shop.sql("ALTER TABLE @orders RENAME COLUMN amount TO cents")
    with pytest.raises(ProjectError) as caught:
        shop.advance()
    assert (caught.value.expected, caught.value.found) == ("amount INT", "no amount")


EVERY_TYPE = (
    "b BOOLEAN, i INT, l BIGINT, f FLOAT, d DOUBLE, m DECIMAL(20, 4), t DATE, s TIMESTAMP, "
    "n TIMESTAMP_NTZ, x STRING, y BINARY, a ARRAY<STRUCT<k: INT, v: STRING>>, "
    "p MAP<STRING, DECIMAL(9, 2)>, r STRUCT<u: DATE, w: ARRAY<TIMESTAMP>>"
)
VALUES = (
    "SELECT id % 2 = 0 AS b, CAST(id AS INT) AS i, id * 5000000000 AS l, CAST(id / 4 AS FLOAT) AS f, "
    "id / 7 AS d, CAST(id / 3 AS DECIMAL(20, 4)) AS m, "
    "date_add(DATE '1969-12-30', CAST(id AS INT)) AS t, "
    "timestamp_micros(id * 1234567890123) AS s, TIMESTAMP_NTZ '2026-01-01 01:02:03.456789' AS n, "
    "concat('ü', id) AS x, CAST(concat('y', id) AS BINARY) AS y, "
    "array(named_struct('k', CAST(id AS INT), 'v', CAST(NULL AS STRING))) AS a, "
    "map('one', CAST(id AS DECIMAL(9, 2))) AS p, "
    "named_struct('u', DATE '2026-01-01', 'w', array(timestamp_micros(id))) AS r FROM range(20) "
    "UNION ALL SELECT {} FROM range(1)"
).format(", ".join(["NULL"] * 14))


@pytest.mark.parametrize(
    ("properties", "full_read", "few", "lists"),
    [
        (COPY_ON_WRITE, False, 1000, "a"),
        (DELETION_VECTORS, False, 1000, "a"),
        (DELETION_VECTORS, False, -1, "a"),
        ({**COPY_ON_WRITE, "write.format.default": "orc"}, False, 1000, ""),
        # Of such files only Spark tells a null list of structs from an empty one.
        ({**COPY_ON_WRITE, "write.format.default": "orc"}, True, 1000, "a"),
        ({**COPY_ON_WRITE, "write.format.default": "avro"}, True, 1000, "a"),
    ],
    ids=["parquet", "vectors", "vectors_by_tasks", "orc", "orc_lists", "avro"],
)
def test_every_type_goes_through_unchanged(
    shop: Shop,
    properties: dict[str, str],
    full_read: bool,
    few: int,
    lists: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_rows, "FEW_ROWS", few)
    # A view may not hold maps.
    columns = ["b, i, l, f, d, m, t, s, n, x, y, r, array_sort(map_entries(p)) AS p", lists]
    queries = {"copy": f"SELECT {', '.join(filter(None, columns))} FROM @orders"}
    shop.make("orders", EVERY_TYPE, properties)
    shop.sql(f"INSERT INTO @orders {VALUES}")
    shop.deploy(queries, shop.source("orders", EVERY_TYPE))
    shop.advance()
    shop.check(queries)
    shop.sql(f"INSERT INTO @orders {VALUES}")
    shop.advance()
    shop.check(queries)
    shop.sql("DELETE FROM @orders WHERE i % 5 = 0 OR i IS NULL")
    shop.advance()
    shop.check(queries)
    assert full_read == any(FULL_READ in line for line in shop.said)


def test_a_view_of_another_pipeline_is_a_table_like_others(shop: Shop, tmp_path: Path) -> None:
    make_orders(shop, COPY_ON_WRITE)
    count_orders(shop)
    above = Shop(shop.spark, shop.settings, f"{shop.database}_above", tmp_path / "above")
    columns = "customer STRING, n BIGINT, total BIGINT"
    source = (
        f"CREATE TABLE counts ({columns}) USING iceberg "
        f"OPTIONS ('table' = '{shop.view('counts')}');\n"
    )
    largest = "SELECT n, count(*) AS customers, max(total) AS most FROM {} GROUP BY n"
    above.deploy({"sizes": largest.format("counts")}, source)
    for statement in (
        "INSERT INTO @orders VALUES (1000, 'c1', 1, NULL)",
        "DELETE FROM @orders WHERE customer = 'c2'",
        "INSERT INTO @orders VALUES (1001, 'c3', 1, NULL)",
    ):
        shop.sql(statement)
        shop.advance()
        above.advance()
        above.check({"sizes": largest.format(shop.view("counts"))})


def test_few_rows_of_files_that_were_rewritten_are_appended_from_here(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_orders(shop, COPY_ON_WRITE)
    count_orders(shop)
    shop.advance()
    monkeypatch.setattr(attempt, "FEW_RECORDS", 10)
    shop.sql("DELETE FROM @orders WHERE id = 3")
    shop.advance()
    shop.check(COUNTS)
    # By as much as the rewritten file has rows it is recorded.
    assert shop.slices("orders")[-1].records > 10
    [summary] = shop.spark.sql(
        f"SELECT summary FROM {shop.view('counts_changes')}.snapshots ORDER BY committed_at DESC LIMIT 1"
    ).collect()
    assert "spark.app.id" not in summary[0]


def test_a_large_append_is_read_by_each_operator(shop: Shop) -> None:
    """More rows than a small interval has, which nobody keeps: a self-join among the views reads them
    twice, and two steps of appends are told apart by their files."""
    queries = {
        **COUNTS,
        "pairs": "SELECT a.customer, count(*) AS n FROM @orders a JOIN @orders b ON a.id = b.amount "
        "WHERE a.placed < TIMESTAMP '1970-01-01 00:10:00Z' GROUP BY a.customer",
    }
    make_orders(shop, COPY_ON_WRITE)
    shop.deploy(queries, shop.source("orders", ORDERS), rows_per_step=1000)
    shop.advance()
    shop.sql(
        "INSERT INTO @orders SELECT 1000 + id, concat('c', id % 7), CAST(id % 100 AS INT), "
        f"timestamp_micros(id * 1000000) FROM range({SMALL_RECORDS})"
    )
    shop.sql(NEW_ORDER.format(SMALL_RECORDS + 1))
    shop.sql(NEW_ORDER.format(SMALL_RECORDS + 2))
    shop.advance()
    assert len([one for one in shop.slices("orders") if not one.is_empty]) == 3
    shop.check(queries)
    shop.sql(f"DELETE FROM @orders WHERE id = {SMALL_RECORDS + 1}")
    shop.advance()
    shop.check(queries)
