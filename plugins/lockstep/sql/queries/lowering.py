"""Expressions: from syntax to Spark SQL text over the columns of one relation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlglot import exp

from lockstep.errors import ProjectError
from lockstep.sql.names import fresh_name
from lockstep.sql.plans.expressions import as_operand
from lockstep.sql.plans.nodes import Expression
from lockstep.sql.plans.terms import text_literal
from lockstep.sql.queries.functions import (
    check_supported,
    is_aggregate,
    is_generator,
    is_session,
    is_window,
    refuse,
)
from lockstep.sql.queries.scope import AmbiguousError, NoSuchColumnError, Scope
from lockstep.sql.queries.stars import is_star, starred
from lockstep.sql.reading.clocks import clock_text
from lockstep.sql.reading.syntax import SourceText
from lockstep.sql.reading.tokens import is_plain_name
from lockstep.sql.reading.trees import (
    MEANT,
    function_name,
    identifier_parts,
    without_parentheses,
)

__all__ = ["ExpressionLowering", "column_error", "quoted", "resolved", "with_fields"]


def quoted(name: str) -> str:
    """A name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def column_error(
    source: SourceText, node: Any, error: NoSuchColumnError | AmbiguousError
) -> ProjectError:
    """The message for a name that no column, or more than one, has."""
    if isinstance(error, AmbiguousError):
        return ProjectError(
            f"the column {error.name!r} is ambiguous",
            position=source.position_of(node),
            expected=f"one of {', '.join(error.candidates)}",
            found=error.name,
            next_step="write the relation's name before the column",
        )
    return ProjectError(
        f"there is no column {error.name!r}",
        position=source.position_of(node),
        expected=f"one of {', '.join(error.candidates)}"
        if error.candidates
        else "a column of FROM",
        found=error.name,
    )


def resolved(scope: Scope, node: Any) -> tuple[str, list[str]]:
    """The plan's column that a name means, and the fields below it. Raises NoSuchColumnError,
    AmbiguousError."""
    if MEANT in node.meta:
        column, *fields = node.meta[MEANT]
        return column, fields
    names = [part.name for part in identifier_parts(node)]
    column, taken = scope.resolve(names)
    return column, names[taken:]


