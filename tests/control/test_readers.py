"""Tasks over workers: who reads which partition, from layout to layout."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from lockstep.control.layout.layouts import Join, Layout, Leave, after
from lockstep.control.layout.partitions import Grouping, TaskAssignment, grouped
from lockstep.control.layout.readers import Reader, readers, task_workers

NONE = TaskAssignment()


def workers(*numbers: int) -> Join:
    return Join({number: f"h{number}" for number in numbers})


def test_children_are_read_where_their_parents_are() -> None:
    first = grouped(NONE, {"a": 2, "b": 2}, Grouping.BY_PARTITION)
    grown = grouped(first, {"a": 4, "b": 2}, Grouping.BY_PARTITION)
    history = (Layout(), after(Layout(), workers(0, 1)))
    assert readers(grown, history) == (
        *(Reader("a", number, f"partition {number % 2}", number % 2) for number in range(4)),
        *(Reader("b", number, f"partition {number}", number) for number in range(2)),
    )
    assert task_workers(first, history) == task_workers(grown, history)


def test_under_a_layout_without_workers_nobody_is_named() -> None:
    assignment = grouped(NONE, {"a": 2}, Grouping.ALL_IN_ONE)
    assert readers(assignment, [Layout()])[1] == Reader("a", 1, "all", None)
    assert readers(NONE, [Layout(), after(Layout(), workers(0))]) == ()


def test_neighbours_go_to_one_worker() -> None:
    """By number, not by name: 2 is beside 3, not beside 20."""
    assignment = grouped(NONE, {"a": 24}, Grouping.BY_SOURCE_PARTITION)
    found = readers(assignment, [after(Layout(), workers(4, 7))])
    assert [one.worker for one in found] == [4] * 12 + [7] * 12


@given(
    st.integers(1, 12),
    st.lists(st.sets(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=5),
)
def test_tasks_are_even_and_move_as_little_as_can_be(count: int, lives: list[set[int]]) -> None:
    assignment = grouped(NONE, {"a": count}, Grouping.BY_PARTITION)
    history = [Layout()]
    before = dict.fromkeys(assignment.tasks["a"])
    for alive in lives:
        there = set(history[-1].hosts)
        changes = [workers(*alive - there)] if alive - there else []
        if there - alive:
            changes.append(Leave(frozenset(there - alive)))  # type: ignore[arg-type]
        history.append(after(history[-1], *changes))
        found = dict(task_workers(assignment, history))
        owned = Counter(found.values())
        assert set(owned) <= alive
        sizes = [owned[worker] for worker in alive]
        assert max(sizes) - min(sizes) <= 1
        if before.keys() and None not in before.values() and alive == there:
            assert found == before
        # What no worker has to give up, for it has gone or has too many, stays.
        most = -(-count // len(alive))
        held = Counter(before.values())
        has_to = sum(n if worker not in alive else max(0, n - most) for worker, n in held.items())
        least_from_others = sum(max(0, count // len(alive) - held[worker]) for worker in alive)
        moved = sum(before[task] not in (None, worker) for task, worker in found.items())
        if None not in before.values():
            assert moved == max(has_to, least_from_others)
        before = found
