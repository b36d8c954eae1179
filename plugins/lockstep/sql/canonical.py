"""Names for what a plan computes, the same in every process and release: traces are called by them.

A change here renames every trace.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from lockstep.sql.circuit import SourceTable
from lockstep.sql.plans.multiway import join_trees
from lockstep.sql.plans.nodes import (
    Aggregate,
    AggregateCall,
    Filter,
    Generate,
    Join,
    MultiwayJoin,
    Node,
    Recursive,
    Scan,
    SessionGroups,
    Temporal,
    TimeWindow,
    UnionAll,
    Upsert,
    Values,
    Watermark,
    Weigh,
    Window,
)
from lockstep.sql.plans.nodes import Project as Projection
from lockstep.sql.sources.source_layout import decoding_options

__all__ = ["calls_of", "canonical", "digest", "joined_step"]


def joined_step(node: Recursive) -> Node:
    """The step with its trees of joins as one each."""
    return join_trees([node.step])[0]


def calls_of(calls: Iterable[AggregateCall]) -> list[list[str | None]]:
    return [[call.name, call.function.value, call.argument] for call in calls]


def digest(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _canonical_groups(node: Aggregate | SessionGroups) -> list[Any]:
    """What groups have beside keys and calls. Nothing, and not an empty list, where nothing is said:
    names of traces stay."""
    if isinstance(node, SessionGroups):
        return [node.window, node.time, node.gap]
    texts = [[call.name, call.text] for call in node.collected]
    return [texts] if texts else []


def _canonical_step(node: Node, sources: Mapping[str, SourceTable]) -> list[Any]:
    """A plan over leaves of its own, with what is below."""
    if isinstance(node, Scan):
        return [node.source, list(node.columns)]
    return [canonical(node, sources), [_canonical_step(b, sources) for b in node.inputs]]


def canonical(node: Node, sources: Mapping[str, SourceTable]) -> list[Any]:
    """One node without its inputs, as JSON values. A change here renames every trace."""
    match node:
        case Scan():
            source = sources[node.source]
            declared = [[c.key, c.type, c.nullable] for c in source.columns]
            keys = ("table", "append_only") if source.is_table else ("format", "subscribe")
            read = [source.options.get(key, "") for key in keys]
            # Nothing, and not an empty list, where nothing is said: names of traces stay.
            decoding = [[list(pair) for pair in decoding_options(source).items()]]
            text = [node.source.lower(), list(node.columns), declared, source.provider, *read]
            text += [pairs for pairs in decoding if pairs and not source.is_table]
        case Projection():
            text = [[output.name, output.expression.text] for output in node.outputs]
        case Filter():
            text = [node.predicate.text]
        case TimeWindow():
            text = [node.name, node.timestamp, node.size, node.slide]
        case Temporal():
            text = [node.column, node.comparison, node.bound.text]
        case UnionAll():
            text = []
        case Values():
            text = [list(node.columns), [[cell.text for cell in row] for row in node.rows]]
        case Generate():
            text = [list(node.names), node.generator.text]
        case Weigh():
            text = [node.weight.text]
        case Join():
            raise AssertionError("joins of two are merged into multiway joins before")
        case MultiwayJoin():
            text = [[e.text for e in node.equalities], [c.text for c in node.conditions]]
        case Aggregate() | SessionGroups():
            text = [list(node.keys), calls_of(node.aggregates), *_canonical_groups(node)]
        case Window():
            texts = [[c.name, c.function.text, c.over] for c in node.calls]
            limit: list[Any] = [] if node.first is None else [[node.first]]
            text = [list(node.partition), texts, *limit]
        case Watermark():
            text = [node.column, str(node.delay)]
        case Upsert():
            text = list(node.keys)
        case Recursive():
            # its limit is no part of what it computes
            text = [list(node.columns), _canonical_step(joined_step(node), sources)]
    return [type(node).__name__, *text]
