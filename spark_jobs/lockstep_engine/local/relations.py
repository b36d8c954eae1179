"""The deltas of a circuit whose rows this process has, or can have without a job."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructType

from lockstep.sql.circuit import Operator
from lockstep.sql.plans.nodes import Scan, Values
from lockstep.threads import in_parallel
from lockstep_engine.context import Context
from lockstep_engine.deltas import FIRST, STEP, WEIGHT
from lockstep_engine.local.formulas import written
from lockstep_engine.local.linear import Sifted, base, rows_through
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.types import column_types

__all__ = ["LocalRows"]


class LocalRows:
    """From those of the sources on. `operators` are the circuit's by ref, `by_pane` those that make
    windows of which nobody reads a time; `is_on`: where that can be."""

    def __init__(
        self,
        operators: Mapping[int, Operator],
        sources: Mapping[str, DataFrame | Rows],
        context: Context,
        by_pane: Collection[int] = (),
    ) -> None:
        self._operators = operators
        self._by_pane = by_pane
        self._sources = sources
        self._context = context
        self._made: dict[int, Sifted] = {}
        self._rows: dict[int, Rows] = {}
        self.is_on = context.is_here

    def add(self, ref: int, made: Sifted) -> None:
        """The delta of an operator was made here."""
        self._made[ref] = made

    def has(self, ref: int) -> bool:
        """Whether the rows are there, and not only what they can be made of."""
        return ref in self._rows or ref in self._made

    def can_have(self, ref: int) -> bool:
        """Whether the rows are there, or can be made of such."""
        return base(self._operators, ref, self._known, self._by_pane) is not None

    def of(self, ref: int) -> Rows | None:
        """The rows of an operator's delta, with `_weight` and `_step`; None where Spark has them."""
        if ref not in self._rows:
            rows = rows_through(self._operators, ref, self._known, self._context, self._by_pane)
            if rows is None:
                return None
            self._rows[ref] = rows
        return self._rows[ref]

    def make(self, refs: Iterable[int]) -> None:
        """All at the same time, for whoever asks for them one by one."""
        in_parallel(self.of, dict.fromkeys(refs))

    def types(self, ref: int) -> Mapping[str, DataType]:
        """The types of an operator's columns, of those of which they are known."""
        return column_types(self._context.spark, self._operators, ref, self._schema)

    def _schema(self, ref: int) -> StructType | None:
        """Of what is here, of what stands in the query, and of sources, whoever has them."""
        if (made := self._known(ref)) is not None:
            return made.rows.schema
        node = self._operators[ref].node
        if isinstance(node, Values):
            rows = written(node)
            return None if rows is None else rows.schema
        return self._sources[node.source].schema if isinstance(node, Scan) else None

    def _known(self, ref: int) -> Sifted | None:
        if ref in self._rows:
            return Sifted(self._rows[ref])
        node = self._operators[ref].node
        if self.is_on and isinstance(node, Scan):
            source = self._sources[node.source]
            if isinstance(source, Rows):
                return Sifted(source.select([*node.columns, WEIGHT, STEP]))
        if self.is_on and isinstance(node, Values) and self._context.is_first:
            rows = written(node)
            return None if rows is None else Sifted(rows.with_number(STEP, FIRST))
        return self._made.get(ref)
