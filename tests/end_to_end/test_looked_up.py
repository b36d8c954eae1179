"""Rows of followed tables that a change meets are looked up by the driver: a view is as it would be.

It is compared with Spark's answer to its own query, asked of the tables themselves.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lockstep.lake import lookups
from lockstep_engine import attempt, touched
from lockstep_engine.sources.iceberg import look_up_before

sys.path.insert(0, str(Path(__file__).parent))
from followed_shop import (
    COPY_ON_WRITE,
    DELETION_VECTORS,
    MERGE_ON_READ,
    ORDERS,
    REWRITE,
    Shop,
    make_orders,
)

pytestmark = [pytest.mark.spark]


LOOKED_UP = {
    # By a number that both have, behind a filter and under another name; and of three inputs one twice.
    "pairs": "SELECT o.id, o.amount, n.note FROM @orders o "
    "JOIN (SELECT about AS whose, note FROM @notes WHERE note <> 'n3') n ON o.id = n.whose",
    "twice": "SELECT a.id, b.note, c.note AS other FROM @orders a "
    "JOIN @notes b ON a.id = b.about JOIN @notes c ON c.about = b.about AND b.note < c.note",
    "noted": "SELECT about, count(*) AS n FROM @notes GROUP BY about",
    "last": "SELECT about, note FROM (SELECT *, row_number() OVER (PARTITION BY about "
    "ORDER BY note DESC) AS place FROM @notes) WHERE place = 1",
}


@pytest.mark.parametrize(
    "properties",
    [COPY_ON_WRITE, MERGE_ON_READ, DELETION_VECTORS],
    ids=["copy_on_write", "merge_on_read", "deletion_vectors"],
)
@pytest.mark.parametrize("is_copied", [False, True], ids=["in_files", "in_copies"])
def test_of_tables_few_rows_are_looked_up(
    shop: Shop, properties: dict[str, str], is_copied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_copied:
        for limit in ("LARGE_VALUES", "MOST_KEPT", "_WORTH_COPYING"):
            monkeypatch.setattr(lookups, limit, 0)
    looked_up: list[tuple[str, int | None]] = []

    def noted(spark: Any, source: Any, *more: Any) -> Any:
        found = look_up_before(spark, source, *more)
        looked_up.append((source.name, None if found is None else len(found)))
        return found

    monkeypatch.setattr(attempt, "look_up_before", noted)
    monkeypatch.setattr(touched, "FEW_STATE", 0)
    make_orders(shop, properties)
    shop.make("notes", "about INT, note STRING", properties)
    shop.sql(
        "INSERT INTO @notes SELECT CAST(IF(id % 50 = 0, NULL, id % 250) AS INT), "
        "concat('n', id % 9) FROM range(600)"
    )
    sources = shop.source("orders", ORDERS) + shop.source("notes", "about INT, note STRING")
    shop.deploy(LOOKED_UP, sources)
    shop.advance()
    shop.check(LOOKED_UP)
    for statements in (
        ("DELETE FROM @orders WHERE id IN (3, 7, 30)",),
        (
            "DELETE FROM @notes WHERE about = 20",
            "UPDATE @notes SET note = 'n8' WHERE about = 21",
            "INSERT INTO @notes VALUES (40, 'n10'), (NULL, 'n10')",
        ),
        (REWRITE, "DELETE FROM @orders WHERE id = 40", "DELETE FROM @notes WHERE about IS NULL"),
        ("INSERT INTO @orders VALUES (40, 'c1', 7, NULL)", "DELETE FROM @notes WHERE note = 'n10'"),
    ):
        shop.follow(statements, LOOKED_UP)
    assert {source for source, count in looked_up if count} == {"orders", "notes"}
    assert max(count for _, count in looked_up if count is not None) < 100
    assert shop.settings.copies is not None
    copies = list(Path(shop.settings.copies.folder).glob("*.arrow"))
    assert bool(copies) == is_copied


LINES = "line BIGINT, whose BIGINT, piece INT"
BOUGHT = "id BIGINT, buyer BIGINT, day DATE"
BUYERS = "id BIGINT, land INT, name STRING"
LANDS = "id INT, name STRING"
SALES = {
    # A change of lines meets bought by its own number, buyers by bought's, lands by buyers'.
    "sales": "SELECT l.line, l.piece, b.day, y.name, a.name AS land FROM @lines l "
    "JOIN @bought b ON l.whose = b.id JOIN @buyers y ON b.buyer = y.id JOIN @lands a ON a.id = y.land",
    "by_land": "SELECT a.name, count(*) AS n, max(b.day) AS last FROM @lines l, @bought b, @buyers y, "
    "@lands a WHERE l.whose = b.id AND b.buyer = y.id AND a.id = y.land GROUP BY a.name",
    "beside": "SELECT y.name, a.name AS land FROM @buyers y LEFT JOIN @lands a ON a.id = y.land",
}


def noted_look_ups(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """How many rows each look-up finds, by source; each of them finds out."""
    looked_up: dict[str, list[int]] = {}

    def noted(spark: Any, source: Any, *more: Any) -> Any:
        found = look_up_before(spark, source, *more)
        assert found is not None
        looked_up.setdefault(source.name, []).append(len(found))
        return found

    monkeypatch.setattr(attempt, "look_up_before", noted)
    return looked_up


def test_what_is_met_by_numbers_of_rows_that_were_looked_up_is_looked_up(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From lines to what was bought, and on to its buyers and their lands; a table without a row too."""
    looked_up = noted_look_ups(monkeypatch)
    monkeypatch.setattr(touched, "FEW_STATE", 10)
    columns = {"lines": LINES, "bought": BOUGHT, "buyers": BUYERS, "lands": LANDS}
    for name, declared in columns.items():
        shop.make(name, declared, MERGE_ON_READ)
    shop.sql("INSERT INTO @lines SELECT id, IF(id % 40 = 7, NULL, id % 90), id % 5 FROM range(500)")
    shop.sql(
        "INSERT INTO @bought SELECT id, id % 30, date '2026-01-01' + CAST(id AS INT) FROM range(100)"
    )
    shop.sql(
        "INSERT INTO @buyers SELECT id, IF(id = 4, NULL, id % 4), concat('y', id) FROM range(25)"
    )
    shop.deploy(SALES, "".join(shop.source(name, declared) for name, declared in columns.items()))
    shop.advance()
    shop.check(SALES)
    for statements in (
        ("INSERT INTO @lands VALUES (0, 'NL'), (1, 'DE'), (2, 'FR')",),
        ("DELETE FROM @lines WHERE whose IN (3, 33)", "INSERT INTO @lines VALUES (900, 33, 1)"),
        ("DELETE FROM @bought WHERE id = 5", "DELETE FROM @lines WHERE line IN (5, 6)"),
        ("UPDATE @buyers SET land = 3 WHERE id IN (6, 7)", "INSERT INTO @lands VALUES (3, 'IT')"),
        ("UPDATE @bought SET buyer = 1 WHERE id IN (8, 9)", "DELETE FROM @buyers WHERE id = 2"),
        (
            "DELETE FROM @lands WHERE id = 1",
            "INSERT INTO @lines VALUES (901, NULL, NULL), (902, 8, 2)",
        ),
    ):
        shop.follow(statements, SALES)
    assert looked_up.keys() == columns.keys()
    assert max(looked_up["bought"]) < 100
    assert max(looked_up["buyers"]) < 25


