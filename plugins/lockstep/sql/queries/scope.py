"""Names: which column of which relation a written name means.

Names are looked up as Spark does, without regard to case. A name in FROM that two relations share
gets two names inside the plan (`id`, `id_1`), so that every relation's columns stay unique.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from lockstep.sql.names import closest, fresh_name
from lockstep.sql.plans.columns import renamed
from lockstep.sql.plans.nesting import ShapesOf
from lockstep.sql.plans.nodes import Expression, Join, Node, Scan
from lockstep.sql.plans.shapes import Shape

__all__ = [
    "AmbiguousError",
    "Environment",
    "Field",
    "Lowered",
    "NoSuchColumnError",
    "Outer",
    "Relation",
    "Scope",
]


class NoSuchColumnError(Exception):
    """No relation in scope has the column; `candidates` are what was meant, nearest first."""

    def __init__(self, name: str, candidates: Sequence[str]) -> None:
        self.name, self.candidates = name, tuple(candidates)
        super().__init__(name)


class AmbiguousError(Exception):
    """Several relations in scope have the column; `candidates` are the qualified names."""

    def __init__(self, name: str, candidates: Sequence[str]) -> None:
        self.name, self.candidates = name, tuple(candidates)
        super().__init__(name)


@dataclass(frozen=True)
class Lowered:
    """A query as a plan: `written[i]` is the name that a person gave to `node.columns[i]`.

    A correlated subquery has further columns, `carried`: those of the query around it that it reads,
    and of its rows those belong to a row outside that are equal in them. `over_nothing` is there for
    a query that has exactly one row for each value of `carried`: an aggregate without GROUP BY. It
    has what each written column is where there are no rows to aggregate.
    """

    node: Node
    written: tuple[str, ...]
    carried: tuple[str, ...] = ()
    over_nothing: tuple[Expression, ...] | None = None


@dataclass(frozen=True)
class Field:
    """One column in scope: as written, inside the plan, and whether `*` and bare names see it."""

    written: str
    column: str
    visible: bool = True


@dataclass(frozen=True)
class Relation:
    """One entry of FROM under its alias (lower case; None for a derived table without one)."""

    alias: str | None
    fields: tuple[Field, ...]
    qualifiers: tuple[str, ...] = ()
    """What can stand before the alias: `database`, `catalog.database`."""

    def is_called(self, *names: str) -> bool:
        """Whether names, in lower case, are the alias, with a qualifier before it or without one."""
        qualifier = ".".join(names[:-1])
        return self.alias == names[-1] and (not qualifier or qualifier in self.qualifiers)

    def named(self, name: str) -> list[Field]:
        return [field for field in self.fields if field.written.lower() == name]


@dataclass(frozen=True)
class Outer:
    """The query around a correlated subquery, for the lowering of the subquery.

    Its columns are those of the leaf, a relation that stands for the rows outside until they are
    known to be needed. `used` grows as names are resolved.
    """

    leaf: str
    levels: tuple[tuple[Relation, ...], ...]
    """The relations of the query around, then of the one around that, and so on."""
    shapes: Mapping[str, Shape] = field(default_factory=dict, compare=False)
    """Of the leaf's columns."""
    used: dict[str, str] = field(default_factory=dict, compare=False)
    """Columns of the leaf that the subquery reads, to those outside that they stand for."""

    @staticmethod
    def around(scope: Scope, depth: int, only: Collection[str] | None = None) -> Outer:
        """All that `scope` can name; `only` limits it to some columns of the leaf."""

        prefix = f"_outer{depth}_"

        def moved(one: Relation) -> Relation:
            fields = (replace(f, column=prefix + f.column) for f in one.fields)
            return replace(one, fields=tuple(f for f in fields if only is None or f.column in only))

        levels = (scope.relations, *(scope.outer.levels if scope.outer is not None else ()))
        found = tuple(tuple(map(moved, level)) for level in levels)
        return Outer(f"outer {depth}", found, ShapesOf(scope.node, prefix))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the leaf."""
        every = (f.column for level in self.levels for one in level for f in one.fields)
        return tuple(dict.fromkeys(every))

    def use(self, columns: Iterable[str]) -> None:
        """Note those of the columns that are the leaf's as read."""
        for column in columns:
            if column in self.columns:
                # `_outer0_x` stands for the column x outside
                self.used[column] = column.split("_", 2)[2]

    @property
    def scan(self) -> Scan:
        """The leaf."""
        return Scan(self.leaf, self.columns, self.shapes)


@dataclass(frozen=True)
class Environment:
    """What a query may name: relations by lower-case name, and the query that it is a subquery of.

    `qualifiers` are the dotted prefixes that mean this project: '', 'database', 'catalog.database'.
    """

    relations: Mapping[str, Lowered] = field(hash=False)
    qualifiers: tuple[str, ...] = ("",)
    outer: Outer | None = None
    depth: int = 0

    def plus(self, name: str, lowered: Lowered) -> Environment:
        """With one more relation, which hides another of its name."""
        # a chain, as looking into the mapping below would lower every view of the project
        return replace(self, relations=ChainMap({name.lower(): lowered}, self._chained()))

    def _chained(self) -> MutableMapping[str, Lowered]:
        return cast(MutableMapping[str, Lowered], self.relations)

    def within(self, outer: Outer | None) -> Environment:
        """For a subquery."""
        return replace(self, outer=outer, depth=self.depth + 1)


