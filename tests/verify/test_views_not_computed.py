"""Views that DuckDB can't compute: named with the reason, and the others are there."""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb
import pytest

from lockstep.adapters.verify_views import make_views
from lockstep.sql.duckdb_text import DuckDbView, duckdb_statements

sys.path.insert(0, str(Path(__file__).parents[1] / "sql"))
from sql_builders import project

VIEWS = """
CREATE MATERIALIZED VIEW plain AS SELECT a, any(b > 1) AS x FROM t GROUP BY a;
CREATE MATERIALIZED VIEW sounds AS SELECT a, soundex(c) AS s FROM t;
CREATE MATERIALIZED VIEW over_it AS SELECT s FROM sounds;
CREATE MATERIALIZED VIEW numbered AS FROM t |> AGGREGATE sum(b) AS s GROUP BY 1;
"""


def test_the_others_are_made() -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (a INT, b INT, c TEXT)")
        connection.execute("INSERT INTO t VALUES (1, 2, 'x'), (1, 0, 'y'), (3, 1, NULL)")
        unread = make_views(connection, duckdb_statements(project(VIEWS)))
        assert connection.execute("SELECT * FROM plain ORDER BY a").fetchall() == [
            (1, True),
            (3, False),
        ]
    assert sorted(unread) == ["numbered", "over_it", "sounds"]
    assert "soundex" in unread["sounds"]
    assert unread["over_it"] == "it reads sounds"
    assert "a number behind |> AGGREGATE" in unread["numbered"]


def test_what_is_wrong_with_rows_is_no_reason() -> None:
    with duckdb.connect() as connection:
        assert (
            make_views(connection, [DuckDbView("w", "SELECT CAST('x' AS INT) AS a", ("a",))]) == {}
        )
        with pytest.raises(duckdb.ConversionException):
            connection.execute("SELECT * FROM w")
