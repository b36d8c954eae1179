"""What becomes of a step's output by where the step is in the output log; what a replay that differs
says."""

from __future__ import annotations

import pytest
from control_builders import interval

from lockstep.control.job import CompareResult, Difference
from lockstep.control.output_log import Write, require_equal, write, writes
from lockstep.errors import StateDiverged

FIRST, LAST = 3, 6
"""An output log that holds the steps 3, 4 and 5; the next is 6."""


@pytest.mark.parametrize("step", [0, 2])
def test_a_step_in_the_range_0_to_first_is_discarded(step: int) -> None:
    """Output has already been produced before and discarded or deleted. Discard it."""
    assert write(step, FIRST, LAST) is Write.DISCARD


@pytest.mark.parametrize("step", [3, 5])
def test_a_step_in_the_range_first_to_last_is_compared_and_discarded(step: int) -> None:
    """Now it has been produced redundantly during recovery. Check that it matches the old output."""
    assert write(step, FIRST, LAST) is Write.COMPARE


def test_step_last_is_appended_and_last_is_one_more_then() -> None:
    assert write(LAST, FIRST, LAST) is Write.APPEND
    assert writes(interval(5, 3), FIRST, LAST) == {
        5: Write.COMPARE,
        6: Write.APPEND,
        7: Write.APPEND,
    }


def test_a_step_beyond_last_is_an_error() -> None:
    with pytest.raises(StateDiverged, match="step 7 cannot be written to an output log that ends"):
        write(LAST + 1, FIRST, LAST)


def test_an_empty_log_takes_its_first_step() -> None:
    assert write(0, 0, 0) is Write.APPEND


def test_what_differs_is_named_with_step_view_and_rows() -> None:
    difference = Difference("totals", 4, 1, 2, ('-1 {"n":3}', '+2 {"n":4}'))
    with pytest.raises(StateDiverged) as refused:
        require_equal("shop", CompareResult({"totals": 9, "counts": 1}, (difference,)))
    assert str(refused.value).splitlines() == [
        "pipeline shop: step 4 of view totals was replayed, and gives other rows than it gave before",
        "  expected: the 10 rows of counts, totals as they were",
        '  found: totals at step 4: 1 missing, 2 unexpected, such as -1 {"n":3}, +2 {"n":4}',
        "  next: lockstep verify shop, which says whether what is published is what its sources give",
    ]
    require_equal("shop", CompareResult({"totals": 9}))


def test_results_of_several_jobs_are_one_with_the_first_difference_of_each_view() -> None:
    early, late = Difference("v", 2, 1, 0, ()), Difference("v", 5, 1, 0, ())
    other = Difference("w", 1, 0, 1, ())
    joined = CompareResult.joined(
        [CompareResult({"v": 1, "w": 2}, (early,)), CompareResult({"v": 3}, (late, other))]
    )
    assert joined == CompareResult({"v": 4, "w": 2}, (other, early))
    assert joined.rows == {"v": 4, "w": 2}
