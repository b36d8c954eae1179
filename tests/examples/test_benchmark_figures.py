"""The tables of the benchmarks' README are those of the figures that were saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aims_report
import layouts
import nexmark_aims
import nexmark_report
import pytest
import scaling_report
import tpch_report

FOLDER = Path(__file__).parents[2] / "benchmarks"


def saved(name: str) -> Any:
    return json.loads((FOLDER / name).read_text("utf-8"))


def readme() -> str:
    return (FOLDER / "README.md").read_text("utf-8")


def test_the_recovery_table_is_that_of_the_saved_run() -> None:
    result = saved("torture.json")
    assert (result["lost"], result["duplicated"], result["unexpected"], result["failed"]) == (
        0,
        0,
        0,
        "",
    )
    assert (
        sum(result["points"].values())
        >= result["runs"] - result["recovery_seconds"]["maintenance kill"]["count"]
    )
    for strike, one in result["recovery_seconds"].items():
        assert f"| {strike} | {one['count']} | {one['median']} | {one['max']} |" in readme()


def test_the_table_of_aims_is_that_of_the_saved_run() -> None:
    assert aims_report.table(saved("aims.json")).rstrip() in readme()


def test_the_table_of_protection_is_that_of_the_saved_run() -> None:
    result = saved("protection.json")
    for orders, size in (("100", "small"), ("50,000", "large")):
        for part, ratio in result[size]["ratio"].items():
            with_, without = (
                result[size][key][part] for key in ("with_seconds", "without_seconds")
            )
            assert f"| {orders} | {part} | {with_:.2f} | {without:.2f} | {ratio:.2f} |" in readme()


def test_the_tpch_table_is_that_of_the_saved_figures() -> None:
    result = tpch_report.load(FOLDER / "tpch.json")
    assert tpch_report.table(result).rstrip() in readme()
    assert all(one["equal"] for queries in result.values() for one in queries.values())


def test_the_table_of_the_barrier_is_that_of_the_saved_run() -> None:
    result = saved("barrier.json")
    ways = [way for way in result if way != "cpus"]
    assert len(ways) == 4
    for way in ways:
        for workers, one in result[way].items():
            figures = f"{one['rounds']} | {one['median_ms']:,.2f} | {one['p99_ms']:,.2f}"
            assert f"| {way} | {workers} | {figures} |" in readme()


def test_the_table_of_layouts_is_that_of_the_saved_figures() -> None:
    result = saved("layouts.json")
    assert layouts.table(result).rstrip() in readme()
    assert layouts.upgrade_table(result).rstrip() in readme()
    for name, most in (("dynamic", 1.10), ("fixed", 1.07)):
        steps = result[name]
        assert len(steps) == layouts.MOST_WORKERS
        # Keys do not lie evenly: a thousandth of them more or less, of the shards none.
        assert all(abs(one["moved"] - one["least"]) < 0.002 for one in steps)
        assert round(max(one["most_loaded"] for one in steps), 2) == most


def test_the_tables_of_scaling_are_those_of_the_saved_run() -> None:
    result = saved("scaling.json")
    assert scaling_report.pause_table(result["pause"]).rstrip() in readme()
    growth = result["growth"]
    assert scaling_report.measured_table(growth).rstrip() in readme()
    assert scaling_report.simulated_table(growth).rstrip() in readme()
    again = growth["simulated"]["1"]["as_many"]
    assert abs(again / growth["logged"]["1"]["seconds"] - 1) < 0.02, "one core as it was"


@pytest.mark.parametrize(
    "name",
    ["results.json", "results/nexmark-decoded-10000000.json", "results/nexmark-one-core.json"],
)
def test_the_tables_of_nexmark_are_those_of_the_saved_figures(name: str) -> None:
    result = saved(name)
    assert nexmark_report.table(result).rstrip() in readme()
    assert nexmark_report.aims_table(result).rstrip() in readme()
    aims = nexmark_aims.aims(result["events_per_second"])
    assert aims == {aim: result["aims"][aim] for aim in aims}
    for query, by_engine in result["events_per_second"].items():
        for engine, rate in by_engine.items():
            entry = result["nexmark"]["queries"][query][engine]
            assert (rate is None) == bool(entry["refused"] or entry["failed"])
            assert not entry["checked"].startswith("WRONG")


def test_figures_of_one_engine_are_a_table_without_aims() -> None:
    found = nexmark_report.tables({"events_per_second": {"q0": {"lockstep": 951_000}}})
    assert "| q0 | 951 |" in found
    assert "aim" not in found
