"""A SELECT list over one relation: rows as they are, or groups. Windows and generated rows go on top.

`lower` says what an expression is over that relation; here it is told what stands for window
functions, and the names that items give are remembered for the items after them. `shape` says what
fields an expression over it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlglot import exp

from lockstep.errors import ProjectError
from lockstep.sql.plans.nodes import Expression, Generate, Node, SortKey
from lockstep.sql.plans.shapes import MapShape, Shape, StructShape, element_of
from lockstep.sql.queries.functions import GENERATORS, VARIANT_GENERATORS, is_generator
from lockstep.sql.queries.select_list import Item, listed
from lockstep.sql.queries.windows import Windows
from lockstep.sql.reading.syntax import SourceText
from lockstep.sql.reading.trees import function_name, identifier_parts

__all__ = [
    "Special",
    "Stage",
    "generated_names",
    "generator_arguments",
    "generator_call",
    "only_generates",
]

Special = Callable[[Any], Expression | None]
Lower = Callable[[Any, str, Special], Expression]
_OF_VARIANT = (
    "coalesce(transform(try_cast({0} AS ARRAY<VARIANT>), (x, i) -> "
    "struct(i AS pos, CAST(NULL AS STRING) AS key, x AS value)), "
    "transform(map_entries(try_cast({0} AS MAP<STRING, VARIANT>)), (x, i) -> "
    "struct(i AS pos, x.key AS key, x.value AS value)))"
)
"""What there is in a variant that is an array or an object, else null."""


class Stage:
    """`outputs` first, then conditions and order in any turn, then `build`."""

    def __init__(
        self,
        source: SourceText,
        items: Sequence[Item],
        lower: Lower,
        aliases: dict[str, Expression],
        named_windows: Mapping[str, Any],
        shape: Callable[[Expression], Shape | None],
    ) -> None:
        self.source = source
        self.names: list[str] = []
        self._items = items
        self._places: list[int] = []
        self._lower = lower
        self._aliases = aliases
        self._shape = shape
        self._windows = Windows(source, named_windows, lambda node: lower(node, "", lambda _: None))
        self._generated: list[tuple[Expression, tuple[str, ...]]] = []

    def outputs(self) -> list[Expression]:
        """The items of the list; `names` are then theirs."""
        found: list[Expression] = []
        for item in self._items:
            self._places.append(len(found))
            if is_generator(item.node):
                columns = self._generate(item)
            else:
                columns = [(item.name, self._lower(item.node, item.column, self._over))]
            for name, expression in columns:
                self.names.append(name)
                found.append(expression)
                self._aliases.setdefault(name.lower(), expression)
        return found

    def condition(self, node: Any) -> Expression | None:
        """HAVING or QUALIFY; None where there is none."""
        return None if node is None else self._lower(node, "", self._over)

    def order(self, keys: Sequence[Any], outputs: Sequence[Expression]) -> list[SortKey]:
        """ORDER BY: numbers and names of the list mean its items before all else."""
        found: list[SortKey] = []
        for key in keys:
            expression = self._sorted_by(key.this, outputs)
            found.append(
                SortKey(expression, bool(key.args.get("desc")), bool(key.args.get("nulls_first")))
            )
        return found

    def build(self, node: Node, carried: tuple[str, ...]) -> Node:
        """The relation that outputs, conditions and order are expressions over."""
        node = self._windows.build(node, carried)
        for generator, names in self._generated:
            node = Generate(node, generator, names)
        return node

    def _over(self, part: Any) -> Expression | None:
        return self._windows.add(part) if isinstance(part, exp.Window) else None

    def _sorted_by(self, node: Any, outputs: Sequence[Expression]) -> Expression:
        item = listed(self.source, node, self._items, "ORDER BY")
        if item is not None:
            return outputs[self._places[self._items.index(item)]]
        if isinstance(node, exp.Column) and len(identifier_parts(node)) == 1:
            for name, output in zip(self.names, outputs, strict=True):
                if name.lower() == node.name.lower():
                    return output
        return self._lower(node, "", self._over)

    def _generate(self, item: Item) -> list[tuple[str, Expression]]:
        if self._generated:
            raise ProjectError(
                "a SELECT list has two functions that make rows",
                position=self.source.position_of(item.node),
                expected="one; Spark does not say in which order two would be taken",
                found=self.source.words_of(item.node),
                next_step="write LATERAL VIEW for one of them",
            )
        name = function_name(item.node)
        values = generator_arguments(item.node)
        arguments = [self._lower(one, "", self._over) for one in values]
        shape = self._shape(arguments[0]) if arguments else None
        written = generated_names(self.source, item.node, item.names, shape)
        columns = tuple(f"_made{place}" for place in range(len(written)))
        self._generated.append((generator_call(name, arguments), columns))
        return [
            (name, Expression.column(column)) for name, column in zip(written, columns, strict=True)
        ]


def _names_of_stack(arguments: Sequence[Any]) -> tuple[str, ...]:
    """As many as each row has values, where the number of rows is written."""
    rows = arguments[0] if arguments else None
    if not isinstance(rows, exp.Literal) or not rows.name.isdigit() or int(rows.name) < 1:
        return ()
    return tuple(f"col{place}" for place in range(-(-(len(arguments) - 1) // int(rows.name))))


def generated_names(
    source: SourceText, node: Any, names: Sequence[str], shape: Shape | None
) -> tuple[str, ...]:
    """The names of what a function makes: those written, else Spark's own. `shape` is that of its first
    argument.

    Raises ProjectError where the number of columns depends on a type that is not known.
    """
    own = GENERATORS[function_name(node)]
    if function_name(node) == "json_tuple" and not names:
        own = tuple(f"c{place}" for place in range(len(node.expressions) - 1))
    if function_name(node) == "stack" and not names:
        own = _names_of_stack(node.expressions)
    if function_name(node).startswith("explode") and isinstance(shape, MapShape):
        own = ("key", "value")
    if function_name(node).startswith("posexplode") and isinstance(shape, MapShape):
        own = ("pos", "key", "value")
    row = element_of(shape)
    if function_name(node).startswith("inline") and isinstance(row, StructShape):
        own = row.names
    if names and shape is not None and own and len(names) != len(own):
        raise ProjectError(
            f"{function_name(node)} makes another number of columns than it has names for",
            position=source.position_of(node),
            expected=f"{len(own)} names ({', '.join(own)})",
            found=f"{len(names)} ({', '.join(names)})",
        )
    if not names and not own:
        raise ProjectError(
            f"the columns of {function_name(node)} have no names",
            position=source.position_of(node),
            expected=f"{function_name(node)}(...) AS (a, b, ...), a name for each column",
            found=source.words_of(node),
        )
    return tuple(names) or own


def generator_arguments(call: Any) -> list[Any]:
    """What stands in the parentheses, without names where Spark has the function under another one."""
    is_renamed = function_name(call) in VARIANT_GENERATORS
    return [
        one.expression if is_renamed and isinstance(one, exp.Kwarg) else one
        for one in call.expressions
    ]


def only_generates(node: Any) -> bool:
    """Whether it is a function that makes rows, or a subquery of nothing else."""
    while isinstance(node, exp.Subquery):
        node = node.this
    if not isinstance(node, exp.Select):
        return is_generator(node)
    if any(value for clause, value in node.args.items() if clause not in ("expressions", "from_")):
        return False
    source = node.args.get("from_")
    if source is None:
        return any(is_generator(one.unalias()) for one in node.expressions)
    made = source.this
    is_alone = not (made.args.get("joins") or made.args.get("pivots"))
    return isinstance(made, exp.Table) and is_alone and is_generator(made.this)


def generator_call(name: str, arguments: Sequence[Expression]) -> Expression:
    """The function that makes rows of the arguments, as Spark has it in a SELECT list."""
    references = tuple(dict.fromkeys(ref for one in arguments for ref in one.references))
    texts = [one.text for one in arguments]
    if name in VARIANT_GENERATORS:
        # a function of FROM only, whose rows are those of arrays
        name, texts = name.replace("variant_explode", "inline"), [_OF_VARIANT.format(*texts)]
    return Expression(f"{name}({', '.join(texts)})", references)
