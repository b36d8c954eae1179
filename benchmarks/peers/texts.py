"""The tables and queries of Nexmark as the example states them, and what an engine is asked instead."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["PROCESSED", "columns", "own_text", "query"]

EXAMPLE = Path(__file__).parents[2] / "examples" / "nexmark" / "transformations"

# What the broker's record does not hold: when a bid was processed.
PROCESSED = "processedAt"


def columns(table: str) -> str:
    """The columns of a source that its records hold, as Spark's DDL."""
    text = (EXAMPLE / f"{table}.sql").read_text("utf-8")
    found = re.search(r"CREATE TABLE \w+ \((.*?)\) USING", text, re.DOTALL)
    assert found is not None, f"{table}.sql declares a table"
    declared = [column.strip() for column in found.group(1).split(",\n")]
    return ", ".join(column for column in declared if not column.startswith(PROCESSED))


def query(name: str) -> str:
    """The query of a view, in Spark's SQL."""
    text = (EXAMPLE / f"{name}.sql").read_text("utf-8")
    _, _, select = text.partition(f"CREATE MATERIALIZED VIEW {name} AS\n")
    return select.rstrip().removesuffix(";")


def own_text(engine: str, name: str) -> str | None:
    """The query as this engine takes it, where that is not the text of the example."""
    path = Path(__file__).with_name(engine) / f"{name}.sql"
    return path.read_text("utf-8").rstrip().removesuffix(";") if path.exists() else None