SMALL = {
    # As TPC-H's q17: a line changes what all lines of its piece are compared with.
    "small": "SELECT l.line, p.name FROM @lines l, @pieces p, "
    "(SELECT piece, avg(whose) AS often FROM @lines GROUP BY piece) a "
    "WHERE p.piece = l.piece AND a.piece = l.piece AND p.kind = 3 AND l.whose < a.often",
}


PIECES = "piece INT, kind INT, name STRING"
CHANGES_OF_LINES = (
    ("DELETE FROM @lines WHERE line < 40",),
    ("INSERT INTO @lines SELECT id, id, CAST(id AS INT) FROM range(40)",),
    ("UPDATE @pieces SET kind = 3 WHERE piece = 4", "DELETE FROM @lines WHERE line = 4"),
)


def make_lines(shop: Shop, count: int) -> None:
    """So many lines of forty pieces, four of them of kind 3."""
    shop.make("lines", LINES, MERGE_ON_READ)
    shop.make("pieces", PIECES, MERGE_ON_READ)
    shop.sql(
        "INSERT INTO @lines SELECT id, id % 90, CAST(id * 7 % 40 AS INT) "
        f"FROM range(0, {count}, 1, 4)"
    )
    shop.sql(
        "INSERT INTO @pieces SELECT CAST(id AS INT), CAST(id % 10 AS INT), concat('p', id) "
        "FROM range(40)"
    )


def of_lines(shop: Shop, more: str = "") -> str:
    return shop.source("lines", LINES, more) + shop.source("pieces", PIECES)


def traces_with(shop: Shop, column: str) -> list[str]:
    """The traces that hold a column."""
    tables = shop.spark.catalog.listTables(f"lake.{shop.database}")
    names = [f"lake.{shop.database}.{one.name}" for one in tables]
    traces = [name for name in names if "._trace_" in name]
    return [name for name in traces if column in shop.spark.table(name).columns]


def keys_of_files(shop: Shop, trace: str, column: str) -> list[pa.ChunkedArray]:
    """What each file of a trace holds of a column."""
    return [pq.read_table(path).column(column) for path in files_of(shop, trace)]


def rows_of_groups(shop: Shop, trace: str) -> list[int]:
    """Of all files."""
    footers = map(pq.read_metadata, files_of(shop, trace))
    return [one.row_group(place).num_rows for one in footers for place in range(one.num_row_groups)]


