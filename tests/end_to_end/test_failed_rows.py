"""Rows for which an expression of a view fails: they go to a table, or stop the interval."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lockstep.adapters.overview import overview
from lockstep.adapters.verify import verify
from lockstep.errors import FailedRow
from lockstep.ids import FAILED_ROWS_TABLE

sys.path.insert(0, str(Path(__file__).parent))
from followed_shop import MERGE_ON_READ, Shop

pytestmark = pytest.mark.spark

QUERIES = {
    "price": "SELECT id, amount / pieces AS each FROM @sales WHERE CAST(code AS INT) > 0",
    "amounts": "SELECT code, sum(amount) AS amount FROM @sales GROUP BY code",
    "dear": "SELECT code, max(amount / pieces) AS most FROM @sales GROUP BY code",
    "above": (
        "SELECT s.id, l.id AS least FROM @sales s JOIN @limits l "
        "ON s.code = l.code AND s.amount / s.pieces > l.least / l.per"
    ),
    "parts": "SELECT id, part FROM @sales LATERAL VIEW explode(sequence(1, 12 DIV pieces)) t AS part",
}
SOUND = {
    "price": (
        "SELECT id, amount / pieces AS each FROM @sales WHERE pieces <> 0 AND TRY_CAST(code AS INT) > 0"
    ),
    "amounts": QUERIES["amounts"],
    "dear": QUERIES["dear"].replace("@sales", "@sales WHERE pieces <> 0"),
    "above": (
        "SELECT s.id, l.id AS least FROM @sales s JOIN @limits l "
        "ON s.code = l.code AND try_divide(s.amount, s.pieces) > try_divide(l.least, l.per)"
    ),
    "parts": QUERIES["parts"].replace("@sales", "(SELECT * FROM @sales WHERE pieces <> 0)"),
}


@pytest.fixture
def shop(shop: Shop) -> Shop:
    shop.make("sales", "id INT, amount INT, pieces INT, code STRING", MERGE_ON_READ)
    shop.make("limits", "id INT, code STRING, least INT, per INT", MERGE_ON_READ)
    return shop


SOURCES = ("id INT, amount INT, pieces INT, code STRING", "id INT, code STRING, least INT, per INT")


def deploy(shop: Shop, *settings: str) -> None:
    sources = shop.source("sales", SOURCES[0]) + shop.source("limits", SOURCES[1])
    shop.deploy(QUERIES, sources, settings=settings)


def failed(shop: Shop) -> dict[tuple[str, str, object], int]:
    """By views, expression and the row's id (or what else was read of it), the sum of the weights."""
    found: dict[tuple[str, str, object], int] = {}
    for row in shop.spark.table(shop.view(FAILED_ROWS_TABLE)).collect():
        read = json.loads(row.row)
        key = (
            " ".join(row.views),
            row.expression.replace("`", ""),
            read.get("id", read.get("code")),
        )
        found[key] = found.get(key, 0) + row["_weight"]
    return {key: weight for key, weight in found.items() if weight}


def test_rows_that_fail_go_to_a_table_and_come_back_when_they_are_mended(shop: Shop) -> None:
    deploy(shop)
    shop.sql("INSERT INTO @sales VALUES (1, 12, 3, '4'), (2, 8, 2, '4'), (3, 6, 6, '5')")
    shop.sql("INSERT INTO @limits VALUES (1, '4', 3, 1), (2, '5', 8, 2)")
    shop.advance()
    shop.check(SOUND)
    assert not shop.spark.catalog.tableExists(shop.view(FAILED_ROWS_TABLE))

    shop.sql("INSERT INTO @sales VALUES (4, 9, 0, '4'), (5, 9, 3, 'no'), (6, 90, 3, '4')")
    shop.advance()
    assert any("an expression fails for a row" in line for line in shop.said)
    shop.check(SOUND)
    assert failed(shop) == {
        ("price", "CAST(code AS INT)", 5): 1,
        ("price", "amount / pieces", 4): 1,
        ("parts", "12 DIV pieces", 4): 1,
        ("dear", "amount / pieces", "4"): 1,
        ("above", "amount / pieces", 4): 1,
    }

    checks = {one.view: one for one in verify(shop.database, shop.settings, shop.said.append)}
    assert {view: one.equal for view, one in checks.items()} == {
        **dict.fromkeys(QUERIES, None),
        "amounts": True,
    }
    assert checks["price"].failed_rows == 2
    shown = overview(shop.database, shop.settings)
    assert shown.error_records == {"sales": 0, "limits": 0, FAILED_ROWS_TABLE: 5}

    # What has failed before is read again, beside other changes: nothing is started twice now.
    shop.sql("INSERT INTO @limits VALUES (3, '4', 1, 0), (4, '4', 1, 1)")
    shop.advance()
    assert not any("an expression fails for a row" in line for line in shop.said)
    shop.check(SOUND)

    shop.sql("UPDATE @sales SET pieces = 1 WHERE id = 4")
    shop.sql("DELETE FROM @sales WHERE id = 5")
    shop.sql("UPDATE @limits SET per = 1 WHERE id = 3")
    shop.advance()
    shop.check(SOUND)
    assert failed(shop) == {}
    assert all(one.equal for one in verify(shop.database, shop.settings, shop.said.append))


