"""The circuit on Spark: from the deltas of the sources to what is appended to every table.

Nothing runs here: every frame is lazy. What is read more than once is marked to be kept, so that
Kafka is read once an interval, and an operator's change is computed once for its consumer, its trace
and its outbox.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lockstep.sql.circuit import Circuit, Operator
from lockstep.sql.nodes import Aggregate, Filter, Join, Scan
from lockstep_engine.context import Context
from lockstep_engine.deltas import STEP, WEIGHT, columns_of, consolidate, quoted
from lockstep_engine.operators import evaluate

__all__ = ["Evaluated", "evaluate_circuit"]


@dataclass
class Evaluated:
    """What an interval appends: `appends` to traces, `outboxes` by outbox table, and the frames that
    were marked to be kept, to be released when all appends are done."""

    appends: dict[str, DataFrame] = field(default_factory=dict)
    outboxes: dict[str, DataFrame] = field(default_factory=dict)
    kept: list[DataFrame] = field(default_factory=list)

    def release(self) -> None:
        """Give the memory of kept frames back."""
        for frame in self.kept:
            frame.unpersist()


def _reads(circuit: Circuit) -> Mapping[int, int]:
    """How often each operator's delta is read: a stateful consumer reads it for its output and for
    its trace, an outbox once."""
    reads = {operator.ref: 0 for operator in circuit.operators}
    for operator in circuit.operators:
        for ref in operator.inputs:
            reads[ref] += 3 if isinstance(operator.node, Join | Aggregate) else 1
    for outbox in circuit.outboxes:
        reads[outbox.ref] += 1
    return reads


def evaluate_circuit(
    circuit: Circuit,
    sources: Mapping[str, DataFrame],
    read_trace: Callable[[str], DataFrame | None],
    context: Context,
) -> Evaluated:
    """Build the frames of one interval.

    `sources` maps a source to its decoded delta (at least the columns that any scan wants, `_weight`,
    `_step`), already kept where it is read twice. `read_trace` gives a trace at the version opened,
    None where it is new.
    """
    result = Evaluated()
    deltas: dict[int, DataFrame] = {}
    reads = _reads(circuit)
    by_ref = _by_ref(circuit)
    for operator in circuit.operators:
        if isinstance(operator.node, Scan):
            deltas[operator.ref] = _scan(operator.node, sources)
            continue
        evaluation = evaluate(
            operator,
            tuple(deltas[ref] for ref in operator.inputs),
            {trace.table: read_trace(trace.table) for trace in operator.traces},
            context,
        )
        delta = evaluation.delta
        if reads[operator.ref] > 1 and _is_worth_keeping(operator, by_ref):
            delta = delta.persist()
            result.kept.append(delta)
        deltas[operator.ref] = delta
        # Equal traces of two operators hold equal rows: they are written once.
        for table, rows in evaluation.appends.items():
            result.appends.setdefault(table, rows)
    for outbox in circuit.outboxes:
        columns = by_ref[outbox.ref].node.columns
        delta = deltas[outbox.ref]
        if not _is_consolidated(by_ref[outbox.ref], by_ref):
            delta = consolidate(delta, columns)
        result.outboxes[outbox.table] = delta.select(
            *(
                F.col(quoted(inner)).alias(outer)
                for inner, outer in zip(columns, outbox.columns, strict=True)
            ),
            WEIGHT,
            STEP,
        )
    return result


def _by_ref(circuit: Circuit) -> Mapping[int, Operator]:
    return {operator.ref: operator for operator in circuit.operators}


def _is_consolidated(operator: Operator, by_ref: Mapping[int, Operator]) -> bool:
    """True where nothing in the delta can cancel: append-only rows (equal ones may stand as several
    rows, which is the same Z-set without a shuffle), and the output of an aggregate."""
    if operator.append_only or isinstance(operator.node, Aggregate):
        return True
    if isinstance(operator.node, Filter):
        return _is_consolidated(by_ref[operator.inputs[0]], by_ref)
    return False


def _scan(node: Scan, sources: Mapping[str, DataFrame]) -> DataFrame:
    return sources[node.source].select(*columns_of((*node.columns, WEIGHT, STEP)))


def _is_worth_keeping(operator: Operator, by_ref: Mapping[int, Operator]) -> bool:
    """Projections and filters straight over a kept source are cheaper to redo than to keep."""

    def is_light(ref: int) -> bool:
        node = by_ref[ref].node
        if isinstance(node, Scan):
            return True
        if isinstance(node, Join | Aggregate):
            return False
        return all(is_light(below) for below in by_ref[ref].inputs)

    return not is_light(operator.ref)
