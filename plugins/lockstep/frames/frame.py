"""A DataFrame under translation: one SELECT that is still open, and what its columns are.

The names of a DataFrame are looked up as Spark does: `F.col("a")` by name, `df["a"]` by the identity of
the column that `df` had, which survives every operation that does not compute it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from lockstep.frames.marks import without_marks
from lockstep.sql.names import closest, fresh_names

__all__ = ["AmbiguousColumn", "Column", "Frame", "NoColumn", "SortKey", "new_key", "quoted"]

_keys = count()


def new_key() -> int:
    """An identity for a column that is computed anew."""
    return next(_keys)


def quoted(name: str) -> str:
    """A name in backticks."""
    return "`" + name.replace("`", "``") + "`"


class NoColumn(Exception):
    """No column has the name; `candidates` are what was meant, nearest first."""

    def __init__(self, name: str, candidates: Sequence[str]) -> None:
        self.name, self.candidates = name, tuple(candidates)
        super().__init__(name)


class AmbiguousColumn(Exception):
    """Several columns have the name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(name)


@dataclass(frozen=True)
class Column:
    """One column: its name ('' where Spark makes up one that is not followed here), and its SQL.

    `text` is a reference to a relation of FROM, or what is computed from such (`computed`), or '' where
    the function before it makes this column, too. `type` is
    Spark's DDL text where it is known. A column that is not `shown` can be named still: the other
    side's key of a join by names, and what is only sorted by.
    """

    name: str
    text: str
    key: int
    type: str = ""
    qualifier: tuple[str, ...] = ()
    computed: bool = False
    shown: bool = True

    def named(self, name: str) -> bool:
        """Without regard to case."""
        return self.name.lower() == name.lower()


@dataclass(frozen=True)
class SortKey:
    """One key of an order that is pending: the column, and what stands behind it."""

    key: int
    direction: str


