"""Expressions of Connect's protobuf as Spark SQL, over one frame.

An expression keeps the spelling that a person would give it: parentheses only where they are needed,
so that a view in Python and the same view in SQL have the same plan.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lockstep.errors import ProjectError
from lockstep.frames.context import Context
from lockstep.frames.frame import AmbiguousColumn, Column, Frame, NoColumn, quoted
from lockstep.frames.functions import is_of_a_group, python_function
from lockstep.frames.literals import literal_text, type_text
from lockstep.frames.marks import MarkedText, mark, without_marks
from lockstep.frames.operators import NEGATED, OPERATORS, PRIMARY, TEXT, Level, auto_name
from lockstep.sql.queries.functions import AGGREGATES, COLLECTED, GENERATORS
from lockstep.sql.words import read_item

__all__ = ["Expressions", "Sql", "name_parts"]

_PARTS = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")


def name_parts(name: str) -> list[str]:
    """`a.b` as its parts; backticks hold a part together."""
    return [
        quoted_part.replace("``", "`") if quoted_part else plain
        for quoted_part, plain in _PARTS.findall(name)
    ]


@dataclass(frozen=True)
class Sql:
    """An expression as SQL. `names` are those of its columns, '' where Spark makes one up.

    `column` is there where it is a column as it stands, `level` says how tightly it binds.
    """

    text: str
    level: Level = PRIMARY
    names: tuple[str, ...] = ("",)
    column: Column | None = None
    type: str = ""
    aggregates: bool = False
    generates: bool = False

    @property
    def name(self) -> str:
        return self.names[0] if len(self.names) == 1 else ""


@dataclass
class Expressions:
    """Renders expressions over a frame; `used` collects the columns of it that they read.

    `outer` are the expressions of the query around a subquery. `hidden` columns can be named by a
    filter and an order.
    """

    context: Context
    frame: Frame
    outer: Expressions | None = None
    hidden: bool = False
    used: list[Column] = field(default_factory=list)
    variables: Mapping[str, str] = field(default_factory=dict)

    def sql(self, expression: Any) -> Sql:
        """The SQL of an expression. Raises ProjectError, NotSupported."""
        line = self.context.line_of(expression)
        with self.context.at(line):
            found = self._sql(expression)
        if line is None or found.column is not None:
            return found
        return replace(found, text=mark(found.text, line))

    def text(self, expression: Any, level: Level = TEXT) -> str:
        """The words of an expression, in parentheses where it binds less tightly than `level`."""
        found = self.sql(expression)
        return f"({found.text})" if found.level < level else found.text

    def _sql(self, expression: Any) -> Sql:
        kind = expression.WhichOneof("expr_type")
        handler = _KINDS.get(kind)
        if handler is None:
            raise self.context.refuse(*_REFUSED.get(kind, (kind.replace("_", " "), "")))
        return handler(self, getattr(expression, kind))

    def _literal(self, literal: Any) -> Sql:
        try:
            text = literal_text(literal)
        except KeyError as error:
            raise self.context.refuse(
                f"a literal of the kind {error.args[0]}", "write it with F.expr(...)"
            ) from None
        return Sql(text, Level.UNARY if text.startswith("-") else PRIMARY, (auto_name(text),))

    # ── names ───────────────────────────────────────────────────────────────────────────────────

    def _star(self, star: Any) -> Sql:
        if star.unparsed_target:
            raise self.context.refuse(*_REFUSED["unresolved_star"])
        return Sql("*", names=("1",))

    def _attribute(self, attribute: Any) -> Sql:
        plan_id = attribute.plan_id if attribute.HasField("plan_id") else None
        return self._named(name_parts(attribute.unparsed_identifier), plan_id)

    def _named(self, parts: Sequence[str], plan_id: int | None = None) -> Sql:
        column, taken = self.column(parts, plan_id)
        fields = parts[taken:]
        if fields:
            text = ".".join([column.text, *map(quoted, fields)])
            return Sql(text, names=(fields[-1],))
        return self.sql_of(replace(column, name=parts[taken - 1]))

    def sql_of(self, column: Column) -> Sql:
        """A column of the frame as it stands."""
        return Sql(column.text, names=(column.name,), column=column, type=column.type)

    def column(self, parts: Sequence[str], plan_id: int | None = None) -> tuple[Column, int]:
        """The column that a name means, here or in the query around. Raises ProjectError."""
        at: Expressions | None = self
        while at is not None:
            try:
                found = (
                    at.frame.column(parts, hidden=at.hidden)
                    if plan_id is None
                    else at.frame.column_of(plan_id, parts)
                )
            except NoColumn:
                at = at.outer
            except AmbiguousColumn as error:
                raise self.context.error(
                    f"the column {error.name!r} is ambiguous",
                    expected="a name that one column has",
                    found=error.name,
                    next_step='write it as df["name"], or give the DataFrames aliases: '
                    'df.alias("x"), F.col("x.name")',
                ) from None
            else:
                at.used.append(found[0])
                return found
        raise self._no_column(parts, plan_id)

    def _no_column(self, parts: Sequence[str], plan_id: int | None) -> ProjectError:
        name = ".".join(parts)
        shown = [one.name for one in self.frame.shown if one.name]
        expected = f"one of {', '.join(shown)}" if shown else "a column of the DataFrame"
        if plan_id is None or plan_id in self.frame.nodes:
            return self.context.error(f"there is no column {name!r}", expected=expected, found=name)
        return self.context.error(
            f"the column {name!r} belongs to a DataFrame that is no part of this one",
            expected=expected,
            found=name,
            next_step=f"join with that DataFrame first, or write F.col({name!r})",
        )

    # ── functions ───────────────────────────────────────────────────────────────────────────────

    def _function(self, function: Any) -> Sql:
        name = function.function_name
        if function.is_internal or function.is_user_defined_function:
            raise self.context.refuse(
                f"the function {name}, which is not one of Spark's SQL functions,",
                "write it with functions that Spark SQL has: F.expr(...)",
            )
        inner = function.arguments[0].unresolved_function if name == "not" else None
        if inner is not None and inner.function_name in NEGATED:
            name, function = NEGATED[inner.function_name], inner
        arguments = [self.sql(one) for one in function.arguments]
        operator = OPERATORS.get(name)
        if operator is not None:
            text, level = operator([(one.text, one.level) for one in arguments])
            named = auto_name(name, [one.name for one in arguments])
            aggregates = any(one.aggregates for one in arguments)
            return Sql(text, level, (named,), aggregates=aggregates)
        return self._call(name, arguments, "DISTINCT " if function.is_distinct else "")

    def _call_function(self, function: Any) -> Sql:
        return self._call(function.function_name, [self.sql(one) for one in function.arguments])

    def _call(self, name: str, arguments: Sequence[Sql], distinct: str = "") -> Sql:
        name = _SPELLED.get(name, name).lower()
        # a struct's fields are named by its arguments, which have other names inside the SQL
        listed = [_field(one) if name == "struct" else one.text for one in arguments]
        names: tuple[str, ...] = (
            auto_name(f"{name} {distinct}".strip(), [one.name for one in arguments]),
        )
        generates = name in GENERATORS
        if generates:
            names = GENERATORS[name]
            if name.startswith("explode") and arguments[0].type.startswith("MAP"):
                names = ("key", "value")
        text = f"{name}({distinct}{', '.join(listed)})"
        inside = any(one.aggregates for one in arguments)
        aggregates = inside or name in AGGREGATES or name in COLLECTED
        type_ = "BIGINT" if name == "count" else ""
        return Sql(text, PRIMARY, names, None, type_, aggregates, generates)

    def _words(self, string: Any) -> Sql:
        """F.expr, selectExpr, filter with a text: the person's own words, with other names."""
        words = string.expression

        def resolve(parts: Sequence[str]) -> str:
            column, taken = self.column(parts)
            return ".".join([column.text, *map(quoted, parts[taken:])])

        position = self.context.position
        item = read_item(MarkedText(words, position), resolve, f"the expression {words!r}")
        if item.star is not None:
            raise self.context.refuse("* in F.expr", 'write "*" as an item of select of its own')
        if item.column and item.names[0]:
            found = self._named(item.column)
            return (
                found
                if found.names == item.names
                else replace(found, names=item.names, column=None)
            )
        return Sql(
            item.text, TEXT, item.names, aggregates=item.aggregates, generates=item.generates
        )

    def _cast(self, cast: Any) -> Sql:
        child = self.sql(cast.expr)
        type_ = cast.type_str if cast.HasField("type_str") else type_text(cast.type)
        function = "TRY_CAST" if cast.eval_mode == 3 else "CAST"
        name = child.name if child.column is not None else ""
        text = f"{function}({child.text} AS {type_})"
        return Sql(text, names=(name,), type=type_.upper(), aggregates=child.aggregates)

    def _alias(self, alias: Any) -> Sql:
        return replace(self.sql(alias.expr), names=tuple(alias.name), column=None)

    def _item(self, extract: Any) -> Sql:
        return Sql(f"{self.text(extract.child, PRIMARY)}[{self.text(extract.extraction)}]")

    def _argument(self, argument: Any) -> Sql:
        return Sql(f"{argument.key} => {self.text(argument.value)}", TEXT)

    def _variable(self, variable: Any) -> Sql:
        name = ".".join(variable.name_parts)
        return Sql(self.variables.get(name, name))

    def _lambda(self, function: Any) -> Sql:
        variables, names = dict(self.variables), []
        for one in function.arguments:
            # pyspark numbers them over the whole process: x_0, x_1
            written = ".".join(one.name_parts)
            wanted = re.sub(r"_\d+$", "", written)
            taken = set(variables.values())
            depth = next(
                n for n in range(1, 99) if (f"{wanted}{n}" if n > 1 else wanted) not in taken
            )
            variables[written] = f"{wanted}{depth}" if depth > 1 else wanted
            names.append(variables[written])
        inside = replace(self, variables=variables)
        body = inside.text(function.function)
        listed = names[0] if len(names) == 1 else f"({', '.join(names)})"
        return Sql(f"{listed} -> {body}", TEXT)

    def _window(self, window: Any) -> Sql:
        parts = []
        if window.partition_spec:
            parts.append("PARTITION BY " + ", ".join(map(self.text, window.partition_spec)))
        if window.order_spec:
            parts.append("ORDER BY " + ", ".join(map(self.sorted, window.order_spec)))
        if window.HasField("frame_spec"):
            parts.append(self._frame_spec(window.frame_spec))
        over = f" OVER ({' '.join(parts)})"
        python = window.window_function.common_inline_user_defined_function
        if is_of_a_group(python):
            return self._user_function(python, over)
        return Sql(self.sql(window.window_function).text + over)

    def sorted(self, order: Any) -> str:
        """A key of ORDER BY."""
        return self.text(order.child) + direction_of(order)

    def _frame_spec(self, spec: Any) -> str:
        unit = "ROWS" if spec.frame_type == 1 else "RANGE"
        lower = self._bound(spec.lower, "PRECEDING")
        return f"{unit} BETWEEN {lower} AND {self._bound(spec.upper, 'FOLLOWING')}"

    def _bound(self, bound: Any, side: str) -> str:
        if bound.current_row:
            return "CURRENT ROW"
        if bound.unbounded:
            return f"UNBOUNDED {side}"
        text = without_marks(self.text(bound.value)).removesuffix("L")
        if text.lstrip("-").isdigit():
            number = int(text)
            return f"{abs(number)} {'PRECEDING' if number < 0 else 'FOLLOWING'}"
        return f"{text} {side}"

    # ── more than expressions ───────────────────────────────────────────────────────────────────

    def _subquery(self, subquery: Any) -> Sql:
        kind = subquery.SubqueryType.Name(subquery.subquery_type).removeprefix("SUBQUERY_TYPE_")
        if kind == "TABLE_ARG":
            raise self.context.refuse("a table as an argument", "write it with joins")
        inner = self.context.subquery(subquery.plan_id, self)
        if kind == "IN":
            values = [self.text(one, Level.BITS) for one in subquery.in_subquery_values]
            left = values[0] if len(values) == 1 else f"({', '.join(values)})"
            return Sql(f"{left} IN ({inner})", Level.COMPARISON)
        return Sql(f"EXISTS ({inner})" if kind == "EXISTS" else f"({inner})")

    def _user_function(self, function: Any, over: str = "") -> Sql:
        called, shown = python_function(function, self.context)
        arguments = [self.sql(one) for one in function.arguments]
        listed = ", ".join(one.text for one in arguments)
        aggregates = any(one.aggregates for one in arguments)
        if is_of_a_group(function):
            fields = ", ".join(f"'{at}', {one.text}" for at, one in enumerate(arguments))
            listed = f"collect_list(named_struct({fields})){over}"
            aggregates = not over
        named = f"{shown}({', '.join(one.name for one in arguments)})"
        return Sql(f"{called}({listed})", PRIMARY, (named,), aggregates=aggregates)


