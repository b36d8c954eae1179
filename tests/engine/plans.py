"""Random plans: every operator, in compositions, with what their expressions mean in Python.

Many cases are checked by one plan: each relation carries the column `case…`, by which everything is
joined and grouped, so that the cases do not meet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from meanings import AGGREGATES
from oracle import Meaning

from lockstep.sql.plans.columns import as_they_are, only, renamed
from lockstep.sql.plans.nodes import (
    CHANGE_COLUMNS,
    Aggregate,
    AggregateCall,
    AggregateFunction,
    Expression,
    Filter,
    Generate,
    Join,
    JoinKind,
    Node,
    Output,
    Project,
    Scan,
    SortKey,
    Temporal,
    TimeWindow,
    UnionAll,
    Upsert,
    Watermark,
    Weigh,
    Window,
    WindowCall,
)
from lockstep.sql.plans.recursion import recursive

SPARK_TYPES = {
    "long": "bigint",
    "int": "int",
    "text": "string",
    "decimal": "decimal(6,2)",
    "date": "date",
    "time": "timestamp",
    "flag": "boolean",
    "double": "double",
}
"""The kinds of columns of sources, and their Spark types. `window` is made by plans only."""

EVENTS, TABLE, KEYED, TIMED = "events_", "table_", "keyed_", "timed_"
"""Sources by prefix: rows that stay; that are taken back; records of keys; rows under a watermark."""

SUMMED = ("long", "int", "decimal", "double")
UNSTABLE = ("decimal", "double")
"""Kinds whose results have another type than themselves or no equality worth joining on."""


def source_columns(prefix: str) -> Mapping[str, str]:
    """Names to kinds of a source's columns: a case and a column of every kind."""
    return {f"{prefix}case": "long"} | {f"{prefix}{kind}": kind for kind in SPARK_TYPES}


@dataclass(frozen=True)
class Relation:
    """A plan, the kind of each of its columns, and which of them is the case."""

    node: Node
    kinds: Mapping[str, str]
    case: str

    def of_kind(self, *kinds: str) -> list[str]:
        """The columns of these kinds, without the case."""
        return [name for name, kind in self.kinds.items() if kind in kinds and name != self.case]

    @property
    def others(self) -> list[str]:
        return [name for name in self.kinds if name != self.case]


