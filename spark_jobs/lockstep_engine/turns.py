"""Operators one after the other, or several at the same time, each after its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from lockstep.sql.circuit import Operator

__all__ = ["in_turns"]

_Answer = TypeVar("_Answer")


def in_turns(
    operators: Sequence[Operator], work: Callable[[Operator], _Answer], at_once: int
) -> Iterator[tuple[Operator, _Answer]]:
    """Each operator with what `work` gives of it, in their order, in which inputs come first.

    The work for an operator begins when that for its inputs has ended. With `at_once` of 1 it is done
    in the caller's thread, as answers are asked for; else for up to so many operators at the same time,
    in others wherever there is more than one to work on, and no answer is given before all have been. An
    error of one is raised when those have ended that had begun.
    """
    if at_once == 1:
        for operator in operators:
            yield operator, work(operator)
        return
    ended = dict[int, Future[_Answer]]()
    try:
        _work_together(operators, work, at_once, ended)
        # Of several errors that of the first operator, whoever was first.
        answers = [(one, ended[one.ref].result()) for one in operators if one.ref in ended]
    finally:
        # An error holds what has been made so far, and nobody is to hold that error.
        ended.clear()
    yield from answers


def _work_together(
    operators: Sequence[Operator],
    work: Callable[[Operator], _Answer],
    at_once: int,
    ended: dict[int, Future[_Answer]],
) -> None:
    """To `ended` is added what has been done, by operator: all of it, or until an error."""
    waiting, running = list(operators), dict[Future[_Answer], Operator]()
    with ThreadPoolExecutor(at_once) as pool:
        while waiting or running:
            ready = [one for one in waiting if all(ref in ended for ref in one.inputs)]
            if len(ready) == 1 and not running:
                # What runs alone needs no thread.
                [operator] = ready
                waiting.remove(operator)
                # An error is the first one, and goes its way: nothing else has been begun.
                done = Future[_Answer]()
                done.set_result(work(operator))
                ended[operator.ref] = done
                continue
            for operator in ready[: at_once - len(running)]:
                waiting.remove(operator)
                running[pool.submit(work, operator)] = operator
            assert running, "inputs are among the operators, and come first"
            for one in wait(running, return_when=FIRST_COMPLETED).done:
                ended[running.pop(one).ref] = one
                if one.exception() is not None:
                    waiting = []
