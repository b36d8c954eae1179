"""The tables of the benchmarks' README are those of the figures that were saved."""

from __future__ import annotations

from pathlib import Path

import tpch_report

FOLDER = Path(__file__).parents[2] / "benchmarks"


def test_the_tpch_table_is_that_of_the_saved_figures() -> None:
    result = tpch_report.load(FOLDER / "tpch.json")
    assert tpch_report.table(result).rstrip() in (FOLDER / "README.md").read_text()
    assert all(one["equal"] for queries in result.values() for one in queries.values())
