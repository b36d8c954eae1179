"""In which order operators are worked out, and many rows of a linear one."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Barrier, Lock, get_ident
from typing import Any

import pyarrow as pa
import pytest

from lockstep import threads
from lockstep.sql.circuit import Cost, Operator
from lockstep.sql.plans.nodes import Expression, Filter, Output, Project, Scan
from lockstep_engine.local import linear
from lockstep_engine.local.linear import Sifted, made_here
from lockstep_engine.local.rows import Rows
from lockstep_engine.turns import in_turns

SCAN = Scan("t", ("a",))


def operators(*inputs: tuple[int, ...]) -> list[Operator]:
    """By the inputs of each."""
    return [
        Operator(ref, SCAN, of, (), True, True, Cost.CHANGE, 1) for ref, of in enumerate(inputs)
    ]


DIAMONDS = operators((), (0,), (0,), (1, 2), (), (4,), (3, 5), (0,))


@pytest.mark.parametrize("at_once", [1, 2, 8])
def test_inputs_are_done_before_what_reads_them(at_once: int) -> None:
    ended, lock = list[int](), Lock()

    def work(operator: Operator) -> int:
        with lock:
            assert set(operator.inputs) <= set(ended)
        answer = operator.ref * 10
        with lock:
            ended.append(operator.ref)
        return answer

    found = [(one.ref, answer) for one, answer in in_turns(DIAMONDS, work, at_once)]
    assert found == [(ref, ref * 10) for ref in range(len(DIAMONDS))]
    assert sorted(ended) == [*range(len(DIAMONDS))]


def test_those_that_wait_for_nothing_are_worked_on_at_the_same_time() -> None:
    together = Barrier(2, timeout=20)

    def work(operator: Operator) -> None:
        if operator.ref in {1, 2}:
            together.wait()

    assert len(list(in_turns(operators((), (0,), (0,)), work, 2))) == 3


def test_a_chain_is_worked_on_in_the_callers_thread() -> None:
    """Others are only for operators beside each other."""
    by = dict[int, int]()

    def work(operator: Operator) -> None:
        by[operator.ref] = get_ident()

    list(in_turns(operators((), (0,), (1,), (2,), (2,), (3, 4), (5,)), work, 2))
    assert {ref for ref, thread in by.items() if thread == get_ident()} == {0, 1, 2, 5, 6}


def test_one_at_a_time_answers_come_as_they_are_asked_for() -> None:
    begun = list[int]()
    answers: Iterator[Any] = in_turns(DIAMONDS, lambda one: begun.append(one.ref), 1)
    next(answers)
    assert begun == [0]


@pytest.mark.parametrize("at_once", [1, 4])
def test_an_error_ends_it(at_once: int) -> None:
    begun = list[int]()

    def work(operator: Operator) -> None:
        begun.append(operator.ref)
        if operator.ref == 3:
            raise ValueError("three")

    with pytest.raises(ValueError, match="three"):
        list(in_turns(DIAMONDS, work, at_once))
    assert 6 not in begun, "its input has failed"


def test_of_several_errors_that_of_the_first_operator_is_raised() -> None:
    together = Barrier(2, timeout=20)

    def work(operator: Operator) -> None:
        together.wait()
        raise ValueError(operator.ref)

    for _ in range(20):
        with pytest.raises(ValueError, match="0"):
            list(in_turns(operators((), ()), work, 2))


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(0, []), (1, [1]), (3, [3]), (4, [2, 2]), (7, [3, 3, 1]), (60, [20, 20, 20])],
)
def test_shares_are_about_as_large(
    count: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "processors", lambda: 3)
    numbers = list(range(count))
    shares = [numbers[one] for one in threads.shares(count, 2)]
    assert [len(one) for one in shares] == sizes
    assert [number for one in shares for number in one] == numbers


def above(predicate: str, value: str) -> list[Operator]:
    sifted = Filter(SCAN, Expression(predicate, ("a",)))
    made = Project(sifted, (Output("b", Expression(value, ("a",))),))
    return [
        Operator(ref, node, (ref - 1,), (), True, True, Cost.CHANGE, 1)
        for ref, node in ((1, sifted), (2, made))
    ]


@pytest.mark.parametrize(
    ("value", "left"),
    [("`a` + 1", 0), ("`a` * 4611686018427387904", 1), ("sinh(`a`)", 1)],
    ids=["here", "one value is Spark's", "all are Spark's"],
)
@pytest.mark.parametrize("count", [1, 7, 8, 100])
def test_parts_of_the_rows_give_what_all_do(
    value: str, left: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where only one of them has a value with which Spark has to deal: nothing is done twice."""
    numbers = pa.chunked_array([pa.array([*range(count), None]), pa.array([2, 1])])
    ones = pa.array([1] * len(numbers))
    table = pa.table({"a": numbers, "_weight": ones, "_step": ones})
    operators = above("`a` <> 5", value)
    whole, left_of_whole = made_here(Sifted(Rows.of(table)), operators)
    monkeypatch.setattr(linear, "_ROWS_OF_A_PART", 3)
    monkeypatch.setattr(threads, "processors", lambda: 3)
    found, left_of_parts = made_here(Sifted(Rows.of(table)), operators)
    assert (found.rows.table.to_pydict(), found.rows.schema, found.conditions) == (
        whole.rows.table.to_pydict(), whole.rows.schema, whole.conditions,
    )  # fmt: skip
    assert len(left_of_parts) == len(left_of_whole)
    if count > 1:
        assert len(left_of_whole) == left


@pytest.mark.parametrize(
    ("count", "sizes"), [(0, []), (1, [1]), (5, [5]), (6, [3, 3]), (11, [4, 4, 3])]
)
def test_pieces_are_as_small_as_they_can_be(count: int, sizes: list[int]) -> None:
    numbers = list(range(count))
    pieces = [numbers[one] for one in threads.pieces(count, 3)]
    assert [len(one) for one in pieces] == sizes
    assert [number for one in pieces for number in one] == numbers


def one_by_one(work: Callable[[Operator], object]) -> None:
    list(in_turns(DIAMONDS, work, 1))


def in_turns_of_two(work: Callable[[Operator], object]) -> None:
    list(in_turns(DIAMONDS, work, 2))


def one_after_the_other(work: Callable[[Operator], object]) -> None:
    list(in_turns(operators((), (0,), (1,), (2,), (3,)), work, 2))


def at_the_same_time(work: Callable[[Operator], object]) -> None:
    threads.in_parallel(work, DIAMONDS)


@pytest.mark.parametrize(
    "doing", [one_by_one, in_turns_of_two, one_after_the_other, at_the_same_time]
)
def test_an_error_leaves_nothing_behind(doing: Callable[[Callable[..., Any]], None]) -> None:
    """What had been made until then goes with it, whenever garbage is collected."""

    class Made:
        pass

    def fail() -> weakref.ref[Made]:
        made = Made()

        def work(operator: Operator) -> Made:
            if operator.ref == 3:
                raise KeyError(made)
            return made

        with suppress(KeyError):
            doing(work)
        return weakref.ref(made)

    gc.disable()
    try:
        left = fail()
        assert left() is None
    finally:
        gc.enable()
