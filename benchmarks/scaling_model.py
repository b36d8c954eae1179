"""How long an interval would take on more cores: its tasks, as Spark logged them on one, scheduled anew.

The model is of one interval, logged by a server that has one core. A stage is submitted some time after
the stages that it waits for have ended: that time is the driver's, and the same on any number of cores.
Its tasks then run on the cores that are free, those of the stage submitted first before the others, and
of one stage the longest first. A task takes as long as it took on its one core, from when that was
free for it. Left out are the network, what cores and executors take from each other (memory, disk,
garbage collection), and tasks that would wait for each other, as where two read what one is to keep.
"""

from __future__ import annotations

import heapq
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

__all__ = ["Recorded", "Stage", "makespan", "recorded"]


@dataclass(frozen=True)
class Stage:
    """`after` are the places of the stages that it waits for, `delay` the seconds from the last of their
    ends (or from the start of all) to its submission, `tasks` the seconds of each."""

    after: tuple[int, ...]
    delay: float
    tasks: tuple[float, ...]


@dataclass(frozen=True)
class Recorded:
    """An interval on one core: its seconds, its stages as they were submitted, and the seconds after the
    last task."""

    seconds: float
    stages: tuple[Stage, ...]
    rest: float

    @property
    def task_seconds(self) -> float:
        """What one core works on."""
        return sum(sum(stage.tasks) for stage in self.stages)

    def on(self, cores: int) -> float:
        """The seconds that it would take on so many cores."""
        return makespan(self.stages, cores) + self.rest


def makespan(stages: Sequence[Stage], cores: int) -> float:
    """Seconds until the last task has ended."""
    assert cores >= 1, "somebody has to do it"
    awaited = [len(stage.after) for stage in stages]
    left = [len(stage.tasks) for stage in stages]
    followers: dict[int, list[int]] = defaultdict(list)
    for place, stage in enumerate(stages):
        assert stage.tasks, "a stage has tasks"
        for before in stage.after:
            followers[before].append(place)
    submitted = [(one.delay, place) for place, one in enumerate(stages) if not one.after]
    heapq.heapify(submitted)
    waiting: list[tuple[int, float]] = []
    running: list[tuple[float, int]] = []
    now = 0.0
    while submitted or running:
        now = min(queue[0][0] for queue in (submitted, running) if queue)
        while running and running[0][0] <= now:
            _, place = heapq.heappop(running)
            left[place] -= 1
            for follower in followers[place] if not left[place] else ():
                awaited[follower] -= 1
                if not awaited[follower]:
                    heapq.heappush(submitted, (now + stages[follower].delay, follower))
        while submitted and submitted[0][0] <= now:
            _, place = heapq.heappop(submitted)
            for seconds in stages[place].tasks:
                heapq.heappush(waiting, (place, -seconds))
        while waiting and len(running) < cores:
            place, negative = heapq.heappop(waiting)
            heapq.heappush(running, (now - negative, place))
    assert not any(left), "every task has run"
    return now


@dataclass(frozen=True)
class _Task:
    """Of which stage it is; when it was launched and found to have finished, in ms since the epoch."""

    stage: int
    launched: int
    finished: int


@dataclass
class _Logged:
    """A stage in the log, in ms since the epoch. `tasks` are from when to when each had the core."""

    submitted: int
    parents: tuple[int, ...]
    tasks: list[tuple[int, int]] = field(default_factory=list)

    @property
    def ended(self) -> int:
        return self.tasks[-1][1]


def recorded(log: Iterable[str], started: int, ended: int) -> Recorded:
    """The interval from `started` to `ended`, in ms since the epoch, as a server of one core logged it.

    A stage waits for those of its parents that ran; one without, for the stage that ended last before it
    was submitted, as it was the driver that waited for that.
    """
    found = _stages(log, started, ended)
    numbers = sorted(found, key=lambda number: (found[number].submitted, number))
    places = {number: place for place, number in enumerate(numbers)}
    stages = []
    for number in numbers:
        one = found[number]
        after = tuple(parent for parent in one.parents if parent in found) or _latest(found, one)
        begin = max((found[before].ended for before in after), default=started)
        delay = max(0, one.submitted - begin) / 1000
        tasks = tuple((end - begin) / 1000 for begin, end in one.tasks)
        stages.append(Stage(tuple(places[before] for before in after), delay, tasks))
    last = max((one.ended for one in found.values()), default=started)
    return Recorded((ended - started) / 1000, tuple(stages), (ended - last) / 1000)


def _latest(found: Mapping[int, _Logged], stage: _Logged) -> tuple[int, ...]:
    """The stage that ended last before this one was submitted; none before the first."""
    before = [(one.ended, number) for number, one in found.items() if one.ended <= stage.submitted]
    return (max(before)[1],) if before else ()


def _stages(log: Iterable[str], started: int, ended: int) -> dict[int, _Logged]:
    """Stages submitted in the time that had tasks, by their number."""
    found: dict[int, _Logged] = {}
    tasks: list[_Task] = []
    for line in log:
        if '"SparkListenerStageSubmitted"' in line[:60]:
            stage = json.loads(line)["Stage Info"]
            if started <= stage["Submission Time"] <= ended:
                parents = tuple(stage["Parent IDs"])
                found[stage["Stage ID"]] = _Logged(stage["Submission Time"], parents)
        elif '"SparkListenerTaskEnd"' in line[:60]:
            event = json.loads(line)
            task = event["Task Info"]
            tasks.append(_Task(event["Stage ID"], task["Launch Time"], task["Finish Time"]))
    _share_out(found, sorted(tasks, key=lambda task: (task.launched, task.finished)))
    return {number: stage for number, stage in found.items() if stage.tasks}


def _share_out(found: Mapping[int, _Logged], tasks: Sequence[_Task]) -> None:
    """Give each task the time in which it had the core: from when that was free for it and its stage was
    submitted. The core may have the next task before the driver has seen the end of one."""
    free = 0
    for task, following in zip_longest(tasks, tasks[1:]):
        end = task.finished if following is None else min(task.finished, following.launched)
        stage = found.get(task.stage)
        if stage is not None:
            begin = min(task.launched, max(free, stage.submitted))
            stage.tasks.append((begin, max(begin, end)))
        free = end
