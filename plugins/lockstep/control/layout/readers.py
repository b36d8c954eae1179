"""Which worker reads which source partition: tasks over workers, as shards are.

Nothing of it is recorded: it follows from the tasks and the layouts that there were, so that the same
record always says the same. The law: every task has one worker, workers differ by at most one task,
and from layout to layout as few tasks move as can (`sharding.assign`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lockstep.control.layout.layouts import Layout
from lockstep.control.layout.partitions import TaskAssignment
from lockstep.control.layout.sharding import NOBODY, assign, resharded

__all__ = ["Reader", "readers", "task_workers"]


@dataclass(frozen=True)
class Reader:
    """A source's partition, the task that reads it, and the worker that the task is given to: None
    under a layout without workers."""

    source: str
    partition: int
    task: str
    worker: int | None


def readers(assignment: TaskAssignment, layouts: Iterable[Layout]) -> tuple[Reader, ...]:
    """Who reads each partition under the last of these layouts, which are all from epoch 0 on."""
    workers = task_workers(assignment, layouts)
    return tuple(
        Reader(source, partition, task, workers[task])
        for source, tasks in sorted(assignment.tasks.items())
        for partition, task in enumerate(tasks)
    )


def task_workers(assignment: TaskAssignment, layouts: Iterable[Layout]) -> Mapping[str, int | None]:
    """The worker of each task. Tasks stand in the order of their first partitions, and neighbours go to
    one worker while nobody has had them yet."""
    first: dict[str, tuple[int, str]] = {}
    for source, tasks in sorted(assignment.tasks.items()):
        for partition, task in enumerate(tasks):
            first[task] = min(first.get(task, (partition, source)), (partition, source))
    ordered = sorted(first, key=lambda task: first[task])
    owners: tuple[int, ...] = (NOBODY,) * len(ordered)
    if ordered:
        for layout in layouts:
            owners = assign(resharded(owners, len(ordered)), layout.hosts)
    return {
        task: None if worker == NOBODY else worker
        for task, worker in zip(ordered, owners, strict=True)
    }