@dataclass(frozen=True)
class _Node:
    """What a DataFrame that is a part of this one had: its columns, and how far down it is."""

    depth: int
    columns: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Frame:
    """SELECT `head` columns FROM `source` WHERE `where` `tail`.

    One that is `closed` (it groups, limits or makes rows) can only be read from as a whole. `single` is
    true where the source is one relation. `branches` are those of a UNION ALL, which the source is.
    """

    source: str
    columns: tuple[Column, ...]
    nodes: Mapping[int, tuple[_Node, ...]] = field(default_factory=dict, hash=False)
    where: tuple[str, ...] = ()
    head: str = ""
    tail: str = ""
    closed: bool = False
    single: bool = True
    order: tuple[SortKey, ...] = ()
    branches: tuple[str, ...] = ()

    @property
    def shown(self) -> tuple[Column, ...]:
        """The columns that `*` means."""
        return tuple(one for one in self.columns if one.shown)

    @property
    def computes(self) -> bool:
        """Whether some column is more than a reference."""
        return any(one.computed for one in self.columns)

    def below(self, plan_id: int | None) -> Frame:
        """The same as the DataFrame `plan_id`, which a person may name from further up."""
        nodes = {
            known: tuple(replace(one, depth=one.depth + 1) for one in found)
            for known, found in self.nodes.items()
        }
        if plan_id is not None:
            own = _Node(0, tuple((one.name, one.key) for one in self.columns))
            nodes[plan_id] = (own, *nodes.get(plan_id, ()))
        return replace(self, nodes=nodes)

    def text(self, columns: Iterable[Column] | None = None) -> str:
        """The query, with these columns under their names."""
        listed = list(self.shown if columns is None else columns)
        return self.query(listed, [one.name for one in listed])

    def query(self, columns: Sequence[Column], names: Sequence[str]) -> str:
        """The query with columns under these names."""
        items: list[tuple[str, list[str]]] = []
        for one, name in zip(columns, names, strict=True):
            if one.text:
                items.append((one.text, [name]))
            else:
                items[-1][1].append(name)
        listed = ", ".join(_item(text, named) for text, named in items)
        where = f"\nWHERE {' AND '.join(self.where)}" if self.where else ""
        tail = f"\n{self.tail}" if self.tail else ""
        source = f"\nFROM {self.source}" if self.source else ""
        return f"SELECT {self.head}{listed}{source}{where}{tail}"

    def derived(self, alias: str, keep: Collection[int] = ()) -> Frame:
        """This frame as a subquery of FROM: all its columns are plain references to it.

        Hidden columns are lost, but those to `keep` and those of a pending order.
        """
        ordered = {one.key for one in self.order}
        kept = [c for c in self.columns if c.shown or c.key in ordered or c.key in keep]
        names = fresh_names(one.name.lower().lstrip("_") or "column" for one in kept)
        columns = tuple(
            replace(one, text=f"{alias}.{quoted(name)}", computed=False)
            for one, name in zip(kept, names, strict=True)
        )
        query = self.query(kept, names)
        return Frame(f"({query}) AS {alias}", columns, self.nodes, order=self.order)

    def restore(self, shown: Iterable[Column], *, hide: bool = True) -> Frame:
        """With these columns; the others can still be named where `hide` is true."""
        columns = tuple(shown)
        known = {one.key for one in columns}
        ordered = {one.key for one in self.order}
        rest = tuple(
            replace(one, shown=False)
            for one in self.columns
            if one.key not in known and (hide or one.key in ordered)
        )
        return replace(self, columns=(*columns, *rest))

    # ── names ───────────────────────────────────────────────────────────────────────────────────

    def column(self, parts: Sequence[str], *, hidden: bool = False) -> tuple[Column, int]:
        """The column that a dotted name means, and how many of its parts that took.

        The parts left over are fields of a struct. A filter and an order may name `hidden` columns.
        Raises NoColumn, AmbiguousColumn.
        """
        found = _find(self.shown, parts)
        if found is None and hidden:
            found = _find(self.columns, parts)
        if found is not None:
            return found
        raise NoColumn(".".join(parts), closest(parts[-1], (one.name for one in self.shown)))

    def column_of(self, plan_id: int, parts: Sequence[str]) -> tuple[Column, int]:
        """The column of this frame that `df[name]` means, where `df` is the DataFrame `plan_id`.

        Where that DataFrame is a part of both sides of a join, the nearer one is meant.
        """
        there = {one.key: one for one in self.columns}
        found = [
            (node.depth, there[key])
            for node in self.nodes.get(plan_id, ())
            for name, key in node.columns
            if name.lower() == parts[0].lower() and key in there
        ]
        nearest = [column for depth, column in found if depth == min(d for d, _ in found)]
        if len({one.key for one in nearest}) > 1:
            raise AmbiguousColumn(parts[0])
        if not nearest:
            raise NoColumn(parts[0], closest(parts[0], (one.name for one in self.shown)))
        return nearest[0], 1

    def beside(self, right: Frame) -> Frame:
        """The right side of a join with this frame: identities that both have are new on the right."""
        mine = {one.key for one in self.columns}
        renewed = {one.key: new_key() for one in right.columns if one.key in mine}
        return right.with_keys(lambda key: renewed.get(key, key))

    def with_keys(self, change: Callable[[int], int]) -> Frame:
        """The same columns under other identities."""
        nodes = {
            plan_id: tuple(
                replace(one, columns=tuple((name, change(key)) for name, key in one.columns))
                for one in found
            )
            for plan_id, found in self.nodes.items()
        }
        columns = tuple(replace(one, key=change(one.key)) for one in self.columns)
        return replace(self, columns=columns, nodes=nodes)


def _item(text: str, names: Sequence[str]) -> str:
    if len(names) > 1:
        return f"{text} AS ({', '.join(map(quoted, names))})"
    (name,) = names
    plain = without_marks(text).endswith(f".{quoted(name)}")
    return text if plain or not name else f"{text} AS {quoted(name)}"


def _find(columns: Sequence[Column], parts: Sequence[str]) -> tuple[Column, int] | None:
    """As Spark: the longest qualifier that a column has, then the bare name."""
    names = tuple(part.lower() for part in parts)
    for taken in range(len(names) - 1, -1, -1):
        qualifier = names[:taken]
        found = {
            one.key: one
            for one in columns
            if one.named(names[taken]) and one.qualifier[len(one.qualifier) - taken :] == qualifier
        }
        if len(found) > 1:
            raise AmbiguousColumn(".".join(parts))
        if found:
            return next(iter(found.values())), taken + 1
    return None
