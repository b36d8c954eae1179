"""Which task reads which source partition, and stays with it when a topic grows (as SEP-5 asks).

Producers send a key to partition hash(key) % count. Where the count is multiplied, the keys of a new
partition were all in one partition before: its parent, which a mapper names. So a new partition is
read by the task of its parent, and all records of a key by one task for good. The number of tasks
of a source is fixed by the count that it had first, over any chain of expansions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

from lockstep.control.preconditions import Precondition

__all__ = [
    "Grouping",
    "Mapper",
    "TaskAssignment",
    "by_modulo",
    "grouped",
    "next_multiple",
    "parents_of",
]

Mapper = Callable[[int, int, int], int]
"""SEP-5's SystemStreamPartitionMapper: (partition, count now, count at first) -> the partition that had
all its keys at first. Of a partition that was there at first, it is that partition."""


def by_modulo(partition: int, _count: int, first_count: int) -> int:
    """The mapper for hash(key) % count, which is what Kafka's producers do."""
    return partition % first_count


class Grouping(Enum):
    """Which partitions are read together: the same number of all sources, so that equal keys of two
    topics meet; each for itself; or all. The values are those of `lockstep.partition_grouping`."""

    BY_PARTITION = "partition"
    BY_SOURCE_PARTITION = "source-partition"
    ALL_IN_ONE = "all"

    def task(self, source: str, partition: int) -> str:
        """The name of the task that a partition has from the beginning."""
        match self:
            case Grouping.BY_PARTITION:
                return f"partition {partition}"
            case Grouping.BY_SOURCE_PARTITION:
                return f"{source} {partition}"
            case Grouping.ALL_IN_ONE:
                return "all"


@dataclass(frozen=True)
class TaskAssignment:
    """What is recorded: the task of every partition, by source and number, and how many partitions each
    source had at first. Sources that are `broadcast` are read whole by every task, and not in it."""

    tasks: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    first_counts: Mapping[str, int] = field(default_factory=dict, hash=False)

    def partitions(self, task: str) -> tuple[tuple[str, int], ...]:
        """What a task reads, by source and number."""
        return tuple(
            (source, partition)
            for source, tasks in sorted(self.tasks.items())
            for partition, one in enumerate(tasks)
            if one == task
        )


def grouped(
    recorded: TaskAssignment,
    counts: Mapping[str, int],
    grouping: Grouping,
    mapper: Mapper = by_modulo,
    broadcast: Collection[str] = (),
) -> TaskAssignment:
    """The assignment for topics of these sizes, after the one that is recorded.

    A source that is not recorded yet gets the tasks of its partitions' numbers; one that is gone is
    forgotten. Raises Precondition where a source has shrunk, or grown by no multiple: then keys change
    their partitions in a way that no mapper can follow.
    """
    tasks: dict[str, tuple[str, ...]] = {}
    firsts: dict[str, int] = {}
    for source, count in counts.items():
        if source in broadcast:
            continue
        before = recorded.tasks.get(source, ())
        first = recorded.first_counts.get(source, count)
        _check_growth(source, len(before) or count, count)
        parents = parents_of(source, count, first, mapper)
        at_first = before[:first] or tuple(grouping.task(source, one) for one in range(first))
        tasks[source] = tuple(at_first[parent] for parent in parents)
        firsts[source] = first
    return TaskAssignment(tasks, firsts)


def parents_of(source: str, count: int, first: int, mapper: Mapper) -> tuple[int, ...]:
    """The parent of each partition of a topic that has `count` of them, and had `first`. Raises
    Precondition where the mapper says what cannot be."""
    return tuple(_parent(mapper, source, partition, count, first) for partition in range(count))


def next_multiple(count: int, of: int) -> int:
    """The least multiple that is no less."""
    return of * -(-count // of)


def _check_growth(source: str, before: int, count: int) -> None:
    if count < before:
        raise Precondition(f"source {source} had {before} partitions, and has {count}: none may go")
    if count % before:
        raise Precondition(
            f"source {source} had {before} partitions, and has {count}, which is no multiple: keys have "
            f"changed between partitions. Make it {next_multiple(count, before)}, or read a new topic"
        )


def _parent(mapper: Mapper, source: str, partition: int, count: int, first: int) -> int:
    parent = mapper(partition, count, first)
    if parent not in range(first) or (partition < first and parent != partition):
        raise Precondition(
            f"source {source}: the mapper gives partition {partition} of {count} the parent {parent}; "
            f"there were {first} at first, each its own parent"
        )
    return parent