def direction_of(order: Any) -> str:
    """What stands behind a sort key; Spark's defaults are left out."""
    descending, last = order.direction == 2, order.null_ordering == 2
    text = " DESC" if descending else ""
    if order.null_ordering and last != descending:
        text += " NULLS LAST" if last else " NULLS FIRST"
    return text


def _field(one: Sql) -> str:
    name = one.names[0]
    plain = without_marks(one.text)
    return (
        one.text
        if not name or plain.endswith(f".{quoted(name)}")
        else f"{one.text} AS {quoted(name)}"
    )


_KINDS: Mapping[str, Callable[[Expressions, Any], Sql]] = {
    "literal": Expressions._literal,
    "unresolved_attribute": Expressions._attribute,
    "unresolved_function": Expressions._function,
    "call_function": Expressions._call_function,
    "expression_string": Expressions._words,
    "alias": Expressions._alias,
    "cast": Expressions._cast,
    "window": Expressions._window,
    "lambda_function": Expressions._lambda,
    "unresolved_named_lambda_variable": Expressions._variable,
    "unresolved_extract_value": Expressions._item,
    "unresolved_star": Expressions._star,
    "named_argument_expression": Expressions._argument,
    "subquery_expression": Expressions._subquery,
    "common_inline_user_defined_function": Expressions._user_function,
}

# Names that the DataFrame API has for functions that SQL calls otherwise.
_SPELLED = {
    "isNaN": "isnan",
    "startsWith": "startswith",
    "endsWith": "endswith",
    "extract": "date_part",
}
_REFUSED = {
    "unresolved_star": ("the fields of a struct as `s.*`", 'name them: F.col("s.field")'),
    "unresolved_regex": ("colRegex", "name the columns"),
    "update_fields": (
        "withField or dropFields",
        "build the struct anew: F.struct(F.col('s.a'), ...)",
    ),
    "typed_aggregate_expression": ("a typed aggregate", "use an aggregate function of Spark SQL"),
    "direct_shuffle_partition_id": ("a choice of partitions", "leave it out"),
    "merge_action": ("MERGE", "write a view"),
    "sort_order": ("an order here", "sort with orderBy, or inside a window"),
    "extension": ("an extension of Spark Connect", "write it in Spark SQL"),
}
