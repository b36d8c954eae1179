"""From the unresolved plan of a DataFrame to one SQL query: protobuf in, text out, nothing executed.

Each kind of relation is a short function from the frames of its inputs to its own. Operations that only
choose and compute columns go on in the same SELECT; a frame that groups, limits or makes rows is read
as a subquery of FROM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lockstep.frames.context import Context
from lockstep.frames.expressions import Expressions, Sql
from lockstep.frames.frame import Column, Frame, new_key

__all__ = ["Kind", "Translator", "made"]

Kind = Callable[["Translator", Any], Frame]
"""Translates one kind of relation; what it is given is the field of that kind."""


def made(sql: Sql, name: str = "") -> Column:
    """A column of a SELECT list: one that only passes through keeps its identity."""
    if sql.column is not None:
        return replace(sql.column, shown=True)
    return Column(name or sql.name, sql.text, new_key(), sql.type, computed=True)


@dataclass
class Translator:
    """Translates the relations of one view; `outer` is the query around a subquery."""

    context: Context
    kinds: Mapping[str, Kind]
    refused: Mapping[str, tuple[str, str]]
    outer: Expressions | None = None

    def frame(self, relation: Any) -> Frame:
        """The frame of a relation. Raises ProjectError, NotSupported."""
        kind = relation.WhichOneof("rel_type")
        plan_id = relation.common.plan_id if relation.common.HasField("plan_id") else None
        with self.context.at(self.context.lines.get(-1 if plan_id is None else plan_id)):
            if kind not in self.kinds:
                what, instead = self.refused.get(kind, (kind.replace("_", " "), ""))
                raise self.context.refuse(what, instead or "write the view in Spark SQL")
            return self.kinds[kind](self, getattr(relation, kind)).below(plan_id)

    def query(self, relation: Any) -> str:
        """The query of a relation."""
        return self.frame(relation).text()

    # ── what the kinds share ────────────────────────────────────────────────────────────────────

    def over(self, frame: Frame, *, hidden: bool = False) -> Expressions:
        """Expressions over a frame."""
        return Expressions(self.context, frame, self.outer, hidden)

    def derived(self, frame: Frame, keep: Iterable[int] = ()) -> Frame:
        """The frame as a subquery of FROM."""
        return frame.derived(self.context.alias("q"), frozenset(keep))

    def readable(self, frame: Frame) -> Frame:
        """A frame whose SELECT can go on."""
        return self.derived(frame) if frame.closed else frame

    def plain(self, frame: Frame) -> Frame:
        """A frame whose columns are references, so that WHERE and GROUP BY can be added."""
        return self.derived(frame) if frame.closed or frame.computes else frame

    def select(
        self,
        frame: Frame,
        make: Callable[[Expressions], tuple[Sequence[Column], bool]],
        *,
        hidden: bool = False,
    ) -> tuple[Frame, Sequence[Column], bool]:
        """What `make` computes over the frame, and the frame that it is over.

        Where it reads a column that is computed in this SELECT, the frame becomes a subquery.
        """
        frame = self.readable(frame)
        expressions = self.over(frame, hidden=hidden)
        columns, closed = make(expressions)
        own = {one.key for one in frame.columns}
        if any(one.computed and one.key in own for one in expressions.used):
            frame = self.derived(frame, (one.key for one in expressions.used))
            columns, closed = make(self.over(frame, hidden=hidden))
        return frame, columns, closed

    def project(
        self, frame: Frame, make: Callable[[Expressions], tuple[Sequence[Column], bool]]
    ) -> Frame:
        """The frame with the columns that `make` gives, and whether that closes it."""
        frame, columns, closed = self.select(frame, make)
        found = frame.restore(columns, hide=not closed)
        return replace(found, closed=closed, order=() if closed else found.order)
