"""What plan nodes are made of: expressions, sort keys, and calls of aggregates and window functions.

All of it is Spark SQL text over the columns of one relation, with the names of the columns read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

__all__ = [
    "AggregateCall",
    "AggregateFunction",
    "Expression",
    "SortKey",
    "WindowCall",
    "require_columns",
    "require_unique",
    "text_literal",
]


def text_literal(text: str) -> str:
    """A text as Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


@dataclass(frozen=True)
class Expression:
    """Spark SQL text over the columns of one relation; `references` names the columns it reads."""

    text: str
    references: tuple[str, ...] = ()

    @staticmethod
    def column(name: str) -> Expression:
        """The expression that is just the column `name`."""
        return Expression(f"`{name}`", (name,))

    @property
    def is_column(self) -> bool:
        """True where the expression is nothing but one column."""
        return len(self.references) == 1 and self.text == f"`{self.references[0]}`"


@dataclass(frozen=True)
class SortKey:
    """One expression of an ORDER BY."""

    expression: Expression
    descending: bool = False
    nulls_first: bool = True

    @property
    def text(self) -> str:
        """The key as Spark SQL."""
        direction = "DESC" if self.descending else "ASC"
        return f"{self.expression.text} {direction} NULLS {'FIRST' if self.nulls_first else 'LAST'}"


class AggregateFunction(Enum):
    """How an aggregate is maintained; `count` without an argument counts rows.

    The first five from sums, or from the values that are there; COMOMENT, the sum of the products of
    deviations from the mean, too (`moments`). COLLECTED stands for any other aggregate function of
    Spark, which is computed anew for the groups that changed.
    """

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    COMOMENT = "comoment"
    COLLECTED = "collected"

    @property
    def is_extreme(self) -> bool:
        """True for min and max, which need the values themselves where their input retracts."""
        return self in (AggregateFunction.MIN, AggregateFunction.MAX)

    @property
    def is_sum(self) -> bool:
        """True for sum and avg, of which the argument's type decides what is remembered."""
        return self in (AggregateFunction.SUM, AggregateFunction.AVG)


@dataclass(frozen=True)
class AggregateCall:
    """One aggregate: `argument` is a column of the input, or None for count(*). That of COMOMENT is a
    double, which is paired with itself, or a struct of the doubles x and y.

    COLLECTED has the whole call as `expression` instead, which sees the rows of a group in the order
    of the columns that it reads, and `of_nothing`, its value over no rows, where that is not null.
    """

    name: str
    function: AggregateFunction
    argument: str | None
    expression: Expression | None = None
    of_nothing: str = "NULL"

    def __post_init__(self) -> None:
        if (self.function is AggregateFunction.COLLECTED) != (self.expression is not None):
            raise ValueError("a collected aggregate, and only such a one, has an expression")
        if self.argument is None and self.function not in (
            AggregateFunction.COUNT,
            AggregateFunction.COLLECTED,
        ):
            raise ValueError(f"{self.function.value} takes an argument; only count may go without")

    @property
    def references(self) -> tuple[str, ...]:
        """The columns that the call reads."""
        if self.expression is not None:
            return self.expression.references
        return () if self.argument is None else (self.argument,)

    @property
    def text(self) -> str:
        """The call as Spark SQL."""
        if self.expression is not None:
            return self.expression.text
        return f"{self.function.value}({self.argument or '*'})"

    @property
    def over_nothing(self) -> str:
        """The value over no rows, as Spark SQL."""
        return "0L" if self.function is AggregateFunction.COUNT else self.of_nothing

    @property
    def called(self) -> str:
        """The name, in lower case, of the function as Spark SQL calls it."""
        return self.text.partition("(")[0].lower()


_RANKS = {"row_number()", "rank()", "dense_rank()"}


@dataclass(frozen=True)
class WindowCall:
    """One column of a Window: `function OVER (... ORDER BY order frame)`, the frame '' if none."""

    name: str
    function: Expression
    order: tuple[SortKey, ...] = ()
    frame: str = ""

    @property
    def references(self) -> tuple[str, ...]:
        """The columns that the call reads."""
        read = [*self.function.references]
        read += [name for key in self.order for name in key.expression.references]
        return tuple(dict.fromkeys(read))

    @property
    def is_rank(self) -> bool:
        """True where rows that come move a row back, and never forward."""
        return self.function.text.lower() in _RANKS

    @property
    def over(self) -> str:
        """What stands in the parentheses of OVER after the partition."""
        order = f"ORDER BY {', '.join(key.text for key in self.order)}" if self.order else ""
        return " ".join(filter(None, (order, self.frame)))


def require_unique(kind: str, names: Iterable[str]) -> None:
    """Raise ValueError where a node of that kind has two columns of one name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{kind} has two columns named {name!r}; names must be unique")
        seen.add(name)


def require_columns(kind: str, wanted: Iterable[str], available: tuple[str, ...]) -> None:
    """Raise ValueError where a node of that kind reads columns that its input has not."""
    missing = sorted(set(wanted) - set(available))
    if missing:
        raise ValueError(
            f"{kind} refers to {', '.join(missing)}; its input has {', '.join(available)}"
        )
