"""What carries a group's progress between the tasks of one Spark stage (as in timely dataflow).

Barrier execution mode starts all tasks of a stage together, or none; `RDD.barrier` is not in Spark
Connect, `mapInArrow(..., barrier=True)` is, and gives tasks the same `BarrierTaskContext`. Its
`barrier` and `allGather` were tried on 4.1.3: they hold up the thread that calls them, each task has to
call them equally often, and a call takes a second, as the waiting task looks once a second
whether it has been killed. So they serve for what barrier mode is made for, to find each other: with one
`allGather` task 0 tells all where it listens, and a key. It keeps what is told in its memory, and the
tasks ask it over connections of their own. A task that waits does not hold up its thread.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from threading import Lock, Thread
from typing import Any

from pyspark import BarrierTaskContext

from lockstep.control.coordination.memory import MemoryCarrier
from lockstep.control.coordination.progress import Notice, Progress
from lockstep.errors import LockstepError, Unreachable

__all__ = ["TaskCarrier", "TaskGroups", "met"]


class TaskCarrier:
    """One group among the tasks of a stage; gone with the stage, which fails as a whole.

    Every method raises Unreachable where task 0 is gone: Spark then ends this task too.
    """

    def __init__(self, connection: Connection, lock: Lock, group: str) -> None:
        self._connection, self._lock, self._group = connection, lock, group

    def publish(self, worker: str, notice: Notice) -> Progress:
        told: Progress = self._ask("publish", worker, notice)
        return told

    def read(self) -> Mapping[str, Progress]:
        known: Mapping[str, Progress] = self._ask("read")
        return known

    def rest(self, known: Mapping[str, Progress]) -> None:
        """Task 0 remembers what it has shown to this task: `known` does not travel."""
        del known
        self._ask("rest")

    def _ask(self, *question: object) -> Any:
        try:
            with self._lock:
                self._connection.send((self._group, *question))
                answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise Unreachable(
                f"group {self._group}: the task that all others talk to has ended",
                expected="an answer of task 0 of the stage",
                found=str(error) or type(error).__name__,
                next_step="look in Spark's log why the stage ended; it can be run again",
            ) from error
        if isinstance(answer, LockstepError):
            raise answer
        return answer


class TaskGroups:
    """This task as a worker, and carriers for as many groups as it takes. Workers are named by the
    numbers of their partitions."""

    def __init__(self, connection: Connection, worker: int, workers: int) -> None:
        self.worker = str(worker)
        self.workers = frozenset(map(str, range(workers)))
        self._connection, self._lock = connection, Lock()

    def carrier(self, group: str) -> TaskCarrier:
        """The carrier of the group of that name."""
        return TaskCarrier(self._connection, self._lock, group)


@contextmanager
def met() -> Iterator[TaskGroups]:
    """Meet the other tasks of this barrier stage, which takes a second or two.

    Every task has to, or all wait for ever. At the end of the body task 0 waits for the others, so leave
    the body before the task yields rows.
    """
    context = BarrierTaskContext.get()
    worker = context.partitionId()
    hosts = [info.address.rpartition(":")[0] for info in context.getTaskInfos()]
    hub = _Hub(hosts[0], len(hosts)) if worker == 0 else None
    port, key = json.loads(context.allGather(hub.invitation if hub else "")[0])
    with Client((hosts[0], port), authkey=bytes.fromhex(key)) as connection:
        yield TaskGroups(connection, worker, len(hosts))
    if hub:
        hub.join()


class _Hub:
    """What task 0 does for all, in a thread for each of them. Only who was told the key is let in."""

    def __init__(self, host: str, tasks: int) -> None:
        key = secrets.token_bytes(32)
        self._listener = Listener((host, 0), backlog=tasks, authkey=key)
        self.invitation = json.dumps([self._listener.address[1], key.hex()])
        self._carriers: dict[str, MemoryCarrier] = {}
        self._doors = [Thread(target=self._serve, daemon=True) for _ in range(tasks)]
        for door in self._doors:
            door.start()

    def join(self) -> None:
        """Wait until all tasks have come and gone."""
        for door in self._doors:
            door.join()
        self._listener.close()

    def _serve(self) -> None:
        shown: dict[str, Mapping[str, Progress]] = {}
        with self._accept() as connection, suppress(EOFError, OSError):
            while True:
                connection.send(self._answer(connection.recv(), shown))

    def _accept(self) -> Connection:
        while True:
            # Strangers may knock.
            with suppress(AuthenticationError, EOFError, ConnectionError):
                return self._listener.accept()

    def _answer(
        self, question: tuple[Any, ...], shown: dict[str, Mapping[str, Progress]]
    ) -> object:
        group, *about = question
        # In one operation: two tasks may be the first of a group.
        carrier = self._carriers.setdefault(group, MemoryCarrier())
        match about:
            case ["publish", worker, notice]:
                try:
                    return carrier.publish(worker, notice)
                except LockstepError as refused:
                    return refused
            case ["read"]:
                shown[group] = carrier.read()
                return shown[group]
            case _:
                carrier.rest(shown.get(group, {}))
                return None