def test_a_row_that_fails_in_a_recursion_is_noted_once(shop: Shop) -> None:
    query = (
        "WITH RECURSIVE down (id, share) AS (SELECT id, amount FROM @sales WHERE id = 1 UNION ALL "
        "SELECT s.id, CAST(d.share / s.pieces AS INT) FROM down d JOIN @sales s ON s.id = d.id + 1) "
        "SELECT * FROM down"
    )

    def shown() -> list[tuple[int, int]]:
        return sorted(map(tuple, shop.spark.table(shop.view("down")).collect()))

    shop.deploy({"down": query}, shop.source("sales", SOURCES[0]))
    shop.sql(
        "INSERT INTO @sales VALUES (1, 100, 1, ''), (2, 0, 2, ''), (3, 0, 0, ''), (4, 0, 5, '')"
    )
    shop.advance()
    assert shown() == [(1, 100), (2, 50)]
    assert list(failed(shop).values()) == [1]
    shop.sql("UPDATE @sales SET pieces = 2 WHERE id = 3")
    shop.advance()
    assert shown() == [(1, 100), (2, 50), (3, 25), (4, 5)]
    assert failed(shop) == {}
    shop.sql("UPDATE @sales SET pieces = 0 WHERE id IN (2, 4)")
    shop.advance()
    assert shown() == [(1, 100)]
    assert list(failed(shop).values()) == [1]


def test_a_row_that_fails_in_a_way_without_a_form_is_named(shop: Shop) -> None:
    query = "SELECT id, array(10, 20)[pieces] AS priced FROM @sales WHERE amount / pieces > 0"
    shop.deploy({"priced": query}, shop.source("sales", SOURCES[0]))
    values = ", ".join(f"({id_}, 5, 1, '{id_}')" for id_ in range(300) if id_ != 222)
    shop.sql(f"INSERT INTO @sales VALUES {values}, (222, 7, 2, 'here'), (500, 1, 0, 'fails')")
    with pytest.raises(FailedRow) as caught:
        shop.advance()
    assert "step 0" in caught.value.message
    assert "INVALID_ARRAY_INDEX" in caught.value.found
    assert '"id":222' in caught.value.found


def test_a_row_that_fails_stops_the_interval_where_the_project_says_so(shop: Shop) -> None:
    deploy(shop, 'lockstep.on_error: "fail"')
    shop.sql("INSERT INTO @sales VALUES (1, 12, 3, '4'), (2, 8, 2, 'four')")
    with pytest.raises(FailedRow) as caught:
        shop.advance()
    assert "price" in caught.value.message
    assert "CAST(`code` AS INT)" in caught.value.expected
    assert '"code":"four"' in caught.value.found
    shop.sql("UPDATE @sales SET code = '4' WHERE id = 2")
    with pytest.raises(FailedRow):
        shop.advance()  # the interval is the one that was planned


def test_a_correlation_with_what_does_not_vary_fails_for_its_group(shop: Shop) -> None:
    # rounded: a correlation comes from exact sums here, and in Spark from what it adds in its order
    query = (
        "SELECT code, round(corr(amount, pieces), 9) AS k, round(stddev(amount), 9) AS s "
        "FROM @sales GROUP BY code"
    )
    shop.deploy({"together": query}, shop.source("sales", SOURCES[0]))
    shop.sql(
        "INSERT INTO @sales VALUES (1, 1, 7, 'a'), (2, 3, 9, 'a'), (3, 1, 7, 'b'), (4, 2, 7, 'b')"
    )
    shop.advance()
    [(code, together, _)] = shop.spark.table(shop.view("together")).collect()
    assert (code, together) == ("a", 1)
    assert list(failed(shop).values()) == [1]
    shop.sql("INSERT INTO @sales VALUES (5, 5, 8, 'b')")
    shop.advance()
    shop.check({"together": query})
    assert failed(shop) == {}


RATES = (
    "SELECT l.id, g.rate FROM @limits l JOIN (SELECT code, 12 / (count(*) - 3) AS rate FROM @sales "
    "GROUP BY code) g ON l.code = g.code"
)
SOUND_RATES = RATES.replace("12 / (count(*) - 3)", "try_divide(12, count(*) - 3)") + (
    " WHERE g.rate IS NOT NULL"
)


@pytest.mark.parametrize("is_first", [True, False], ids=["at first", "later"])
def test_a_row_is_known_to_fail_when_it_comes_whoever_meets_it(shop: Shop, is_first: bool) -> None:
    """The join keeps no row of the groups: it reads them off the aggregate's own trace."""
    sources = shop.source("sales", SOURCES[0]) + shop.source("limits", SOURCES[1])
    shop.deploy({"rates": RATES}, sources)
    if not is_first:
        shop.sql("INSERT INTO @sales VALUES (9, 1, 1, '5')")
        shop.advance()
    shop.sql("INSERT INTO @sales VALUES (1, 1, 1, '4'), (2, 1, 1, '4'), (3, 1, 1, '4')")
    shop.advance()
    assert sum(failed(shop).values()) == 1
    shop.sql("INSERT INTO @limits VALUES (1, '4', 3, 1), (2, '5', 8, 2)")
    shop.advance()
    shop.check({"rates": SOUND_RATES})
    assert sum(failed(shop).values()) == 1
    shop.sql("INSERT INTO @sales VALUES (4, 1, 1, '4')")
    shop.advance()
    shop.check({"rates": SOUND_RATES})
    assert failed(shop) == {}
