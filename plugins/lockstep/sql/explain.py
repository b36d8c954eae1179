"""A circuit as text and as data: every operator with its traces and what its work grows with.

The text is the same every time: refs are the circuit's, nothing depends on memory or on time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lockstep.ids import late_table
from lockstep.sql.circuit import (
    SMALL_RECORDS,
    Circuit,
    Cost,
    Operator,
    Past,
    Project,
    SourceTable,
    TraceKind,
    TraceSpec,
)
from lockstep.sql.plans.expressions import all_of
from lockstep.sql.plans.nodes import (
    Aggregate,
    AggregateCall,
    Equality,
    Filter,
    Generate,
    Join,
    MultiwayJoin,
    Node,
    Output,
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
    WindowCall,
)
from lockstep.sql.plans.nodes import Project as Projection
from lockstep.sql.reading.intervals import interval_text
from lockstep.sql.rebuild import Rebuild
from lockstep.sql.sources.source_layout import layout_of
from lockstep.sql.sources.table_options import index_of

__all__ = ["explain", "explain_data", "explain_rebuild", "rebuild_data"]

_COST = {
    Cost.CHANGE: "cost of the change",
    Cost.STATE: "cost of the state: it has no key to look up by",
}


def explain(project: Project, circuit: Circuit) -> str:
    """The plan of a project as text, one line an operator and one a trace; ends with a newline."""
    lines = [f"pipeline {project.name} in {project.catalog}.{project.database}", "", "sources"]
    for source in project.sources:
        what = f"table {source.table}" if source.is_table else f"topic {source.topic}"
        lines.append(f"  {source.name}: {source.provider} {what}{_reading(source)}")
    lines += ["", "operators"]
    for operator in circuit.operators:
        lines += _operator_lines(operator)
    lines += ["", "views"]
    refs = {outbox.view: outbox for outbox in circuit.outboxes}
    for view in project.views:
        columns = ", ".join(view.columns)
        if view.audit:
            outbox = refs[view.name]
            lines.append(f"  audit {view.name} ({columns}) = %{outbox.ref}, no rows or no publish")
        elif view.name in refs:
            outbox = refs[view.name]
            lines.append(f"  {view.name} ({columns}) = %{outbox.ref}, changes in {outbox.table}")
        else:
            lines.append(f"  {view.name} ({columns}) is temporary")
    if project.sinks:
        lines += ["", "sinks"]
        for sink in project.sinks:
            topic = sink.options.get("topic", "")
            lines.append(f"  {sink.name}: {sink.view} to {sink.provider} topic {topic}")
    lines += ["", _summary(circuit)]
    return "\n".join(lines) + "\n"


def _reading(source: SourceTable) -> str:
    """How records are read, where that is not the plain way."""
    if source.is_table:
        index = index_of(source)
        by = f", index by {', '.join(index)}" if index else ""
        return f"{', append-only' if source.append_only else ''}{by}"
    format_, keys = source.options.get("format", "json"), layout_of(source).keys
    by = f" by {', '.join(keys)}" if keys else ""
    return f", {format_}{by}" if format_ != "json" else ""


def explain_rebuild(rebuild: Rebuild) -> str:
    """What a deploy would do to a version's state, as text; ends with a newline."""
    lines = ["against what is deployed", "  views"]
    lines += [f"    {view}: {change.value}" for view, change in rebuild.views.items()]
    lines.append(
        f"  state: {len(rebuild.kept)} traces are kept, {len(rebuild.made)} made, "
        f"{len(rebuild.dropped)} dropped"
    )
    read = [f"{known.table} (as it stands)" for known in rebuild.known]
    read += [f"source {name} from its beginning" for name in rebuild.sources]
    lines += [f"  reads {one}" for one in read] or ["  reads nothing again"]
    return "\n".join(lines) + "\n"


def rebuild_data(rebuild: Rebuild) -> dict[str, Any]:
    """The same as values that JSON can hold."""
    return {
        "views": {view: change.value for view, change in rebuild.views.items()},
        "kept": list(rebuild.kept),
        "made": list(rebuild.made),
        "dropped": list(rebuild.dropped),
        "known": [known.table for known in rebuild.known],
        "sources": list(rebuild.sources),
    }