class PlanMaker:
    """Makes plans over the sources; `key` is one key of the keyed one, `delay` the watermark's."""

    def __init__(self, random: Random, key: str, delay: timedelta) -> None:
        self._random = random
        self._made = 0
        records = Scan(KEYED.strip("_"), (*source_columns(KEYED), *CHANGE_COLUMNS))
        rows = Scan(TIMED.strip("_"), tuple(source_columns(TIMED)))
        self._timed = Watermark(rows, f"{TIMED}time", delay // timedelta(microseconds=1))
        self._read_whole: Mapping[str, Node] = {
            KEYED: Upsert(records, (f"{KEYED}case", f"{KEYED}{key}")),
            TIMED: self._timed,
        }
        self.meanings: dict[str, Meaning] = {}
        self.steps: dict[str, Node] = {}

    def relation(self, depth: int) -> Relation:
        """A plan of at most `depth` operators on top of each other, scans and renamings apart."""
        if depth == 0:
            return self._scan()
        makers: list[Callable[[int], Relation]] = [
            self._project,
            self._filter,
            self._union,
            self._join,
            self._join,
            self._aggregate,
            self._aggregate,
            self._aggregate,
            self._time_window,
            self._temporal,
            self._temporal,
            self._window,
            self._window,
            self._generate,
            self._weigh,
        ]
        return self._random.choice(makers)(depth - 1)

    def recursion(self, depth: int) -> Relation:
        """A recursion over plans of at most `depth`; a bound in a column ends it, so cycles may come
        and go in what it follows."""
        start = self._renamed(self.relation(depth))
        ends = [self._renamed(self._scan()) for _ in range(2)]
        kinds = ("int", "long", "text", "flag")
        key = next((k for k in kinds if all(one.of_kind(k) for one in (start, *ends))), "")
        if not key:
            return self.recursion(depth)
        source, target = (one.of_kind(key)[0] for one in ends)
        edges = Join(ends[0].node, ends[1].node, (ends[0].case,), (ends[1].case,))
        case, place, bound = (self._fresh(stem) for stem in ("case", "place", "bound"))
        zero = self._meaning("0L", (), lambda _: 0)
        anchor = Project(
            start.node,
            (
                Output(case, Expression.column(start.case)),
                Output(place, Expression.column(start.of_kind(key)[0])),
                Output(bound, zero),
            ),
        )
        below = self._meaning(f"`{bound}` < 3L", (bound,), lambda row: row[bound] < 3)
        more = self._meaning(f"`{bound}` + 1L", (bound,), lambda row: row[bound] + 1)
        others = only(edges, (ends[0].case, source, target))
        keys = ((case, place), (ends[0].case, source))
        kind = self._random.choice([JoinKind.INNER, JoinKind.INNER, JoinKind.LEFT])
        before = Scan(self._fresh("itself"), anchor.columns)
        pairs = Join(Filter(before, below), others, *keys, kind=kind)
        step: Node = Project(
            pairs,
            (
                Output(case, Expression.column(case)),
                Output(place, Expression.column(target)),
                Output(bound, more),
            ),
        )
        if self._random.random() < 0.3:
            has = Join(Filter(before, below), others, *keys, kind=JoinKind.ANTI)
            ended = Project(has, (*as_they_are((case, place)), Output(bound, more)))
            step = UnionAll((step, ended))
        step = self._among_itself(step, before, (case, place))
        name = before.source
        self.steps[name] = step
        node = recursive(anchor, step, name, 5, name)
        return Relation(node, {case: "long", place: key, bound: "long"}, case)

    def _among_itself(self, step: Node, before: Scan, by: tuple[str, str]) -> Node:
        """Perhaps each row of a level once, or only rows that have one of the level before with them, or
        have none."""
        if self._random.random() < 0.3:
            step = Aggregate(step, step.columns, ())
        if self._random.random() < 0.3:
            names = {name: self._fresh("itself") for name in before.columns}
            kind = self._random.choice([JoinKind.SEMI, JoinKind.ANTI])
            theirs = (names[by[0]], names[by[1]])
            step = Join(step, renamed(before, names), by, theirs, kind=kind)
        return step

    def _fresh(self, stem: str) -> str:
        self._made += 1
        return f"{stem}_{self._made}"

    def _scan(self) -> Relation:
        prefix = self._random.choice([EVENTS, TABLE, EVENTS, TABLE, KEYED, TIMED])
        kinds = source_columns(prefix)
        case, *others = kinds
        kept = [case, *sorted(self._random.sample(others, self._random.randint(3, 6)))]
        columns = tuple(column for column in kinds if column in kept)
        whole = self._read_whole.get(prefix)
        node = only(whole, columns) if whole else Scan(prefix.strip("_"), columns)
        return Relation(node, {name: kinds[name] for name in columns}, case)

    def _project(self, depth: int) -> Relation:
        below = self.relation(depth)
        count = min(len(below.others), self._random.randint(1, 4))
        chosen = sorted(self._random.sample(below.others, count))
        outputs = {self._fresh("p"): self._computed(name, below.kinds[name]) for name in chosen}
        return self._with_outputs(below, outputs)

    def _renamed(self, below: Relation) -> Relation:
        """The same relation under fresh names."""
        return self._with_outputs(
            below,
            {self._fresh("r"): (Expression.column(n), below.kinds[n]) for n in below.others},
        )

    def _with_outputs(
        self, below: Relation, outputs: Mapping[str, tuple[Expression, str]]
    ) -> Relation:
        case = self._fresh("case")
        outputs = {case: (Expression.column(below.case), "long"), **outputs}
        node = Project(below.node, tuple(Output(n, e) for n, (e, _) in outputs.items()))
        return Relation(node, {name: kind for name, (_, kind) in outputs.items()}, case)

    def _meaning(self, text: str, references: tuple[str, ...], meaning: Meaning) -> Expression:
        self.meanings[text] = meaning
        return Expression(text, references)

    def _computed(self, name: str, kind: str) -> tuple[Expression, str]:
        """An expression over one column, and its kind."""

        def of(text: str, function: Callable[[Any], Any]) -> Expression:
            def meaning(row: Mapping[str, Any]) -> Any:
                return None if row[name] is None else function(row[name])

            return self._meaning(text, (name,), meaning)

        choices: list[tuple[Expression, str]] = [(Expression.column(name), kind)] * 2
        if kind in ("long", "int"):
            choices.append(
                (of(f"`{name}` % 2", lambda x: (abs(x) % 2) * (1 if x > 0 else -1)), kind)
            )
            choices.append((of(f"`{name}` > 0", lambda x: x > 0), "flag"))
        if kind == "long":
            choices.append((of(f"`{name}` + 1L", lambda x: x + 1), kind))
        if kind == "text":
            choices.append((of(f"upper(`{name}`)", str.upper), kind))
            choices.append((of(f"concat(`{name}`, '!')", lambda x: x + "!"), kind))
        if kind == "decimal":
            choices.append((of(f"-`{name}`", lambda x: -x), kind))
        is_null = self._meaning(f"`{name}` IS NULL", (name,), lambda row: row[name] is None)
        choices.append((is_null, "flag"))
        return self._random.choice(choices)

    def _filter(self, depth: int) -> Relation:
        below = self.relation(depth)
        name = self._random.choice(below.others or [below.case])
        predicate = {
            "long": (f"`{name}` > 0", lambda row: row[name] is not None and row[name] > 0),
            "int": (f"`{name}` % 2 = 0", lambda row: row[name] is not None and row[name] % 2 == 0),
            "text": (f"`{name}` = 'a'", lambda row: row[name] == "a"),
            "flag": (f"NOT `{name}`", lambda row: row[name] is False),
        }.get(
            below.kinds[name],
            (f"`{name}` IS NOT NULL", lambda row: row[name] is not None),
        )
        node = Filter(below.node, self._meaning(predicate[0], (name,), predicate[1]))
        return Relation(node, below.kinds, below.case)

    def _temporal(self, depth: int) -> Relation:
        below = self.relation(depth)
        name = self._random.choice(below.of_kind("time", "date") or below.others or [below.case])
        watermarks = (self._timed,) if self._random.random() < 0.3 else ()
        match below.kinds[name]:
            case "time":
                bounds: list[tuple[str, Meaning]] = [("`now`", lambda row: row["now"])]
                if not watermarks:  # Python has no time before the first of them
                    earlier = timedelta(seconds=2)
                    bounds.append(("`now` - INTERVAL 2 SECONDS", lambda row: row["now"] - earlier))
            case "date":
                bounds = [("CAST(`now` AS DATE)", lambda row: row["now"].date())]
            case "int" | "long":
                bounds = [("unix_seconds(`now`) - 1704067200", lambda row: _seconds(row["now"]))]
            case _:
                return below
        text, meaning = self._random.choice(bounds)
        bound = self._meaning(text, ("now",), meaning)
        sign = self._random.choice(["<", "<=", ">", ">="])
        return replace(below, node=Temporal(below.node, name, sign, bound, watermarks))

    def _union(self, depth: int) -> Relation:
        first = self._renamed(self.relation(depth))
        branches = [first.node]
        for _ in range(self._random.randint(1, 2)):
            branches.append(self._shaped_like(first, self.relation(depth)))
        return Relation(UnionAll(tuple(branches)), first.kinds, first.case)

    def _shaped_like(self, wanted: Relation, below: Relation) -> Node:
        """`below` with the columns of `wanted`: some column of the kind, or null."""
        outputs = []
        for name, kind in wanted.kinds.items():
            same = below.of_kind(kind)
            if name == wanted.case:
                expression = Expression.column(below.case)
            elif same:
                expression = Expression.column(self._random.choice(same))
            else:
                expression = self._meaning("NULL", (), lambda _: None)
            outputs.append(Output(name, expression))
        return Project(below.node, tuple(outputs))

    def _join(self, depth: int) -> Relation:
        left = self._renamed(self.relation(depth))
        right = self._renamed(self.relation(self._random.randint(0, depth)))
        pairs = [
            (a, b)
            for a in left.others
            for b in right.others
            if left.kinds[a] == right.kinds[b] and left.kinds[a] not in UNSTABLE
        ]
        keys = [(left.case, right.case)]
        if pairs and self._random.random() < 0.9:
            keys.append(self._random.choice(pairs))
        condition = None
        numbers = [(a, b) for a in left.of_kind("long") for b in right.of_kind("long")]
        if numbers and self._random.random() < 0.5:
            a, b = self._random.choice(numbers)
            condition = self._meaning(
                f"`{a}` <= `{b}`",
                (a, b),
                lambda row: None not in (row[a], row[b]) and row[a] <= row[b],
            )
        kind = self._random.choice([JoinKind.INNER, JoinKind.INNER, *JoinKind])
        if kind is JoinKind.FULL:
            # a right row alone would have no case
            kind = JoinKind.LEFT
        null_safe = tuple(self._random.random() < 0.3 for _ in keys)
        node = Join(
            left.node,
            right.node,
            tuple(a for a, _ in keys),
            tuple(b for _, b in keys),
            condition,
            kind,
            null_safe,
        )
        kinds = {**left.kinds, **right.kinds} if kind.shows_right else left.kinds
        return Relation(node, kinds, left.case)

    def _aggregate(self, depth: int) -> Relation:
        below = self.relation(depth)
        keys = [below.case]
        keys += sorted(
            self._random.sample(
                below.others, min(len(below.others), self._random.choice([0, 1, 1, 2]))
            )
        )
        kinds = {key: below.kinds[key] for key in keys}
        calls = []
        for _ in range(self._random.randint(0, 4)):
            name = self._fresh("a")
            call, kind = self._call(name, below)
            calls.append(call)
            kinds[name] = kind
        node = Aggregate(below.node, tuple(keys), tuple(calls))
        return Relation(node, kinds, below.case)

    def _call(self, name: str, below: Relation) -> tuple[AggregateCall, str]:
        if self._random.random() < 0.25 and below.of_kind("long"):
            return self._collected(name, self._random.choice(below.of_kind("long")))
        others = (AggregateFunction.COLLECTED, AggregateFunction.COMOMENT)
        plain = [one for one in AggregateFunction if one not in others]
        function = self._random.choice(plain)
        summed = below.of_kind(*SUMMED)
        if function in (AggregateFunction.SUM, AggregateFunction.AVG) and summed:
            argument = self._random.choice(summed)
            kind = below.kinds[argument]
            if kind in UNSTABLE:
                # The precision grows: such a column is not summed again, nor put under a union.
                return AggregateCall(name, function, argument), f"{function.value} of {kind}"
            result = "double" if function is AggregateFunction.AVG else "long"
            return AggregateCall(name, function, argument), result
        if function.is_extreme and below.others:
            argument = self._random.choice(below.others)
            return AggregateCall(name, function, argument), below.kinds[argument]
        counted = self._random.choice([None, *below.others])
        return AggregateCall(name, AggregateFunction.COUNT, counted), "long"

    def _time_window(self, depth: int) -> Relation:
        below = self.relation(depth)
        times = below.of_kind("time")
        if not times:
            return below
        slide = self._random.choice(["4 seconds", "2 seconds", "1 seconds"])
        name = self._fresh("w")
        node = TimeWindow(below.node, name, self._random.choice(times), "4 seconds", slide)
        return Relation(node, {**below.kinds, name: "window"}, below.case)

    def _collected(self, name: str, column: str) -> tuple[AggregateCall, str]:
        """An aggregate that is computed anew from the rows of the group, or from sums in its place."""
        one = self._random.choice(AGGREGATES)

        def meaning(here: Mapping[str, Any]) -> Any:
            return one.meaning([r[column] for r in here["rows"] if r[column] is not None])

        text = self._meaning(one.text.format(f"`{column}`"), (column,), meaning)
        call = AggregateCall(name, AggregateFunction.COLLECTED, None, text, one.of_nothing)
        return call, one.kind

    def _window(self, depth: int) -> Relation:
        """Functions that do not ask which of two equal rows comes first."""
        below = self.relation(depth)
        longs = below.of_kind("long")
        if not longs:
            return below
        ordered, summed = self._random.choice(longs), self._random.choice(longs)
        key = SortKey(Expression.column(ordered), self._random.random() < 0.5, True)
        partition = [below.case]
        partition += self._random.sample(below.others, self._random.choice([0, 0, 1]))
        calls, kinds = [], {**below.kinds}
        for _ in range(self._random.randint(1, 2)):
            name = self._fresh("o")
            calls.append(self._window_call(name, ordered, summed, key))
            kinds[name] = "int" if calls[-1].function.text == "rank()" else "long"
        can_stop = len(calls) == 1 and calls[0].is_rank
        first = self._random.choice([None, 1, 2, 3]) if can_stop else None
        return Relation(
            Window(below.node, tuple(partition), tuple(calls), first), kinds, below.case
        )

    def _window_call(self, name: str, ordered: str, summed: str, key: SortKey) -> WindowCall:
        sign = -1 if key.descending else 1

        def rank(value: int | None) -> tuple[bool, int]:
            # nulls are first in either direction
            return (value is not None, sign * (value or 0))

        def before(here: Mapping[str, Any], peers: bool) -> list[Any]:
            own = rank(here["row"][ordered])
            return [
                row[summed]
                for row in here["rows"]
                if rank(row[ordered]) < own or (peers and rank(row[ordered]) == own)
            ]

        def counted(here: Mapping[str, Any]) -> int:
            return sum(value is not None for value in before(here, True))

        def greatest(here: Mapping[str, Any]) -> int | None:
            found = [row[summed] for row in here["rows"] if row[summed] is not None]
            return max(found, default=None)

        function, order, meaning = self._random.choice(
            [
                (Expression("rank()"), (key,), lambda h: len(before(h, False)) + 1),
                (Expression(f"count(`{summed}`)", (summed,)), (key,), counted),
                (Expression(f"max(`{summed}`)", (summed,)), (), greatest),
            ]
        )
        call = WindowCall(name, function, order)
        self.meanings[f"{function.text} {call.over}"] = meaning
        return call

    def _generate(self, depth: int) -> Relation:
        below = self.relation(depth)
        longs = below.of_kind("long")
        if not longs:
            return below
        column, name = self._random.choice(longs), self._fresh("g")
        generator = self._meaning(
            f"explode(CASE WHEN `{column}` > 0 THEN array(`{column}`, 1L) END)",
            (column,),
            lambda row: [(row[column],), (1,)] if (row[column] or 0) > 0 else [],
        )
        node = Generate(below.node, generator, (name,))
        return Relation(node, {**below.kinds, name: "long"}, below.case)

    def _weigh(self, depth: int) -> Relation:
        below = self.relation(depth)
        longs = below.of_kind("long")
        if not longs:
            return below
        column = self._random.choice(longs)
        weight = self._meaning(
            f"CASE WHEN `{column}` > 0 THEN 2 ELSE coalesce(`{column}`, 1L) * 0 END",
            (column,),
            lambda row: 2 if (row[column] or 0) > 0 else 0,
        )
        return Relation(Weigh(below.node, weight), below.kinds, below.case)


def _seconds(time: datetime) -> int:
    return (time - datetime(2024, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
