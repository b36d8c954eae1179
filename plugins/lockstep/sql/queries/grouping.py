"""GROUP BY: keys and aggregate calls of one SELECT, and the nodes that they become.

Keys and arguments that are expressions are projected below the aggregate; what stands around the
aggregates in the SELECT list is projected above.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from sqlglot import exp

from lockstep.errors import ProjectError
from lockstep.sql.names import fresh_name
from lockstep.sql.plans.columns import as_they_are
from lockstep.sql.plans.expressions import substitute
from lockstep.sql.plans.nesting import shape_of
from lockstep.sql.plans.nodes import (
    AggregateFunction,
    Expression,
    Filter,
    Node,
    Output,
    Project,
    SortKey,
    UnionAll,
)
from lockstep.sql.plans.shapes import Shape
from lockstep.sql.queries.distinct import (
    Filtered,
    GroupedCall,
    case,
    grouped,
    with_conditions,
)
from lockstep.sql.queries.functions import (
    AGGREGATES,
    COLLECTED,
    aggregates_around,
    arguments_of,
    bare_call,
    contains_aggregate,
    is_aggregate,
    refuse,
)
from lockstep.sql.queries.lowering import (
    ExpressionLowering,
    column_error,
    resolved,
    with_fields,
)
from lockstep.sql.queries.scope import (
    AmbiguousError,
    Field,
    NoSuchColumnError,
    Relation,
    Scope,
)
from lockstep.sql.queries.stars import is_star
from lockstep.sql.queries.windows import sort_keys
from lockstep.sql.reading.syntax import SourceText
from lockstep.sql.reading.trees import (
    copy_with_words,
    function_name,
    identifier_parts,
)

__all__ = ["Grouping"]

Special = Callable[[Any], Expression | None]

_NO_KEY = (exp.Identifier, exp.Literal, exp.DataType, exp.Var, exp.Star, exp.Boolean, exp.Null)
_GROUPING_ID = "_grouping_id"
_ROWS = "_rows_of_all"
_COUNTED = GroupedCall(_ROWS, AggregateFunction.COUNT, None)
_KEPT = "kept"
_KEEPS_NULLS = frozenset({"first", "first_value", "last", "last_value", "any_value"})
_READS_ORDER = frozenset({"percentile_cont", "percentile_disc", "mode"})
"""With WITHIN GROUP, these are aggregates of the key of its order."""


class Grouping:
    """Collects keys with `add_key`, then rewrites SELECT items with `output`; `build` ends it.

    `below` gives expressions for parts of keys and of arguments (a time window, a subquery); columns
    of a query around are keys before all others. `named` are items of the SELECT list by their names
    (lower case), which stand inside keys for columns that there are not.
    """

    def __init__(
        self,
        source: SourceText,
        scope: Scope,
        below: Special,
        named: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.source = source
        self.scope = scope
        self.aliases: dict[str, Expression] = {}
        self.is_having = False  # where items of the list go before columns that are no keys
        self._special = below
        self._named = named
        self._lowering = ExpressionLowering(source, scope)
        self._keys: dict[str, str] = {}
        self._below: dict[str, Expression] = {}
        self._calls: list[GroupedCall] = []
        self._sets: list[tuple[str, ...]] = []
        self._seen: dict[str, str] = {}
        self._carried = tuple(self.add_key(name) for name in scope.carried)

    def add_key(self, key: Any) -> str:
        """One expression of GROUP BY, or the name of a plan column; returns the key's column."""
        expression = Expression.column(key) if isinstance(key, str) else self._lower_key(key)
        if expression.text not in self._keys:
            self._keys[expression.text] = self._project(expression, "_key")
        return self._keys[expression.text]

    def add_sets(self, sets: Sequence[Sequence[Any]]) -> None:
        """GROUPING SETS: the output is that of each set of keys, the other keys null."""
        self._sets = [tuple(self.add_key(key) for key in one) for one in sets]

    def output(self, node: Any, column: str, special: Special = lambda _: None) -> Expression:
        """A SELECT item (or HAVING) over the aggregate's output; `column` stands for one from `*`.

        `special` gives expressions for parts that are computed above the aggregate.
        """
        if node is None:
            expression = Expression.column(column)
            if expression.text not in self._keys:
                raise self._not_grouped(column, self.source.position(0))
            return expression
        return self._lowering.lower(node, lambda part: special(part) or self._above(part))

    def build(self) -> Node:
        """The aggregate over the projection of what it needs."""
        keys = tuple(dict.fromkeys(self._keys.values()))
        needed = [Output(name, expression) for name, expression in self._below.items()]
        # count(*) over everything needs no column, but a relation needs one
        needed = needed or [Output("_one", Expression("1"))]
        calls, outputs = with_conditions(self._calls, needed)
        if not self._sets:
            # HAVING alone makes one group of all rows
            rows = [] if keys or calls else [_COUNTED]
            return grouped(Project(self.scope.node, tuple(outputs)), keys, [*calls, *rows])
        outputs, nulls = self._of_sets(calls, outputs)
        below = Project(self.scope.node, tuple(outputs))
        branches = tuple(self._one_set(below, nulls, calls, one) for one in self._sets)
        return branches[0] if len(branches) == 1 else UnionAll(branches)

    def shape(self, expression: Expression) -> Shape | None:
        """What fields an expression over the groups has."""
        return shape_of(expression, self.build()) if self._keys or self._calls else None

    def _of_sets(
        self, calls: Sequence[GroupedCall], outputs: Sequence[Output]
    ) -> tuple[Sequence[Output], Mapping[str, str]]:
        """A key that is in no set is null in all rows, of its own type: the outputs, with columns that
        are so, and these by key. An aggregate of such a key reads it as it is."""
        read = {name for call in calls for name in call.read}
        found, nulls = dict[str, Output](), dict[str, str]()
        for one in outputs:
            found[one.name] = one
            if one.name in self._set_keys() and not any(one.name in keys for keys in self._sets):
                taken = [other.name for other in outputs]
                name = fresh_name(f"_no_{one.name}", taken) if one.name in read else one.name
                null = f"CASE WHEN FALSE THEN {one.expression.text} END"
                found[name] = Output(name, Expression(null, one.expression.references))
                nulls[one.name] = name
        return list(found.values()), nulls

    @property
    def has_no_keys(self) -> bool:
        """True where every row (of one row around) is in one group, which is there even if empty."""
        return len(self._keys) == len(self._carried) and not self._sets

    @property
    def calls(self) -> tuple[str, ...]:
        """The columns of the aggregates."""
        return tuple(call.name for call in self._calls)

    def over_nothing(self, outputs: Sequence[Expression]) -> tuple[Expression, ...] | None:
        """Each output where there is no row to aggregate; None where a window is among them."""
        values = {call.name: Expression(call.call.over_nothing) for call in self._calls}
        values.update((name, Expression.column(name)) for name in self._carried)
        if any(name not in values for output in outputs for name in output.references):
            return None
        found: list[Expression] = []
        for output in outputs:
            value = substitute(output, values)
            assert value is not None, "a literal is captured by no lambda"
            found.append(value)
        return tuple(found)

    def seen_from(self, query: Any) -> Any:
        """A subquery above the aggregate, with names in the place of the aggregates of this query in it:
        those in its WHERE and ON, where none of its own can stand, and to the left of IN."""
        if next(aggregates_around(query), None) is None:
            return query
        copied = query.copy()
        for call in list(aggregates_around(copied)):
            column = self._call(call)
            name = self._seen.setdefault(column, f"{column} of the groups")
            call.replace(copy_with_words(exp.column(exp.to_identifier(name, quoted=True)), call))
        return copied

    def scope_above(self, node: Node) -> Scope:
        """What a subquery above the aggregate can read of this query: the keys, and the aggregates under
        the names that `seen_from` gave them."""
        relations = (
            replace(one, fields=tuple(f for f in one.fields if f.column in node.columns))
            for one in self.scope.relations
        )
        aggregates = tuple(Field(name, column) for column, name in self._seen.items())
        return replace(self.scope, node=node, relations=(*relations, Relation(None, aggregates)))

    def _one_set(
        self,
        below: Node,
        nulls: Mapping[str, str],
        calls: Sequence[GroupedCall],
        wanted: tuple[str, ...],
    ) -> Node:
        """The groups of one grouping set, as rows of all; `nulls` are the keys that are in none."""
        used = tuple(dict.fromkeys((*self._carried, *wanted)))
        shown = (*used, *nulls.values())
        if shown:
            node = grouped(below, shown, calls)
        else:
            # as in Spark, the set of no keys has no row where there is no row to group
            there = Expression(f"`{_ROWS}` > 0", (_ROWS,))
            node = Filter(grouped(below, shown, [*calls, _COUNTED]), there)
        columns = {**{key: key for key in used}, **nulls}
        outputs = [
            Output(key, Expression.column(columns[key]) if key in columns else Expression("NULL"))
            for key in dict.fromkeys(self._keys.values())
        ]
        outputs += as_they_are(self.calls)
        left_out = [int(key not in used) for key in self._set_keys()]
        number = sum(bit << place for place, bit in enumerate(reversed(left_out)))
        outputs.append(Output(_GROUPING_ID, Expression(f"{number}L")))
        return Project(node, tuple(outputs))

    def _set_keys(self) -> list[str]:
        """The keys of GROUP BY in the order in which grouping_id counts them."""
        return [k for k in dict.fromkeys(self._keys.values()) if k not in self._carried]

    def _lower(self, node: Any) -> Expression:
        return self._lowering.lower(node, self._special)

    def _lower_key(self, key: Any) -> Expression:
        names = {one.name.lower() for one in key.find_all(exp.Column)} & self._named.keys()
        lowering = ExpressionLowering(self.source, self.scope)
        lowering.aliases = {n: self._lower(self._named[n]) for n in names if not self.scope.has(n)}
        return lowering.lower(key, self._special)

    def _project(self, expression: Expression, prefix: str) -> str:
        """The column below the aggregate that holds an expression."""
        for name, known in self._below.items():
            if known == expression:
                return name
        if expression.is_column:
            name = expression.references[0]
        else:
            number = sum(name.startswith(prefix) for name in self._below)
            name = fresh_name(f"{prefix}{number}", {*self._below, *self.scope.node.columns})
        self._below[name] = expression
        return name

    def _above(self, part: Any) -> Expression | None:
        """What stands above the aggregate for a part of an item."""
        if is_aggregate(part):
            return Expression.column(self._call(part))
        if self._sets and function_name(part) in ("grouping", "grouping_id"):
            return self._grouping_bits(part)
        if isinstance(part, _NO_KEY) or not isinstance(part, exp.Expr):
            return None
        below = self._special(part)
        if below is not None and below.text in self._keys:
            return Expression.column(self._keys[below.text])
        if not contains_aggregate(part) and not isinstance(part, exp.Query):
            for text in self._texts(part):
                if text in self._keys:
                    return Expression.column(self._keys[text])
        return self._key_column(part) if isinstance(part, exp.Column) else None

    def _texts(self, node: Any) -> Iterator[str]:
        """How a key that is equal to the node can be written."""
        try:
            yield self._lower(node).text
            if isinstance(node, exp.Add | exp.Mul) and not isinstance(node.this, exp.Binary):
                sign = "+" if isinstance(node, exp.Add) else "*"
                yield f"{self._lower(node.expression).text} {sign} {self._lower(node.this).text}"
        except ProjectError:
            return

    def _grouping_bits(self, node: Any) -> Expression:
        """grouping(key): 1 where the row is of a set without the key; grouping_id(): all of them."""
        wanted = [self._known_key(one) for one in node.expressions]
        kind = "TINYINT" if function_name(node) == "grouping" else "BIGINT"
        return self._bits_of(wanted or self._set_keys(), kind)

    def _known_key(self, node: Any) -> str:
        """The column of a key of GROUP BY."""
        column = self._keys.get(self._lower(node).text)
        if column is None:
            raise self._not_grouped(self.source.words_of(node), self.source.position_of(node))
        return column

    def _bits_of(self, wanted: Sequence[str], kind: str) -> Expression:
        keys = self._set_keys()
        bits = [
            f"shiftleft(shiftright(`{_GROUPING_ID}`, {len(keys) - 1 - keys.index(key)}) & 1L, "
            f"{len(wanted) - 1 - place})"
            for place, key in enumerate(wanted)
        ]
        return Expression(f"CAST({' + '.join(bits)} AS {kind})", (_GROUPING_ID,))

    def _key_column(self, node: Any) -> Expression:
        names = [part.name for part in identifier_parts(node)]
        alias = self.aliases.get(names[0].lower())
        of_list = alias if self.is_having and len(names) == 1 else None
        try:
            column, fields = resolved(self.scope, node)
        except NoSuchColumnError as error:
            if self._sets and alias is None and names[0].lower() == "grouping__id":
                return self._bits_of(self._set_keys(), "BIGINT")
            if alias is None:
                raise column_error(self.source, node, error) from None
            return with_fields(alias, names[1:])
        except AmbiguousError as error:
            if of_list is None:
                raise column_error(self.source, node, error) from None
            return of_list
        if f"`{column}`" not in self._keys and of_list is not None:
            return of_list
        if f"`{column}`" not in self._keys:
            raise self._not_grouped(".".join(names), self.source.position_of(node))
        return with_fields(Expression.column(self._keys[f"`{column}`"]), fields)

    def _not_grouped(self, name: str, position: Any) -> ProjectError:
        keys = [text for text, key in self._keys.items() if key not in self._carried]
        return ProjectError(
            f"the column {name!r} is neither in GROUP BY nor inside an aggregate",
            position=position,
            expected=f"a key ({', '.join(keys) or 'there is none'}) or an aggregate",
            found=name,
            next_step=f"add {name} to GROUP BY, or write min({name})",
        )

    def _call(self, node: Any) -> str:
        """The column of an aggregate; equal calls are one."""
        name = function_name(bare_call(node))
        call = self._collected(node) if name in COLLECTED else self._maintained(node)
        for known in self._calls:
            if replace(known, name="", node=None) == replace(call, name="", node=None):
                return known.name
        wanted = [name if name in COLLECTED else call.function.value]
        wanted += ["distinct" if call.distinct else "", (call.argument or "").lstrip("_")]
        taken = {*self._keys.values(), *(known.name for known in self._calls)}
        call = replace(call, name=fresh_name("_".join(word for word in wanted if word), taken))
        self._calls.append(call)
        return call.name

    def _maintained(self, node: Any) -> GroupedCall:
        """One of the aggregates that are kept up to date from sums or from the values."""
        condition = None
        if isinstance(node, exp.Filter):
            condition = self._lower(node.expression.this)
            node = node.this
        if bare_call(node) is not node:
            raise refuse(self.source, node, "this after an aggregate", "leave it out")
        function = AGGREGATES[function_name(node)]
        arguments, distinct = arguments_of(node)
        argument = self._argument(node, arguments, function, distinct)
        if function_name(node) == "count_if" and argument is not None:
            argument = case(argument, Expression("1"))
        distinct = distinct and not function.is_extreme  # min(DISTINCT x) is min(x)
        filtered = None
        if condition is not None:
            if distinct and argument and argument.is_column:
                filtered = Filtered(argument.references[0], condition)
            argument = case(condition, argument or Expression("1"))
        column = self._project(argument, "_arg") if argument else None
        return GroupedCall("", function, column, distinct=distinct, node=node, filtered=filtered)

    def _collected(self, node: Any) -> GroupedCall:
        """Any other aggregate: Spark's own function over the rows of the group, as it stands.

        FILTER becomes a part of what the function reads, as Spark loses it where a sort takes the
        place of a hash table (`spark.sql.execution.replaceHashWithSortAgg`, 4.1.3).
        """
        call = bare_call(node)
        name = function_name(call)
        arguments, distinct = arguments_of(call)
        around, condition, ignores_nulls, order = node, None, False, None
        while around is not call:
            match around:
                case exp.Filter():
                    condition = self._lower(around.expression.this)
                case exp.IgnoreNulls():
                    ignores_nulls = True
                case exp.WithinGroup():
                    order = around.expression
                case _:
                    pass
            around = around.this
        values = self._lowered(arguments)
        keys = list(sort_keys(order, self._lower))
        if condition is not None:
            ignores_nulls |= _filter(name, condition, values, keys)
        values = [self._column_of(one) for one in values]
        keys = [replace(key, expression=self._column_of(key.expression)) for key in keys]
        text = f"{name}({', '.join(one.text for one in values)})"
        text += " IGNORE NULLS" if ignores_nulls else ""
        if keys:
            text += f" WITHIN GROUP (ORDER BY {', '.join(key.text for key in keys)})"
        if condition is not None and name in _KEEPS_NULLS:
            text = f"({text}).{_KEPT}"
        read = [*values, *(key.expression for key in keys)]
        references = tuple(dict.fromkeys(name for one in read for name in one.references))
        return GroupedCall(
            "",
            AggregateFunction.COLLECTED,
            None,
            Expression(text, references),
            COLLECTED[name],
            distinct,
            node,
        )

    def _column_of(self, expression: Expression) -> Expression:
        """An argument as a column below, or as it is where it reads nothing."""
        if not expression.references:
            return expression
        return Expression.column(self._project(expression, "_arg"))

    def _argument(
        self, node: Any, arguments: list[Any], function: AggregateFunction, distinct: bool
    ) -> Expression | None:
        name = function_name(node)
        counts = function is AggregateFunction.COUNT and name == "count"
        if counts and len(arguments) == 1:
            [only] = arguments
            if not distinct and isinstance(only, exp.Star | exp.Literal | exp.Boolean):
                return None
            if isinstance(only, exp.Column) and is_star(only):
                raise refuse(
                    self.source,
                    node,
                    "count(t.*), which Spark does not compute either,",
                    "write count(*), or name the columns",
                )
        parts = self._lowered(arguments)
        if counts and len(parts) > 1:
            # the rows in which none is null; of DISTINCT, each such combination once
            test = " AND ".join(f"({part.text}) IS NOT NULL" for part in parts)
            value = f"struct({', '.join(part.text for part in parts)})" if distinct else "1"
            references = tuple(dict.fromkeys(name for part in parts for name in part.references))
            return case(Expression(test, references), Expression(value, references))
        if len(parts) != 1:
            raise ProjectError(
                f"{name} takes one argument",
                position=self.source.position_of(node),
                expected=f"{name}(x)",
                found=self.source.words_of(node),
            )
        return parts[0]

    def _lowered(self, arguments: Sequence[Any]) -> list[Expression]:
        """The arguments of an aggregate, `*` as its columns."""
        found = list[Expression]()
        for one in arguments:
            if is_star(one):
                found += [column for _, column in self._lowering.starred(one)]
            else:
                found.append(self._lower(one))
        return found


def _filter(
    name: str, condition: Expression, values: list[Expression], keys: list[SortKey]
) -> bool:
    """Put FILTER into the arguments: a value is null, which is passed over, where it is not true.

    True where the call has to be told to pass over nulls.
    """
    if name in _KEEPS_NULLS:
        kept = Expression(f"struct({values[0].text} AS {_KEPT})", values[0].references)
        values[0] = case(condition, kept)
        return True
    if name in _READS_ORDER and keys:
        keys[0] = replace(keys[0], expression=case(condition, keys[0].expression))
    else:
        place = 1 if name in ("max_by", "min_by") else 0
        values[place] = case(condition, values[place])
    return False
