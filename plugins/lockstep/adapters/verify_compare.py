"""Compares two relations as multisets: what a view shows with what it should show.

Rows are equal where all columns are (null equals null, NaN equals NaN, and as many copies count as
there are). Columns of doubles that come from sums may differ by RELATIVE_TOLERANCE, for two engines
may add doubles in another order; such a pair must agree in all other columns.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from lockstep.sql.plans.nodes import (
    Aggregate,
    AggregateFunction,
    Node,
    Project,
    Recursive,
    Scan,
    UnionAll,
)

__all__ = ["RELATIVE_TOLERANCE", "Comparison", "compare", "inexact_columns"]

RELATIVE_TOLERANCE = 1e-9
SAMPLE_ROWS = 5

_Row = tuple[object, ...]


@dataclass(frozen=True)
class Comparison:
    """Counts of rows; `sample` shows a few that differ, as text."""

    rows_published: int
    rows_expected: int
    missing: int
    unexpected: int
    sample: tuple[str, ...]


def inexact_columns(node: Node) -> frozenset[str]:
    """The columns of a plan that come, by whatever way, from a sum, or what may have one in it.

    Only where such a column also turns out to be a double is it compared with a tolerance.
    """
    below = [inexact_columns(child) for child in node.inputs]
    match node:
        case Scan():
            return frozenset()
        case Project(outputs=outputs):
            return frozenset(o.name for o in outputs if below[0] & set(o.expression.references))
        case Aggregate(keys=keys, aggregates=aggregates):
            # What is collected may be a deviation.
            sums = (AggregateFunction.AVG, AggregateFunction.SUM, AggregateFunction.COLLECTED)
            return frozenset(key for key in keys if key in below[0]) | frozenset(
                call.name
                for call in aggregates
                if call.function in sums or (call.function.is_extreme and call.argument in below[0])
            )
        case UnionAll(branches=branches):
            return frozenset().union(*below) & frozenset(branches[0].columns)
        case Recursive():
            # a step may carry any column of what it reads into any of its own
            is_any = any(below) or inexact_columns(node.step)
            return frozenset(node.columns) if is_any else frozenset()
        case _:
            return frozenset().union(*below)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _columns(connection: duckdb.DuckDBPyConnection, relation: str) -> dict[str, str]:
    """Column names and DuckDB types of a relation, in order."""
    rows = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    return {str(row[0]): str(row[1]) for row in rows}


def _count(connection: duckdb.DuckDBPyConnection, relation: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM {relation}").fetchone()
    assert row is not None
    return int(row[0])


def compare(
    connection: duckdb.DuckDBPyConnection,
    published: str,
    expected: str,
    inexact: frozenset[str],
) -> Comparison:
    """Compare relation `published` with relation `expected`, both known to the connection.

    Columns are matched by name, in any case; `inexact` are lower-case names. Where the columns are
    not the same ones, every row counts as different.
    """
    have, want = _columns(connection, published), _columns(connection, expected)
    rows_published, rows_expected = _count(connection, published), _count(connection, expected)
    places = {name.lower(): name for name in have}
    if sorted(places) != sorted(name.lower() for name in want):
        sample = f"columns are {', '.join(have)}; expected {', '.join(want)}"
        return Comparison(rows_published, rows_expected, rows_expected, rows_published, (sample,))
    names = [name.lower() for name in want]
    left = ", ".join(_quoted(name) for name in want)
    right = ", ".join(_quoted(places[name]) for name in names)
    difference = "SELECT {} FROM {} EXCEPT ALL SELECT {} FROM {}"
    missing = connection.execute(difference.format(left, expected, right, published)).fetchall()
    unexpected = connection.execute(difference.format(right, published, left, expected)).fetchall()
    tolerant = [
        place
        for place, (name, type_) in enumerate(want.items())
        if name.lower() in inexact and type_ in ("DOUBLE", "FLOAT")
    ]
    if tolerant and missing and unexpected:
        missing, unexpected = _without_near_pairs(missing, unexpected, tolerant)
    return Comparison(
        rows_published,
        rows_expected,
        len(missing),
        len(unexpected),
        _sample("missing", names, missing) + _sample("unexpected", names, unexpected),
    )


def _without_near_pairs(
    missing: Sequence[_Row], unexpected: Sequence[_Row], tolerant: Sequence[int]
) -> tuple[list[_Row], list[_Row]]:
    """What is left of both once rows that differ within the tolerance are paired off."""

    def exact_part(row: _Row) -> str:
        return repr([value for place, value in enumerate(row) if place not in tolerant])

    candidates: dict[str, list[_Row]] = defaultdict(list)
    for row in unexpected:
        candidates[exact_part(row)].append(row)
    still_missing = []
    for row in missing:
        near = candidates[exact_part(row)]
        partner = next((other for other in near if _near(row, other, tolerant)), None)
        if partner is None:
            still_missing.append(row)
        else:
            near.remove(partner)
    return still_missing, [row for rows in candidates.values() for row in rows]


def _near(one: _Row, other: _Row, places: Sequence[int]) -> bool:
    return all(_same_number(one[place], other[place]) for place in places)


def _same_number(one: object, other: object) -> bool:
    if not isinstance(one, float) or not isinstance(other, float):
        return one is None and other is None
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return math.isclose(one, other, rel_tol=RELATIVE_TOLERANCE)


def _sample(kind: str, names: Sequence[str], rows: Sequence[_Row]) -> tuple[str, ...]:
    return tuple(
        f"{kind}: " + ", ".join(f"{name}={value}" for name, value in zip(names, row, strict=True))
        for row in rows[:SAMPLE_ROWS]
    )
