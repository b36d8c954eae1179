"""`*` in a SELECT list or in a call: of all relations, of one, or of a struct, EXCEPT some."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlglot import exp

from lockstep.errors import ProjectError
from lockstep.sql.names import closest
from lockstep.sql.plans.nesting import shape_of
from lockstep.sql.plans.nodes import Expression
from lockstep.sql.plans.shapes import Shape, StructShape, field_of
from lockstep.sql.queries.functions import refuse
from lockstep.sql.queries.scope import AmbiguousError, NoSuchColumnError, Scope
from lockstep.sql.reading.syntax import SourceText
from lockstep.sql.reading.trees import (
    MEANT,
    copy_with_words,
    identifier_parts,
    without_parentheses,
)

__all__ = ["Starred", "is_star", "starred"]

Starred = tuple[str, Any]
"""A name, and the expression that has it: the name of a plan column, or syntax."""


def is_star(node: Any) -> bool:
    """Whether it is `*`, `alias.*` or `struct.*`."""
    return isinstance(node.this if isinstance(node, exp.Column) else node, exp.Star)


def starred(source: SourceText, scope: Scope, node: Any) -> Iterator[Starred]:
    """What `*` stands for. Raises ProjectError, NotSupported."""
    star = node.this if isinstance(node, exp.Column) else node
    for part in ("replace", "rename", "ilike"):
        if star.args.get(part):
            raise refuse(source, node, f"* {part.upper()}", "name the columns")
    every = list(_every(source, scope, node))
    others = {one.alias.lower(): one.this for one in star.args.get("assigned") or []}
    left_out = [_left_out(source, scope, one, every) for one in star.args.get("except_") or []]
    known = {name.lower() for name, _ in every}
    if others.keys() - known:
        unknown = min(others.keys() - known)
        raise _not_there(source, node, unknown, [name for name, _ in every])
    for place, (name, column) in enumerate(every):
        rests = [rest for places, rest in left_out if place in places]
        if name.lower() in others:
            yield name, without_parentheses(others[name.lower()])
        elif not rests:
            yield name, column[0] if len(column) == 1 else _column(node, column)
        elif all(rests):
            yield name, _rest(source, node, column, _shape(scope, column), rests)


def _shape(scope: Scope, path: Sequence[str]) -> Shape | None:
    shape = shape_of(Expression.column(path[0]), scope.node)
    for name in path[1:]:
        shape = field_of(shape, name)
    return shape


def _every(source: SourceText, scope: Scope, node: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each column of `*` by name, with its path: a plan column, and fields below it."""
    names = _names(node)[:-1] if isinstance(node, exp.Column) else []
    fields = scope.star(*(name.lower() for name in names))
    if fields is not None:
        yield from ((field.written, (field.column,)) for field in fields)
        return
    written = ".".join(names)

    def wrong(message: str, expected: str, next_step: str = "") -> ProjectError:
        return ProjectError(
            message,
            position=source.position_of(node),
            expected=expected,
            found=f"{written}.*",
            next_step=next_step,
        )

    try:
        column, taken = scope.resolve(names)
    except AmbiguousError as error:
        one_of = f"one of {', '.join(error.candidates)}"
        raise wrong(f"the column {error.name!r} is ambiguous", one_of) from None
    except NoSuchColumnError:
        known = closest(names[-1], [one.alias for one in scope.relations if one.alias])
        raise wrong(
            f"there is no relation {names[-1]!r} in FROM",
            f"one of {', '.join(known)}, or a column that is a struct",
        ) from None
    path = (column, *names[taken:])
    shape = _shape(scope, path)
    if not isinstance(shape, StructShape):
        raise wrong(
            f"{written} is no struct whose fields are known",
            "a struct whose type a source declares, or that struct() makes",
            f"name them: {written}.a, {written}.b",
        )
    yield from ((name, (*path, name)) for name in shape.names)


def _names(node: Any) -> list[str]:
    return [part.name for part in identifier_parts(node)]


def _left_out(
    source: SourceText, scope: Scope, node: Any, every: Sequence[tuple[str, tuple[str, ...]]]
) -> tuple[set[int], list[str]]:
    """What a name behind EXCEPT means: places of columns, and the path of a field below them."""
    names = _names(node) or [node.name]
    paths = [column for _, column in every]
    rest = names[1:]
    places = {at for at, (name, _) in enumerate(every) if name.lower() == names[0].lower()}
    if rest and all(len(path) == 1 for path in paths):
        # a relation's own name comes before a column of that name
        try:
            column, taken = scope.resolve(names)
        except (NoSuchColumnError, AmbiguousError):
            places = set()
        else:
            rest = names[taken:]
            places = {at for at, path in enumerate(paths) if path == (column,)}
    if not places:
        raise _not_there(source, node, ".".join(names), [name for name, _ in every])
    return places, [name.lower() for name in rest]


def _rest(
    source: SourceText,
    node: Any,
    column: tuple[str, ...],
    shape: Shape | None,
    left_out: Sequence[list[str]],
) -> Any:
    """A struct without the fields that are left out, as struct() of the others."""
    names = shape.names if isinstance(shape, StructShape) else ()
    wrong = [path[0] for path in left_out if path[0] not in {name.lower() for name in names}]
    if wrong or not isinstance(shape, StructShape):
        raise _not_there(source, node, wrong[0], names)
    values = list[Any]()
    for name, inner in shape.fields:
        rests = [path[1:] for path in left_out if path[0] == name.lower()]
        path = (*column, name)
        if rests and not all(rests):
            continue
        value = _rest(source, node, path, inner, rests) if rests else _column(node, path)
        values.append(exp.Alias(this=value, alias=exp.to_identifier(name)))
    return copy_with_words(exp.Anonymous(this="struct", expressions=values), node)


def _column(like: Any, path: tuple[str, ...]) -> Any:
    """A column of the plan, or a field of it, in the place of what was written."""
    node = copy_with_words(exp.Column(this=exp.to_identifier(path[-1], quoted=True)), like)
    node.meta[MEANT] = path
    return node


def _not_there(source: SourceText, node: Any, name: str, known: Sequence[str]) -> ProjectError:
    return ProjectError(
        f"there is no column {name!r} to leave out",
        position=source.position_of(node),
        expected=f"one of {', '.join(known)}" if known else "a field of a struct that is known",
        found=name,
    )