def files_of(shop: Shop, trace: str) -> list[str]:
    files = shop.spark.sql(f"SELECT file_path FROM {trace}.files").collect()
    return [file[0].removeprefix("file:") for file in files]


def test_much_larger_tables_are_looked_up_by_what_smaller_ones_have_left(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the pieces that have changed few are of a kind: only their lines are read."""
    looked_up = noted_look_ups(monkeypatch)
    monkeypatch.setattr(touched, "FEW_STATE", 0)
    make_lines(shop, 2000)
    shop.deploy(SMALL, of_lines(shop))
    shop.advance()
    shop.check(SMALL)
    for statements in CHANGES_OF_LINES:
        shop.follow(statements, SMALL)
    # Of kind 3 are four pieces, and then five, with fifty lines each.
    assert looked_up["pieces"][0] == 40
    assert max(looked_up["lines"]) <= 250


@pytest.fixture(params=[False, True], ids=["here", "by Spark"])
def is_by_spark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Who works out a large first interval."""
    if request.param:
        monkeypatch.setattr(attempt, "can_be_worked_out", lambda *_: False)
    return bool(request.param)


def test_what_a_large_table_comes_to_is_written_in_the_order_of_keys(
    shop: Shop, is_by_spark: bool
) -> None:
    """The rows of each file of a trace, when the table is read as a whole; keys that stand near one
    another are looked up in one place then."""
    shop.make("notes", "about INT, note STRING", COPY_ON_WRITE)
    shop.sql(
        "INSERT INTO @notes SELECT CAST(id * 7919 % 250007 AS INT), concat('n', id % 9) "
        "FROM range(0, 260000, 1, 4)"
    )
    noted = {"noted": LOOKED_UP["noted"]}
    shop.deploy(noted, shop.source("notes", "about INT, note STRING"))
    shop.advance()
    [trace] = traces_with(shop, "about")
    held = keys_of_files(shop, trace, "about")
    assert (len(held) > 1) == is_by_spark
    assert min(map(len, held)) > 1000
    assert all(keys.equals(keys.take(pc.sort_indices(keys))) for keys in held)
    shop.follow(("DELETE FROM @notes WHERE about BETWEEN 1000 AND 1100",), noted)


def test_an_index_has_the_rows_in_another_order_than_their_table(
    shop: Shop, is_by_spark: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row groups do not overlap, and the table itself is not asked any more."""
    looked_up = noted_look_ups(monkeypatch)
    monkeypatch.setattr(touched, "FEW_STATE", 0)
    make_lines(shop, 260_000)
    shop.deploy(SMALL, of_lines(shop, ", 'index' = 'piece'"))
    shop.advance()
    [index] = traces_with(shop, "whose")
    held = keys_of_files(shop, index, "piece")
    assert len(held) == 1 + is_by_spark
    assert sum(map(len, held)) == 260_000
    assert all(keys.equals(keys.take(pc.sort_indices(keys))) for keys in held)
    ends = sorted((pc.min(keys).as_py(), pc.max(keys).as_py()) for keys in held)
    assert all(before[1] < after[0] for before, after in pairwise(ends))
    assert is_by_spark or all(rows <= 65_536 for rows in rows_of_groups(shop, index))
    more = ("INSERT INTO @lines VALUES (-1, NULL, 3), (-2, 1, NULL)",)
    for statements in (*CHANGES_OF_LINES, more):
        shop.follow(statements, SMALL)
    assert looked_up.keys() == {"pieces"}


def test_an_index_can_be_declared_and_left_out_later(shop: Shop) -> None:
    """It is made from the table, and nothing that is published changes by it."""
    make_lines(shop, 2000)
    shop.deploy(SMALL, of_lines(shop))
    shop.advance()
    shop.check(SMALL)
    assert traces_with(shop, "whose") == []
    changes = shop.spark.table(f"lake.{shop.database}.small_changes").count()
    shop.deploy(SMALL, of_lines(shop, ", 'index' = 'PIECE'"))
    shop.advance()
    [index] = traces_with(shop, "whose")
    assert shop.spark.table(index).count() == 2000
    assert shop.spark.table(f"lake.{shop.database}.small_changes").count() == changes
    shop.follow(
        ("DELETE FROM @lines WHERE line = 5", "INSERT INTO @lines VALUES (-1, 0, 3)"), SMALL
    )
    shop.deploy(SMALL, of_lines(shop))
    shop.advance()
    shop.follow(("DELETE FROM @lines WHERE line % 3 = 0",), SMALL)
    shop.follow(("INSERT INTO @lines VALUES (-2, 0, 4), (-3, 80, 4)",), SMALL)
    # What it held when it was left out is not what the table holds by now.
    shop.deploy(SMALL, of_lines(shop, ", 'index' = 'piece'"))
    shop.advance()
    shop.follow(("UPDATE @pieces SET kind = 3 WHERE piece = 4",), SMALL)
    shop.follow(("DELETE FROM @lines WHERE line % 5 = 0",), SMALL)
