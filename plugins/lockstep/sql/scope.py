"""Names: which column of which relation a written name means.

Names are looked up as Spark does, without regard to case. A name in FROM that two relations share
gets two names inside the plan (`id`, `id_1`), so that every relation's columns stay unique.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from lockstep.sql.nodes import Expression, Node, Output, Project

__all__ = [
    "AmbiguousError",
    "Field",
    "Lowered",
    "NoSuchColumnError",
    "Relation",
    "Scope",
    "closest",
    "fresh_name",
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


def fresh_name(wanted: str, taken: Collection[str]) -> str:
    """`wanted`, or `wanted_1`, `wanted_2`, … if that is taken."""
    name, number = wanted, 0
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    return name


def closest(name: str, among: Iterable[str], limit: int = 8) -> list[str]:
    """Names to offer in place of a wrong one: the most similar first, then the others in order."""
    names = list(dict.fromkeys(among))
    lower = {one.lower(): one for one in names}
    near = [lower[one] for one in difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.5)]
    return [*near, *(one for one in names if one not in near)][:limit]


@dataclass(frozen=True)
class Lowered:
    """A query as a plan: `written[i]` is the name that a person gave to `node.columns[i]`."""

    node: Node
    written: tuple[str, ...]


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

    def named(self, name: str) -> list[Field]:
        return [field for field in self.fields if field.written.lower() == name]


@dataclass(frozen=True)
class Scope:
    """What the expressions of one SELECT can name: a plan and the relations that it is made of."""

    node: Node
    relations: tuple[Relation, ...]
    first: tuple[str, ...] = ()
    """Columns that `*` shows before all others: those that USING has merged."""

    @staticmethod
    def over(lowered: Lowered, alias: str | None) -> Scope:
        fields = tuple(map(Field, lowered.written, lowered.node.columns))
        return Scope(lowered.node, (Relation(alias, fields),))

    def resolve(self, parts: Sequence[str]) -> tuple[str, int]:
        """The plan column that a dotted name means, and how many of its parts that took.

        The parts left over are fields of a struct. Raises NoSuchColumnError or AmbiguousError.
        """
        names = [part.lower() for part in parts]
        if len(names) > 1:
            relations = [one for one in self.relations if one.alias == names[0]]
            found = [field.column for one in relations for field in one.named(names[1])]
            if len(set(found)) > 1:
                raise AmbiguousError(".".join(parts[:2]), sorted(set(found)))
            if found:
                return found[0], 2
        found = [
            field.column for one in self.relations for field in one.named(names[0]) if field.visible
        ]
        if len(set(found)) > 1:
            raise AmbiguousError(parts[0], self._qualified(names[0]))
        if found:
            return found[0], 1
        raise NoSuchColumnError(".".join(parts), self._candidates(names))

    def _qualified(self, name: str) -> list[str]:
        return [
            f"{one.alias}.{field.written}" if one.alias else field.written
            for one in self.relations
            for field in one.named(name)
            if field.visible
        ]

    def _candidates(self, names: Sequence[str]) -> list[str]:
        if len(names) > 1:
            own = [one for one in self.relations if one.alias == names[0]]
            if own:
                return closest(names[1], (field.written for one in own for field in one.fields))
        every = (field.written for one in self.relations for field in one.fields if field.visible)
        return closest(names[-1], every)

    def star(self, alias: str | None) -> list[Field] | None:
        """The columns of `*` or `alias.*`, in order; None where no relation has the alias."""
        if alias is None:
            seen = [field for one in self.relations for field in one.fields if field.visible]
            rank = {column: at for at, column in enumerate(self.first)}
            return sorted(seen, key=lambda field: rank.get(field.column, len(rank)))
        own = [one for one in self.relations if one.alias == alias]
        return [field for one in own for field in one.fields] if own else None

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
        node = Project(
            other.node, tuple(Output(new, Expression.column(old)) for old, new in names.items())
        )
        relations = tuple(
            replace(one, fields=tuple(replace(f, column=names[f.column]) for f in one.fields))
            for one in other.relations
        )
        return self, Scope(node, relations, tuple(names[column] for column in other.first))