def explain_data(project: Project, circuit: Circuit) -> dict[str, Any]:
    """The same as values that JSON can hold."""
    return {
        "pipeline": project.name,
        "catalog": project.catalog,
        "database": project.database,
        "sources": [
            {
                "name": source.name,
                "provider": source.provider,
                **({"table": source.table} if source.is_table else {"topic": source.topic}),
                "columns": [
                    {"name": c.name, "type": c.type, "nullable": c.nullable} for c in source.columns
                ],
            }
            for source in project.sources
        ],
        "operators": [_operator_data(operator) for operator in circuit.operators],
        "views": [
            {
                "name": view.name,
                "columns": list(view.columns),
                "published": view.published,
                **({"audit": True} if view.audit else {}),
                "ref": next((o.ref for o in circuit.outboxes if o.view == view.name), None),
            }
            for view in project.views
        ],
        "sinks": [
            {
                "name": sink.name,
                "view": sink.view,
                "provider": sink.provider,
                "topic": sink.options.get("topic", ""),
            }
            for sink in project.sinks
        ],
    }


def _operator_data(operator: Operator) -> dict[str, Any]:
    data = {
        "ref": operator.ref,
        "operator": operator_kind(operator.node),
        "inputs": list(operator.inputs),
        "detail": _detail(operator),
        "columns": list(operator.node.columns),
        "append_only": operator.append_only,
        "cost": operator.cost.value,
        "uses": operator.uses,
        "traces": [_trace_data(trace) for trace in operator.traces],
        "rows_in_tables": _in_tables(operator),
        "rows_of_groups": {str(ref): trace.table for ref, trace in _in_groups(operator)},
        "exchanged_by": _exchanged_by(operator),
    }
    return {**data, "step": list(map(_operator_data, operator.body))} if operator.body else data


def _in_tables(operator: Operator) -> list[int]:
    """The inputs whose rows are those of followed tables."""
    pairs = zip(operator.inputs, operator.rows, strict=False)
    of_groups = {ref for ref, _ in _in_groups(operator)}
    return [ref for ref, trace in pairs if trace is None and ref not in of_groups]


def _in_groups(operator: Operator) -> list[tuple[int, TraceSpec]]:
    """The inputs whose rows are the groups of an aggregate, with its trace."""
    pairs = zip(operator.inputs, operator.groups, strict=False)
    return [(ref, trace) for ref, trace in pairs if trace is not None]


def _exchanged_by(operator: Operator) -> list[str]:
    """By what the state is exchanged between tasks where an interval is a large one: keys, or for a join
    what has to be equal. Nothing where the operator has no state that it looks up by key."""
    if not operator.traces and not operator.rows:
        return []
    match operator.node:
        case Aggregate(keys=keys) | Upsert(keys=keys) | SessionGroups(by=keys):
            return list(keys)
        case Window(partition=partition):
            return list(partition)
        case MultiwayJoin(equalities=equalities):
            return [_equality(one) for one in equalities]
        case _:
            return []


def _exchange_text(operator: Operator, by: Sequence[str]) -> str:
    keys = ", ".join(by)
    text = f"state exchanged by {keys} beyond {SMALL_RECORDS:,} records"
    if any(trace.kind is TraceKind.VALUES for trace in operator.traces):
        return f"{text}; values of changed keys always, to the workers that own them"
    return text


def operator_kind(node: Node) -> str:
    """The word for an operator."""
    match node:
        case Aggregate() if not node.aggregates:
            return "distinct"
        case MultiwayJoin():
            return "join" if node.equalities else "product"
        case TimeWindow():
            return "time window"
        case SessionGroups():
            return "sessions"
        case Temporal():
            return "temporal filter"
        case UnionAll():
            return "union all"
        case _:
            return type(node).__name__.lower()


def _operator_lines(operator: Operator, within: str = "%") -> list[str]:
    inputs = ", ".join(f"{within}{ref}" for ref in operator.inputs)
    words = " ".join(filter(None, (operator_kind(operator.node), inputs, _detail(operator))))
    kind = "append-only" if operator.append_only else "retracting"
    own = f"{within}{operator.ref}"
    lines = [f"  {own} = {words}"]
    if operator.body:
        inner = (_operator_lines(one, f"{own}.")[:-1] for one in operator.body)
        lines += [f"     {line}" for body in inner for line in body]
    else:
        lines += [f"       {_trace_text(trace)}" for trace in operator.traces]
    lines += [
        f"       rows of {within}{ref} as the groups in {trace.table}"
        for ref, trace in _in_groups(operator)
    ]
    in_tables = _in_tables(operator)
    if in_tables:
        refs = ", ".join(f"{within}{ref}" for ref in in_tables)
        lines.append(f"       rows of {refs} as the tables have them")
    exchanged_by = _exchanged_by(operator)
    if exchanged_by:
        lines.append(f"       {_exchange_text(operator, exchanged_by)}")
    lines.append(f"       {kind}; {_COST[operator.cost]}")
    return lines


