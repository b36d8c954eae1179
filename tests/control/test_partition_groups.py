"""The cases of SEP-5: which task reads a partition when topics grow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.control.layout.partitions import Grouping, TaskAssignment, grouped
from lockstep.control.preconditions import Precondition

NONE = TaskAssignment()


def names(*numbers: int) -> tuple[str, ...]:
    return tuple(f"partition {number}" for number in numbers)


def test_partitions_of_one_number_are_read_together() -> None:
    found = grouped(NONE, {"a": 2, "b": 3}, Grouping.BY_PARTITION)
    assert found.tasks == {"a": names(0, 1), "b": names(0, 1, 2)}
    assert found.partitions("partition 1") == (("a", 1), ("b", 1))
    assert found.partitions("partition 2") == (("b", 2),)


def test_a_new_partition_is_read_by_the_task_of_its_parent() -> None:
    before = grouped(NONE, {"a": 2}, Grouping.BY_PARTITION)
    found = grouped(before, {"a": 4}, Grouping.BY_PARTITION)
    assert found.tasks == {"a": names(0, 1, 0, 1)}
    assert found.first_counts == {"a": 2}


def test_the_first_count_is_remembered_over_a_chain() -> None:
    found = grouped(NONE, {"a": 2}, Grouping.BY_SOURCE_PARTITION)
    for count in (4, 4, 8, 24):
        found = grouped(found, {"a": count}, Grouping.BY_SOURCE_PARTITION)
        assert found.tasks["a"] == tuple(f"a {partition % 2}" for partition in range(count))


def test_of_two_joined_topics_one_grows() -> None:
    """Equal keys of both are still read by one task."""
    before = grouped(NONE, {"orders": 2, "payments": 2}, Grouping.BY_PARTITION)
    found = grouped(before, {"orders": 4, "payments": 2}, Grouping.BY_PARTITION)
    for key in range(100):
        assert found.tasks["orders"][key % 4] == found.tasks["payments"][key % 2]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(1, 6))
def test_a_key_never_changes_its_task(factors: list[int], count: int) -> None:
    found = grouped(NONE, {"a": count}, Grouping.BY_PARTITION)
    tasks = [found.tasks["a"][key % count] for key in range(200)]
    for factor in factors:
        count *= factor
        found = grouped(found, {"a": count}, Grouping.BY_PARTITION)
        assert [found.tasks["a"][key % count] for key in range(200)] == tasks


def test_all_in_one_has_one_task() -> None:
    found = grouped(NONE, {"a": 2, "b": 3}, Grouping.ALL_IN_ONE)
    assert len(found.partitions("all")) == 5
    assert len(grouped(found, {"a": 4, "b": 3}, Grouping.ALL_IN_ONE).partitions("all")) == 7


def test_broadcast_topics_are_exempt() -> None:
    found = grouped(NONE, {"a": 2, "rates": 3}, Grouping.BY_PARTITION, broadcast={"rates"})
    assert found.tasks.keys() == {"a"}
    again = grouped(found, {"a": 2, "rates": 5}, Grouping.BY_PARTITION, broadcast={"rates"})
    assert again == found


def test_a_source_that_comes_later_begins_with_its_own_count() -> None:
    found = grouped(
        grouped(NONE, {"a": 2}, Grouping.BY_PARTITION), {"a": 4, "b": 4}, Grouping.BY_PARTITION
    )
    assert found.first_counts == {"a": 2, "b": 4}
    assert found.tasks["b"] == names(0, 1, 2, 3)
    gone = grouped(found, {"b": 4}, Grouping.BY_PARTITION)
    assert gone.tasks.keys() == gone.first_counts.keys() == {"b"}


def by_halves(partition: int, count: int, first: int) -> int:
    """Of producers that split ranges of the hash: neighbours have one parent."""
    return partition if partition < first else (partition - first) * first // (count - first)


def test_another_mapper_can_be_named() -> None:
    before = grouped(NONE, {"a": 2}, Grouping.BY_PARTITION)
    found = grouped(before, {"a": 6}, Grouping.BY_PARTITION, by_halves)
    assert found.tasks["a"] == names(0, 1, 0, 0, 1, 1)


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (2, "source a had 4 partitions, and has 2: none may go"),
        (
            6,
            "source a had 4 partitions, and has 6, which is no multiple: keys have changed between "
            "partitions. Make it 8, or read a new topic",
        ),
    ],
)
def test_growth_that_no_mapper_can_follow_is_refused(count: int, said: str) -> None:
    before = grouped(NONE, {"a": 4}, Grouping.BY_PARTITION)
    with pytest.raises(Precondition) as refused:
        grouped(before, {"a": count}, Grouping.BY_PARTITION)
    assert refused.value.reason == said


@pytest.mark.parametrize("parent", [2, -1])
def test_a_mapper_that_cannot_be_right_is_refused(parent: int) -> None:
    before = grouped(NONE, {"a": 2}, Grouping.BY_PARTITION)
    with pytest.raises(Precondition, match="there were 2 at first, each its own parent"):
        grouped(before, {"a": 4}, Grouping.BY_PARTITION, lambda p, _c, _f: p if p < 2 else parent)