class ExpressionLowering:
    """Lowers the expressions of one SELECT over one scope.

    `aliases` are the names that earlier items of the SELECT list have (lower case), which Spark
    lets later items use where no column has the name.
    """

    def __init__(self, source: SourceText, scope: Scope) -> None:
        self.source = source
        self.scope = scope
        self.aliases: dict[str, Expression] = {}

    def lower(
        self, node: Any, special: Callable[[Any], Expression | None] | None = None
    ) -> Expression:
        """The text of `node`; `special` may give an expression for a part, which then stands for it.

        Raises ProjectError on names that mean nothing or too much, NotSupported.
        """
        check_supported(self.source, node)
        references: list[str] = []
        renamed = self._lambda_names(node)

        def meant(part: Any) -> str | None:
            if special is not None and (found := special(part)) is not None:
                references.extend(found.references)
                return found.text if found.is_column or part is node else f"({found.text})"
            if id(part) in renamed:
                return renamed[id(part)]
            if is_star(part) and isinstance(part.parent, exp.Anonymous | exp.In):
                columns = [column for _, column in self.starred(part)]
                references.extend(name for one in columns for name in one.references)
                return ", ".join(one.text for one in columns)
            is_row = isinstance(part, exp.Tuple) and (
                part is node or isinstance(part.parent, exp.Anonymous)
            )
            if is_row or function_name(part) == "struct":
                return self._struct(part, meant, references)
            if function_name(part) == "arrays_zip" and any(map(_field_name, part.expressions)):
                return self._zipped(part, meant)
            if isinstance(part, exp.JSONExtract):
                return self.source.render(part.this, meant) + self.source.path_of(part)
            if isinstance(part, exp.Column):
                found = self.column(part)
                references.extend(found.references)
                return found.text
            if clock := clock_text(part):
                return clock
            self._check_part(part)
            return None

        text = self.source.render(node, meant)
        return Expression(text, tuple(dict.fromkeys(references)))

    def starred(self, node: Any) -> list[tuple[str, Expression]]:
        """The columns of `*` as arguments of a function, with their names."""
        return [
            (name, Expression.column(one) if isinstance(one, str) else self.lower(one))
            for name, one in starred(self.source, self.scope, node)
        ]

    def _struct(self, node: Any, meant: Callable[[Any], str | None], references: list[str]) -> str:
        """struct(a, x.b), or (a, x.b): its fields have the names that stand there, whatever the plan's
        columns are called, and whatever expression comes to stand in the place of one."""
        fields = list[tuple[str, str]]()
        for one in node.expressions:
            if is_star(one):
                columns = self.starred(one)
                references.extend(ref for _, column in columns for ref in column.references)
                fields += [(name, column.text) for name, column in columns]
                continue
            value = one.this if isinstance(one, exp.Alias) else without_parentheses(one)
            name = _field_name(one) or f"col{len(fields) + 1}"
            fields.append((name, self.source.render(value, meant)))
        return _struct_of(fields)

    def _zipped(self, node: Any, meant: Callable[[Any], str | None]) -> str:
        """arrays_zip(a, b): the fields of its structs have names like those of struct(), and places."""
        values = (self.source.render(one, meant) for one in node.expressions)
        zipped = f"arrays_zip({', '.join(f'coalesce({value})' for value in values)})"
        row = fresh_name("zipped", self.scope.node.columns)
        fields = [
            (_field_name(one) or str(place), f"{row}.`{place}`")
            for place, one in enumerate(node.expressions)
        ]
        return f"transform({zipped}, {row} -> {_struct_of(fields)})"

    def column(self, node: Any) -> Expression:
        """What a column's name means, with the struct fields that follow it."""
        parts = identifier_parts(node)
        if any(isinstance(part, exp.Star) for part in parts):
            raise refuse(self.source, node, "`*` inside an expression", "name the columns")
        names = [part.name for part in parts]
        try:
            column, fields = resolved(self.scope, node)
            return with_fields(Expression.column(column), fields)
        except NoSuchColumnError as error:
            alias = self.aliases.get(names[0].lower())
            if alias is None:
                raise column_error(self.source, node, error) from None
            return with_fields(alias, names[1:])
        except AmbiguousError as error:
            raise column_error(self.source, node, error) from None

    def _check_part(self, part: Any) -> None:
        if isinstance(part, exp.Star):
            raise refuse(self.source, part, "`*` inside an expression", "name the columns")
        if isinstance(part, exp.Window):
            raise ProjectError(
                "a window function can't stand here",
                position=self.source.position_of(part),
                expected="OVER in the SELECT list, in QUALIFY or in ORDER BY, and not in another OVER",
                found=self.source.words_of(part),
                next_step="compute it in a subquery or a view first, or filter with QUALIFY",
            )
        if isinstance(part, exp.Query):
            raise refuse(
                self.source,
                part,
                "a subquery here",
                "write it as a view or a subquery in FROM, and join with it",
            )
        if is_generator(part):
            raise ProjectError(
                "a function that makes rows can't stand here",
                position=self.source.position_of(part),
                expected="one of them in the SELECT list, by itself, or LATERAL VIEW",
                found=self.source.words_of(part),
                next_step="write LATERAL VIEW, and use its column",
            )
        if is_aggregate(part):
            raise ProjectError(
                "an aggregate can't stand here",
                position=self.source.position_of(part),
                expected="aggregates in the SELECT list or in HAVING, and not inside one another",
                found=self.source.words_of(part),
                next_step="compute it in a subquery or a view first",
            )
        if is_session(part):
            raise ProjectError(
                "session_window can't stand here",
                position=self.source.position_of(part),
                expected="GROUP BY session_window(ts, gap), and the same call in the SELECT list",
                found=self.source.words_of(part),
            )
        if is_window(part):
            raise refuse(
                self.source, part, "window() here", "write it in the SELECT list or in GROUP BY"
            )

    def _lambda_names(self, node: Any) -> Mapping[int, str]:
        """New names for lambda parameters that a column of the plan also has, per identifier."""
        names: dict[int, str] = {}
        taken = set(self.scope.node.columns)
        for function in node.find_all(exp.Lambda):
            parameters = {part.name.lower(): part for part in function.expressions}
            for name in parameters:
                new = fresh_name(name, taken)
                new = new if new.isidentifier() else quoted(new)
                for part in function.find_all(exp.Identifier):
                    is_field = isinstance(part.parent, exp.Dot) and part.arg_key == "expression"
                    if (
                        part.name.lower() == name
                        and not is_field
                        and not isinstance(part.parent, exp.Column)
                    ):
                        names[id(part)] = new
        return names


def _struct_of(fields: Sequence[tuple[str, str]]) -> str:
    """A struct of values by name."""
    if all(is_plain_name(name) for name, _ in fields):
        return f"struct({', '.join(f'{value} AS {name}' for name, value in fields)})"
    # A name in backticks would look like a column.
    pairs = (f"{text_literal(name)}, {value}" for name, value in fields)
    return f"named_struct({', '.join(pairs)})"


def _field_name(node: Any) -> str:
    """The name that Spark gives to a field of struct(); '' where that is its number."""
    node = without_parentheses(node)
    if isinstance(node, exp.Alias):
        return str(node.alias)
    if isinstance(node, exp.Dot):
        return str(node.expression.name)
    return str(node.name) if isinstance(node, exp.Column | exp.Identifier) else ""


def with_fields(base: Expression, fields: list[str]) -> Expression:
    """Access to a field of a struct, `base`.field; without fields what stands for a column."""
    tail = "".join(f".{name if name.isidentifier() else quoted(name)}" for name in fields)
    return Expression(as_operand(base) + tail, base.references)
