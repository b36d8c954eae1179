"""The same work on several things at once."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["MAX_THREADS", "in_parallel", "pieces", "processors", "shares"]

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

MAX_THREADS = 8


def in_parallel(
    work: Callable[[_Item], _Answer], items: Iterable[_Item], at_once: int = MAX_THREADS
) -> list[_Answer]:
    """Do the work for each item in threads, so many `at_once`; answers in the order of the items.

    A single item is worked on in the caller's thread. All of it has ended when this returns; the first
    error in that order is raised then.
    """
    todo = list(items)
    if len(todo) < 2:
        return [work(item) for item in todo]
    with ThreadPoolExecutor(max_workers=min(at_once, len(todo))) as pool:
        futures = deque(pool.submit(work, item) for item in todo)
    try:
        return [futures.popleft().result() for _ in todo]
    finally:
        # An error holds this frame, and what called it: no future that is left here is to hold an error.
        futures.clear()


def processors() -> int:
    """How many this process may use; where the system does not say (macOS), how many there are."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


def shares(count: int, least: int) -> list[slice]:
    """So many things for all processors, one after the other, about as many for each; no more shares
    than there would be of `least` things each, but one where there is any."""
    return _cut(count, min(processors(), count // least))


def pieces(count: int, least: int) -> list[slice]:
    """So many things in pieces of about the same size, as small as they can be with `least` things each;
    one where there are fewer. What a piece needs may fit a processor's cache, which all do not."""
    return _cut(count, count // least)


def _cut(count: int, parts: int) -> list[slice]:
    size = -(-count // max(1, parts))
    return [slice(first, min(first + size, count)) for first in range(0, count, size or 1)]