def _detail(operator: Operator) -> str:
    node = operator.node
    match node:
        case Scan():
            text = f"{node.source} [{', '.join(node.columns)}]"
        case Projection():
            text = f"[{', '.join(map(_output, node.outputs))}]"
        case Filter():
            text = f"where {node.predicate.text}"
        case TimeWindow():
            every = "" if node.size == node.slide else f" every {node.slide}"
            text = f"{node.name} = {node.size}{every} of {node.timestamp}"
        case Temporal():
            clock = "watermark()" if node.watermarks else "now()"
            text = (
                f"where {node.column} {node.comparison} {node.bound.text.replace('`now`', clock)}"
            )
        case UnionAll():
            text = f"[{', '.join(node.columns)}]"
        case Values():
            text = f"[{', '.join(node.columns)}] {_rows(node)}"
        case Generate():
            text = f"{', '.join(node.names)} = {node.generator.text}"
        case Weigh():
            text = f"by {node.weight.text}"
        case Window():
            text = _window(node)
        case Join():
            raise AssertionError("a circuit has multiway joins")
        case MultiwayJoin():
            text = _join(node)
        case Aggregate() | SessionGroups():
            text = _groups(node)
        case Watermark():
            behind = f", {interval_text(node.delay)} behind" if node.delay else ""
            text = f"of {node.column}{behind}; late rows to {late_table(node.source)}"
        case Upsert():
            text = f"by {', '.join(node.keys)}"
        case Recursive():
            text = (
                f"[{', '.join(node.columns)}] below level {node.limit}, each from the one before by"
            )
    return text


def _output(output: Output) -> str:
    if output.expression.is_column and output.expression.references == (output.name,):
        return output.name
    return f"{output.name} = {output.expression.text}"


def _join(node: MultiwayJoin) -> str:
    keys = " and ".join(map(_equality, node.equalities))
    condition = f"where {all_of(node.conditions).text}" if node.conditions else ""
    return " ".join(filter(None, (f"on {keys}" if keys else "", condition)))


def _equality(equality: Equality) -> str:
    return equality.text.replace("`", "")


def _groups(node: Aggregate | SessionGroups) -> str:
    calls = [*map(_call, node.aggregates)]
    keys = node.keys
    if isinstance(node, SessionGroups):
        keys = node.by
        calls.insert(0, f"{node.window} = up to {node.gap} apart in {node.time}")
    by = f"by {', '.join(keys)}" if keys else "over all rows"
    return f"{by}: {', '.join(calls)}" if calls else by


def _call(call: AggregateCall) -> str:
    return f"{call.name} = {call.text}"


def _rows(node: Values) -> str:
    return ", ".join(f"({', '.join(cell.text for cell in row)})" for row in node.rows)


def _window(node: Window) -> str:
    by = f"by {', '.join(node.partition)}" if node.partition else "over all rows"
    limit = f", as far as {node.first}" if node.first is not None else ""
    return f"{by}: {', '.join(map(_window_call, node.calls))}{limit}"


def _window_call(call: WindowCall) -> str:
    over = f" ({call.over})" if call.over else ""
    return f"{call.name} = {call.function.text}{over}"


def _trace_text(trace: TraceSpec) -> str:
    key = f"by {', '.join(trace.key)}" if trace.key else "without a key"
    columns = f": {', '.join(trace.columns)}" if trace.columns else ""
    past = f", until {_ends(trace.past)} past" if trace.past else ""
    what = "index" if trace.is_index else "trace"
    return f"{what} {trace.table} of {trace.kind.value} {key}{columns}{past}"


def _ends(past: Past) -> str:
    return f"{' and '.join(past.ends)} {'is' if len(past.ends) == 1 else 'are'}"


def _trace_data(trace: TraceSpec) -> dict[str, Any]:
    return {
        "table": trace.table,
        "kind": trace.kind.value,
        "key": list(trace.key),
        "columns": list(trace.columns),
        "is_index": trace.is_index,
    }


def _summary(circuit: Circuit) -> str:
    state = [f"%{o.ref}" for o in circuit.operators if o.cost is Cost.STATE]
    tail = f"; the work of {', '.join(state)} grows with the state" if state else ""
    return f"{len(circuit.operators)} operators, {len(circuit.traces)} traces{tail}"