@dataclass(frozen=True)
class Scope:
    """What the expressions of one SELECT can name: a plan and the relations that it is made of.

    Names that no relation has are looked up in the query around, if there is one: then the leaf that
    stands for it is a part of the plan.
    """

    node: Node
    relations: tuple[Relation, ...]
    first: tuple[str, ...] = ()
    """Columns that `*` shows before all others: those that USING has merged."""
    outer: Outer | None = None

    @staticmethod
    def over(lowered: Lowered, alias: str | None) -> Scope:
        fields = tuple(map(Field, lowered.written, lowered.node.columns))
        return Scope(lowered.node, (Relation(alias, fields),))

    @property
    def carried(self) -> tuple[str, ...]:
        """Columns of the query around, which every row keeps."""
        return self.outer.columns if self.outer is not None else ()

    def inside(self, outer: Outer | None) -> Scope:
        """The scope of a subquery: every row beside every row outside, if it is not so already."""
        if self.outer is not None:
            return self
        if outer is None or not outer.columns:
            return replace(self, outer=outer)
        return replace(self, node=Join(outer.scan, self.node, (), ()), outer=outer)

    def has(self, name: str) -> bool:
        """Whether a column is meant by a name, or several may be."""
        try:
            self.resolve([name])
        except NoSuchColumnError:
            return False
        except AmbiguousError:
            return True
        return True

    def resolve(self, parts: Sequence[str]) -> tuple[str, int]:
        """The plan column that a dotted name means, and how many of its parts that took.

        The parts left over are fields of a struct. Raises NoSuchColumnError or AmbiguousError.
        """
        found = _find(self.relations, parts)
        if found is not None:
            return found
        for level in self.outer.levels if self.outer is not None else ():
            found = _find(level, parts)
            if found is not None:
                assert self.outer is not None
                self.outer.use([found[0]])
                return found
        raise NoSuchColumnError(".".join(parts), self._candidates([p.lower() for p in parts]))

    def is_around(self, parts: Sequence[str], outer: Outer) -> bool:
        """Whether a name is none of these relations' and one of the query around."""
        try:
            return not _find(self.relations, parts) and any(_find(o, parts) for o in outer.levels)
        except AmbiguousError:
            return False

    def _candidates(self, names: Sequence[str]) -> list[str]:
        if len(names) > 1:
            own = [one for one in self.relations if one.alias == names[0]]
            if own:
                return closest(names[1], (field.written for one in own for field in one.fields))
        every = (field.written for one in self.relations for field in one.fields if field.visible)
        return closest(names[-1], every)

    def star(self, *names: str) -> list[Field] | None:
        """The columns of `*` or `alias.*`, in order; None where no relation has the alias."""
        if not names:
            seen = [field for one in self.relations for field in one.fields if field.visible]
            rank = {column: at for at, column in enumerate(self.first)}
            return sorted(seen, key=lambda field: rank.get(field.column, len(rank)))
        levels = (self.relations, *(self.outer.levels if self.outer is not None else ()))
        for level in levels:
            own = [field for one in level if one.is_called(*names) for field in one.fields]
            if own:
                if self.outer is not None:
                    self.outer.use(field.column for field in own)
                return own
        return None

    def beside(self, other: Scope) -> tuple[Scope, Scope]:
        """This scope and the other one, renamed so that their columns are disjoint."""
        taken = {*self.node.columns}
        names: dict[str, str] = {}
        for column in other.node.columns:
            # A new name may not meet another column of the right side either.
            others = set(other.node.columns) - {column}
            names[column] = fresh_name(column, taken | others if column in taken else taken)
            taken.add(names[column])
        if all(old == new for old, new in names.items()):
            return self, other
        node = renamed(other.node, names)
        relations = tuple(
            replace(one, fields=tuple(replace(f, column=names[f.column]) for f in one.fields))
            for one in other.relations
        )
        first = tuple(names[column] for column in other.first)
        return self, Scope(node, relations, first, other.outer)


def _find(relations: Sequence[Relation], parts: Sequence[str]) -> tuple[str, int] | None:
    """The one column that a dotted name means among relations, and how many parts that took."""
    names = [part.lower() for part in parts]
    for at in range(1, len(names)):
        owners = [one for one in relations if one.is_called(*names[:at])]
        found = {field.column for one in owners for field in one.named(names[at])}
        if len(found) > 1:
            raise AmbiguousError(".".join(parts[: at + 1]), sorted(found))
        if found:
            return found.pop(), at + 1
    visible = [(one, f) for one in relations for f in one.named(names[0]) if f.visible]
    if len({field.column for _, field in visible}) > 1:
        raise AmbiguousError(
            parts[0], [f"{one.alias}.{f.written}" if one.alias else f.written for one, f in visible]
        )
    return (visible[0][1].column, 1) if visible else None
