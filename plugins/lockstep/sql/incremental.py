"""Plans to a circuit: shared operators with their traces, append-only marks and costs.

Every operator maps a delta of many steps to a delta of many steps. What it has to remember for that
is its traces: a join its inputs, an aggregate the accumulators of each key and, where rows can
be taken back, the values that min and max choose from. Rows of a followed table are remembered
already: by the table, unless it is declared by which columns they are to be kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from lockstep.sql.canonical import calls_of, canonical, digest, joined_step
from lockstep.sql.circuit import (
    Circuit,
    Cost,
    Operator,
    OutboxSpec,
    Past,
    Project,
    SourceTable,
    TraceKind,
    TraceSpec,
)
from lockstep.sql.plans.columns import origin
from lockstep.sql.plans.exact_types import NARROW, declares_exact, exact_type
from lockstep.sql.plans.extremes_by import extremes_by
from lockstep.sql.plans.lifetimes import Lifetime, key_lifetime, lifetimes, session_lifetime
from lockstep.sql.plans.loops import leaf_beside
from lockstep.sql.plans.moments import moments
from lockstep.sql.plans.multiway import join_trees, path
from lockstep.sql.plans.nodes import (
    BEFORE,
    Aggregate,
    AggregateFunction,
    Expression,
    Filter,
    MultiwayJoin,
    Node,
    Recursive,
    Scan,
    SessionGroups,
    Temporal,
    UnionAll,
    Upsert,
    Values,
    Watermark,
    Weigh,
    Window,
)
from lockstep.sql.plans.nodes import Project as Projection
from lockstep.sql.plans.recursion import level_of
from lockstep.sql.plans.sessions import session_groups
from lockstep.sql.sources.source_layout import layout_of
from lockstep.sql.sources.table_options import index_of

__all__ = ["build_circuit"]

_WITHOUT_ORDER = re.compile(r"\b(map|variant|interval|geography|geometry)\b", re.IGNORECASE)


@lru_cache(maxsize=16)
def build_circuit(project: Project) -> Circuit:
    """The circuit of all published views; equal sub-plans are one operator, inputs stand first. Each
    stage of an interval asks for the same one."""
    builder = _Builder({source.name: source for source in project.sources})
    published = [view for view in project.views if view.published]
    outputs = [builder.add(plan) for plan in join_trees([view.plan for view in published])]
    outboxes = tuple(
        OutboxSpec(view.name, ref, view.columns, view.audit)
        for view, ref in zip(published, outputs, strict=True)
    )
    return Circuit(builder.operators(outputs), outboxes)


def _cost(node: Node) -> Cost:
    """Operators look up only the keys of the change; a product has no key, nor has a window over all
    rows, nor an aggregate over all rows that is computed anew."""
    if not isinstance(node, Recursive):
        return Cost.CHANGE if _is_keyed(node, frozenset()) else Cost.STATE
    within = _within(joined_step(node))
    are_keyed = all(_is_keyed(one, frozenset(map(level_of, one.inputs))) for one in within)
    return Cost.CHANGE if are_keyed else Cost.STATE


def _is_keyed(node: Node, levels: Collection[str | None]) -> bool:
    """Whether there is a key to look up by, beside that of the levels of a recursion."""
    match node:
        case MultiwayJoin():
            hops = (hop for start in range(len(node.inputs)) for hop in path(node, start)[1:])
            return all(any(e.left not in levels for e in hop.equalities) for hop in hops)
        case Window():
            return not set(node.partition) <= set(levels)
        case Aggregate() if node.collected:
            return not set(node.keys) <= set(levels)
        case _:
            return True


def _takes_back(node: Node) -> bool:
    """Whether rows go where others come: a group that is there stays, but its aggregates change."""
    return isinstance(node, Weigh | Window | SessionGroups) or (
        isinstance(node, Aggregate) and bool(node.aggregates)
    )


def _within(node: Node) -> Iterator[Node]:
    yield node
    for below in node.inputs:
        yield from _within(below)


@dataclass(frozen=True)
class _Leaf:
    """What a leaf of a step stands for."""

    columns: tuple[str, ...]
    hash: str
    append_only: bool
    in_tables: bool


class _Builder:
    def __init__(
        self,
        sources: Mapping[str, SourceTable],
        leaves: Mapping[str, _Leaf] = MappingProxyType({}),
    ) -> None:
        self._sources = sources
        self._leaves = leaves
        self._refs: dict[Node, int] = {}
        self._hashes: list[str] = []
        self.nodes: list[Node] = []
        self.inputs: list[tuple[int, ...]] = []
        self._append_only: dict[Node, bool] = {}
        self._in_tables: list[bool] = []

    def add(self, node: Node) -> int:
        """The ref of a node, after those of its inputs."""
        if node in self._refs:
            return self._refs[node]
        made = self._of_fewer_rows(node)
        inputs = tuple(self.add(child) for child in made.inputs)
        ref = self._refs[node] = len(self.nodes)
        self.nodes.append(made)
        self.inputs.append(inputs)
        self._in_tables.append(self._is_in_tables(made, inputs))
        self._hashes.append(self._hash(made, inputs))
        return ref

    def _of_fewer_rows(self, node: Node) -> Node:
        """The same relation in a form that has to look at fewer rows; some need input that stays."""
        sessions = session_groups(node, self._is_exact)
        if sessions is not None and self.append_only(sessions.input):
            return sessions
        if not isinstance(node, Aggregate):
            return node
        extremes = extremes_by(node, self._has_order) if self.append_only(node.input) else None
        return extremes or moments(node) or node

    def append_only(self, node: Node) -> bool:
        """Whether no row of the node is ever taken back."""
        if node not in self._append_only:
            self._append_only[node] = self._is_append_only(node)
        return self._append_only[node]

    def operators(self, outputs: Iterable[int]) -> tuple[Operator, ...]:
        """All operators; `outputs` are read from outside."""
        uses = Counter(outputs)
        for inputs in self.inputs:
            uses.update(set(inputs))
        bodies = [self._body(ref) for ref in range(len(self.nodes))]
        return tuple(
            Operator(
                ref=ref,
                node=node,
                inputs=self.inputs[ref],
                traces=self.traces(ref) or _traces(bodies[ref]),
                append_only=self.append_only(node),
                inputs_stay=all(map(self.append_only, node.inputs)),
                cost=Cost.CHANGE if self._keeps_first(ref) else _cost(node),
                uses=uses[ref],
                rows=self.rows(ref),
                groups=self.groups(ref),
                summed=self._summed(ref),
                body=bodies[ref],
                digest=self._hashes[ref],
            )
            for ref, node in enumerate(self.nodes)
        )

    def _body(self, ref: int) -> tuple[Operator, ...]:
        """The operators of a step; a relation beside it has the traces that any reader of it has."""
        node = self.nodes[ref]
        if not isinstance(node, Recursive):
            return ()

        def leaf(of: int, columns: tuple[str, ...]) -> _Leaf:
            in_tables = of != ref and self._in_tables[of]
            return _Leaf(columns, self._hashes[of], self.append_only(self.nodes[of]), in_tables)

        leaves = {BEFORE: leaf(ref, node.step.columns)}
        for place, below in enumerate(self.inputs[ref][1:]):
            leaves[leaf_beside(place)] = leaf(below, self.nodes[below].columns)
        inner = _Builder(self._sources, leaves)
        return inner.operators([inner.add(joined_step(node))])

    def _is_append_only(self, node: Node) -> bool:
        from_inputs = all(map(self.append_only, node.inputs))
        match node:
            case Scan() if node.source in self._leaves:
                return self._leaves[node.source].append_only
            case Recursive():
                return from_inputs and not any(map(_takes_back, _within(node.step)))
            case Scan():
                source = self._sources[node.source]
                return source.append_only and not layout_of(source).takes_back
            case Upsert():
                return False
            case _ if _takes_back(node):
                return False
            case Temporal():
                return from_inputs and node.enters
            case _:
                return from_inputs

    def _is_exact(self, node: Node, expression: Expression) -> bool:
        return declares_exact(self._declared(node, expression))

    def _has_order(self, node: Node, expression: Expression) -> bool:
        declared = self._declared(node, expression)
        return declared is not None and _WITHOUT_ORDER.search(declared) is None

    def _declared(self, node: Node, expression: Expression) -> str | None:
        """The type that a source declares of the column that an expression over a node is; None where it
        is none."""
        leaf, column = origin(node, expression)
        if not column.is_column or not isinstance(leaf, Scan) or leaf.source not in self._sources:
            return None
        return self._of_source(leaf, column.references[0])

    def _hash(self, node: Node, inputs: tuple[int, ...]) -> str:
        """A name for what the node computes, the same in every process and release."""
        if isinstance(node, Scan) and node.source in self._leaves:
            known = self._leaves[node.source]
            if node.columns == known.columns:
                return known.hash
            return digest([known.hash, list(node.columns)])
        return digest([canonical(node, self._sources), [self._hashes[ref] for ref in inputs]])

    def _is_in_tables(self, node: Node, inputs: tuple[int, ...]) -> bool:
        """Whether the rows at a version can be read from followed tables at its snapshots, row by row
        and without making more of them."""
        match node:
            case Scan() if node.source in self._leaves:
                return self._leaves[node.source].in_tables
            case Scan():
                return self._sources[node.source].is_table
            case Values() | Projection() | Filter() | Weigh() | UnionAll():
                return all(self._in_tables[ref] for ref in inputs)
            case _:
                return False

    def _index(self, node: Node, key: Collection[str]) -> tuple[str, ...]:
        """The key by which a node's rows are looked up, in the order of the index that the followed
        table below declares; nothing where a column of the key is not in there. Rows with a computed
        column are none of the table's: its type may be one that a trace has not."""
        places = dict[str, int]()
        for name in node.columns:
            leaf, column = origin(node, Expression.column(name))
            if not column.is_column or not isinstance(leaf, Scan) or leaf.source in self._leaves:
                return ()
            index = index_of(self._sources[leaf.source])
            if column.references[0] in index:
                places[name] = index.index(column.references[0])
        return tuple(sorted(key, key=places.__getitem__)) if places.keys() >= set(key) else ()

    def _kept_by(self, of: int, key: Iterable[str]) -> tuple[str, ...] | None:
        """The key of the trace that keeps rows which are looked up by a key; None where tables alone
        have them."""
        key = tuple(key)
        return (self._index(self.nodes[of], key) or None) if self._in_tables[of] else key

    def rows(self, ref: int) -> tuple[TraceSpec | None, ...]:
        """The traces of the inputs whose rows the operator looks up, None for those in tables."""
        node, inputs = self.nodes[ref], self.inputs[ref]
        match node:
            case MultiwayJoin():
                return tuple(
                    None
                    if held is not None
                    else self._rows(of, key, one.columns, self._past(lifetime))
                    for of, key, one, lifetime, held in zip(
                        inputs,
                        _keys(node),
                        node.inputs,
                        lifetimes(node),
                        self.groups(ref),
                        strict=True,
                    )
                )
            case Aggregate() if node.collected:
                read = dict.fromkeys(name for call in node.collected for name in call.references)
                past = self._past(key_lifetime(node.input, node.keys))
                return (self._rows(inputs[0], node.keys, read, past),)
            case Window():
                columns = node.input.columns
                past = self._past(key_lifetime(node.input, node.partition))
                if not self._keeps_first(ref):
                    return (self._rows(inputs[0], node.partition, columns, past),)
                ranks = [[call.function.text.lower(), call.over, node.first] for call in node.calls]
                rest = _rest(columns, node.partition)
                first = self._trace(inputs[0], TraceKind.FIRST, node.partition, rest, ranks)
                return (replace(first, past=past, is_index=self._in_tables[inputs[0]]),)
            case _:
                return ()

    def _keeps_first(self, ref: int) -> bool:
        """Whether a window remembers the first rows only: of rows that stay the others are never
        asked for again. Tables have all of them anyway, if not in the order of a key."""
        node = self.nodes[ref]
        if not isinstance(node, Window) or node.first is None:
            return False
        [below] = self.inputs[ref]
        return self.append_only(node.input) and self._kept_by(below, node.partition) is not None

    def groups(self, ref: int) -> tuple[TraceSpec | None, ...]:
        """Of a join's inputs the aggregates' traces of whose groups their rows are made, one by one."""
        node, inputs = self.nodes[ref], self.inputs[ref]
        if not isinstance(node, MultiwayJoin):
            return ()
        return tuple(self._groups(of, key) for of, key in zip(inputs, _keys(node), strict=True))

    def _groups(self, of: int, key: Collection[str]) -> TraceSpec | None:
        """None where the groups cannot be looked up by what the key is of theirs, and are many."""
        columns = {name: name for name in self.nodes[of].columns}
        while isinstance(node := self.nodes[of], Projection | Filter):
            if isinstance(node, Projection):
                below = {out.name: out.expression for out in node.outputs}
                read = {n: below[c] for n, c in columns.items()}
                columns = {n: one.references[0] for n, one in read.items() if one.is_column}
            [of] = self.inputs[of]
        if not isinstance(node, Aggregate) or self._summed(of) is None:
            return None
        if node.keys and not (key and all(columns.get(name) in node.keys for name in key)):
            return None
        return self._aggregate_traces(node, self.inputs[of][0])[0]

    def _summed(self, ref: int) -> tuple[tuple[str, str], ...] | None:
        """What an aggregate adds up, if that and how many there are is all that it does."""
        node = self.nodes[ref]
        if not isinstance(node, Aggregate) or self._leaves:
            return None
        added, counted = (AggregateFunction.SUM, AggregateFunction.AVG), AggregateFunction.COUNT
        if not all(call.function in (*added, counted) for call in node.aggregates):
            return None
        if self._past(key_lifetime(node.input, node.keys)) is not None:
            return None
        columns = map(Expression.column, node.keys)
        if any(exact_type(node.input, key, self._of_source) in NARROW for key in columns):
            return None
        found = list[tuple[str, str]]()
        for call in node.aggregates:
            if call.function in added and call.argument is not None:
                kind = exact_type(node.input, Expression.column(call.argument), self._of_source)
                if kind is None:
                    return None
                found.append((call.argument, kind))
        return tuple(dict.fromkeys(found))

    def _of_source(self, scan: Scan, column: str) -> str | None:
        """The type that a source declares of a column."""
        columns = self._sources[scan.source].columns
        return next((one.type for one in columns if one.key == column), None)

    def _rows(
        self, of: int, key: Iterable[str], columns: Iterable[str], past: Past | None
    ) -> TraceSpec | None:
        """The rows of an input. Where some are forgotten nobody else may take them for the input."""
        kept, is_index = self._kept_by(of, key), self._in_tables[of]
        if kept is None:
            return None
        if past is None or is_index:
            made = self._trace(of, TraceKind.ROWS, kept, _rest(columns, kept))
            return replace(made, is_index=is_index)
        until = [*past.ends, past.is_exclusive, *map(list, past.watermarks)]
        trace = self._trace(of, TraceKind.RECENT, kept, _rest(columns, kept), until)
        return replace(trace, past=past)

    def traces(self, ref: int) -> tuple[TraceSpec, ...]:
        node, inputs = self.nodes[ref], self.inputs[ref]
        found: list[TraceSpec] = []
        if isinstance(node, Aggregate):
            past = self._past(key_lifetime(node.input, node.keys))
            own = self._aggregate_traces(node, inputs[0])
            found += [replace(trace, past=past) for trace in own]
        if isinstance(node, SessionGroups):
            calls = [node.time, node.gap, *calls_of(node.aggregates)]
            sessions = self._trace(inputs[0], TraceKind.SESSIONS, node.by, (), calls)
            found.append(replace(sessions, past=self._past(session_lifetime(node))))
        if isinstance(node, Upsert):
            others = _rest(node.columns, node.keys)
            found.append(self._trace(inputs[0], TraceKind.ROWS, node.keys, others, ["upsert"]))
        if isinstance(node, Temporal):
            rest = _rest(node.columns, (node.column,))
            until = [node.comparison, node.bound.text]
            found.append(self._trace(inputs[0], TraceKind.ROWS, (node.column,), rest, until))
        if isinstance(node, Watermark):
            found.append(self._trace(inputs[0], TraceKind.ACCUMULATORS, (), (), [node.column]))
        found += [trace for trace in self.rows(ref) if trace is not None]
        return tuple(dict.fromkeys(found))

    def _past(self, lifetime: Lifetime | None) -> Past | None:
        if lifetime is None:
            return None
        tables = (
            (self.traces(self._refs[one])[0].table, one.delay)
            for one in lifetime.watermarks
            if isinstance(one, Watermark)
        )
        ends = tuple(end.text for end in lifetime.ends)
        return Past(ends, tuple(tables), lifetime.is_exclusive)

    def _aggregate_traces(self, node: Aggregate, below: int) -> tuple[TraceSpec, ...]:
        calls = calls_of(call for call in node.aggregates if call.expression is None)
        found = [self._trace(below, TraceKind.ACCUMULATORS, node.keys, (), calls)]
        if not self.append_only(node.input):
            arguments = dict.fromkeys(
                call.argument
                for call in node.aggregates
                if call.function.is_extreme and call.argument
            )
            found += [
                self._trace(below, TraceKind.VALUES, node.keys, (name,)) for name in arguments
            ]
        return tuple(found)

    def _trace(
        self,
        of: int,
        kind: TraceKind,
        key: Iterable[str],
        columns: tuple[str, ...],
        calls: Any = (),
    ) -> TraceSpec:
        key = tuple(dict.fromkeys(key))  # equated twice, it is one column of the table
        text = [
            self._hashes[of],
            kind.value,
            list(key),
            list(columns),
            list(calls),
            self.append_only(self.nodes[of]),
        ]
        return TraceSpec(f"_trace_{digest(text)[:16]}", kind, key, columns)


def _traces(operators: Iterable[Operator]) -> tuple[TraceSpec, ...]:
    return tuple(dict.fromkeys(trace for one in operators for trace in one.traces))


def _keys(node: MultiwayJoin) -> list[list[str]]:
    """By input the columns that are equated with others."""
    equated = {name for e in node.equalities for name in (e.left, e.right)}
    return [[name for name in one.columns if name in equated] for one in node.inputs]


def _rest(columns: Iterable[str], key: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in columns if name not in key)
