"""How the demo counts what was lost and what came twice: each kind of fault is seen."""

from __future__ import annotations

import sys
from collections import Counter

from test_examples_data import EXAMPLES, load

sys.path.insert(0, str(EXAMPLES))
reading = load("demo_reading.py")

SENT = Counter({(0, "a"): 1, (1, "a"): -1, (1, "b"): 2})


def faults(**changed: int) -> tuple[int, int]:
    """Lost and duplicated where the topic holds SENT, but for some weights of step 1."""
    received = SENT + Counter()
    received[(1, "a")] = SENT[(1, "a")]
    for row, weight in changed.items():
        received[(1, row)] = weight
    counted: tuple[int, int] = reading.lost_and_duplicated(received, SENT)
    return counted


def test_what_was_sent_is_there_once() -> None:
    assert faults() == (0, 0)


def test_row_that_is_not_there_is_lost() -> None:
    assert faults(a=0) == (1, 0)
    assert faults(b=1) == (1, 0)


def test_row_that_came_twice_is_duplicated_also_if_it_takes_away() -> None:
    assert faults(a=-2) == (0, 1)
    assert faults(b=3) == (0, 1)


def test_row_that_nobody_sent_is_too_many() -> None:
    assert faults(c=1) == (0, 1)


def test_change_of_the_wrong_sign_is_both() -> None:
    assert faults(a=1) == (1, 1)
