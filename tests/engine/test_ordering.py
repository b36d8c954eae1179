"""In which order many rows are written to which trace."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import IntegerType, LongType, StructType

from lockstep.errors import Position
from lockstep.sql.circuit import (
    Circuit,
    Project,
    SourceColumn,
    SourceTable,
    TraceKind,
    TraceSpec,
    View,
)
from lockstep.sql.incremental import build_circuit
from lockstep.sql.plans.nodes import Aggregate, Equality, MultiwayJoin, Node, Scan
from lockstep_engine.local.rows import Rows
from lockstep_engine.ordering import few_in_order, files_of, in_order

AT = Position("views.sql")


class Noted:
    """A frame that notes what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def noted(*arguments: Any) -> Noted:
            self.asked.append((name, *arguments))
            return self

        return noted


def source(name: str, **options: str) -> SourceTable:
    columns = tuple(SourceColumn(f"{name}_{one}", "INT") for one in "ab")
    is_table = "table" in options
    return SourceTable(name, columns, "iceberg" if is_table else "kafka", options, AT)


def circuit_of(*sources: SourceTable) -> Circuit:
    """A count by the first one's key, of a join of two."""
    scans = tuple(Scan(one.name, tuple(c.key for c in one.columns)) for one in sources)
    left, right = (one.columns[0] for one in scans)
    joined: Node = MultiwayJoin(scans, (Equality(left, right, False),), ())
    plan = Aggregate(joined, (left,), ())
    view = View("v", plan, plan.columns, True, "", AT)
    return build_circuit(Project("p", "lake", "p", {}, sources, (view,), ()))


def asked(circuit: Circuit, tables: list[str], records: int = 1_000_000) -> dict[str, list[Any]]:
    """By the first column of each trace's key, what is asked of its rows."""
    frames = {trace.table: Noted() for trace in circuit.traces}
    in_order(
        circuit, {table: cast(DataFrame, frame) for table, frame in frames.items()}, tables, records
    )
    keys = {trace.table: (trace.key[0], trace.kind.value) for trace in circuit.traces}
    return {f"{kind} by {key}": frames[table].asked for table, (key, kind) in keys.items()}


def test_what_follows_from_tables_alone_is_sorted_within_its_files() -> None:
    both = circuit_of(source("l", table="o.l"), source("r", table="o.r"))
    assert asked(both, ["l", "r"]) == {
        "accumulators by l_a": [("sortWithinPartitions", "`l_a`")],
    }
    mixed = circuit_of(source("l", subscribe="l"), source("r", table="o.r"))
    assert asked(mixed, ["r"]) == {"accumulators by l_a": [], "rows by l_a": []}


@pytest.mark.parametrize(("records", "files"), [(1_000_000, 2), (9_000_000, 3)])
def test_an_index_is_in_the_order_of_its_key_as_a_whole(records: int, files: int) -> None:
    """Whatever it is joined with, and also where the past is computed and other sources are not read."""
    mixed = circuit_of(source("l", subscribe="l"), source("r", table="o.r", index="r_a"))
    ordered = [("repartitionByRange", files, "`r_a`"), ("sortWithinPartitions", "`r_a`")]
    for tables in (["r"], []):
        assert asked(mixed, tables, records)["rows by r_a"] == ordered


def test_few_rows_that_are_here_are_sorted_by_key_whatever_they_come_from() -> None:
    circuit = circuit_of(source("l", subscribe="l"), source("r", table="o.r"))
    by_rows, by_spark = [trace.table for trace in circuit.traces if trace.key == ("l_a",)]
    schema = StructType().add("l_a", IntegerType()).add("_weight", LongType())
    table = pa.table({"l_a": pa.array([3, 1, 3], pa.int32()), "_weight": [-1, 1, 1]})
    frame, outbox = cast(DataFrame, Noted()), Rows(table, schema)
    found = few_in_order(circuit, {by_rows: outbox, by_spark: frame, "v_changes": outbox})
    assert found[by_spark] is frame
    assert found["v_changes"] is outbox
    ordered = found[by_rows]
    assert isinstance(ordered, Rows)
    assert ordered.table.to_pylist() == [
        {"l_a": 1, "_weight": 1},
        {"l_a": 3, "_weight": -1},
        {"l_a": 3, "_weight": 1},
    ]


def test_a_key_may_have_any_name() -> None:
    trace = TraceSpec("_trace_a", TraceKind.ROWS, (".a", "[b"), ())
    circuit = cast(Circuit, SimpleNamespace(traces=(trace,)))
    rows = Rows.of(pa.table({".a": [2, 1, 1], "[b": ["x", "z", "y"]}))
    [found] = few_in_order(circuit, {"_trace_a": rows}).values()
    assert isinstance(found, Rows)
    assert found.table.to_pydict() == {".a": [1, 1, 2], "[b": ["y", "z", "x"]}


def test_how_many_files_hold_how_many_rows() -> None:
    assert [files_of(rows) for rows in (0, 1, 4_000_000, 4_000_001)] == [1, 1, 1, 2]


def test_rows_that_are_here_are_sorted_by_what_has_an_order() -> None:
    """A window, a struct, has none for Arrow: rows stay as they are within the rest."""
    circuit = circuit_of(source("l", table="o.l"), source("r", table="o.r"))
    [trace] = [one for one in circuit.traces if one.key == ("l_a",)]
    schema = StructType().add("l_a", IntegerType()).add("n", LongType())
    rows = Rows(pa.table({"l_a": pa.array([3, None, 1], pa.int32()), "n": [1, 2, 3]}), schema)
    [found] = in_order(circuit, {trace.table: rows}, ["l", "r"], 3).values()
    assert isinstance(found, Rows)
    assert found.table.column("n").to_pylist() == [3, 1, 2]
    window = pa.array([{"start": 2}, {"start": 1}, {"start": 0}])
    windows = Rows(pa.table({"l_a": window, "n": [1, 2, 3]}), schema)
    [found] = in_order(circuit, {trace.table: windows}, ["l", "r"], 3).values()
    assert found is windows
