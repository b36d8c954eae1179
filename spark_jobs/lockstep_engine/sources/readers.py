"""Processes beside the driver that read slices of topics for it: one process has one interpreter, which
does one thing at a time.

They are started when they are first wanted, and stay for as long as this process does.
"""

from __future__ import annotations

import atexit
import os
import pickle
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import BoundedSemaphore
from weakref import WeakSet

import pyarrow as pa

from lockstep.control.model import OffsetRange
from lockstep.threads import processors
from lockstep_engine.sources.handing_over import receive
from lockstep_engine.sources.plain_reading import PlainReading

__all__ = ["CannotRead", "Reader", "a_reader", "seats"]

_END_SECONDS = 5.0
_MOST = 4


class CannotRead(Exception):
    """A slice was not read to its end."""


class Reader:
    """One process. Raises OSError where none can be started."""

    def __init__(self) -> None:
        path = os.pathsep.join(filter(None, sys.path))
        self._link, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                # -P: the folder that this process happens to be in is not before the standard library
                [sys.executable or "python3", "-P", "-m", "lockstep_engine.sources.reader"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
            )

    def read(self, reading: PlainReading, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        """The records of a slice, of the reading's shape. Raises CannotRead, after which, as after what
        is not read to its end, it has to be ended."""
        try:
            self._link.sendall(pickle.dumps((reading, wanted)))
            while True:
                found = receive(self._link)
                if not isinstance(found, pa.RecordBatch):
                    break
                yield reading.whole(found, wanted.partition)
        except (OSError, EOFError) as error:
            raise CannotRead(f"the process that reads has ended: {error}") from error
        if found is not None:
            raise CannotRead(found)

    @property
    def is_alive(self) -> bool:
        """Whether it was, a moment ago."""
        return self._process.poll() is None

    def forget(self) -> None:
        """In a process that was forked from its own, so that it ends with that alone."""
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, self._link.fileno())
        os.close(nothing)

    def end(self) -> None:
        """Whatever it does."""
        self._link.close()
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)


def seats() -> int:
    """How many slices are read at the same time: as many as there are processors, and not many."""
    return min(_MOST, processors())


class _Readers:
    """Those of this process."""

    def __init__(self) -> None:
        self.seats = BoundedSemaphore(seats())
        self.idle: deque[Reader] = deque()
        self.all: WeakSet[Reader] = WeakSet()

    def forget(self) -> None:
        """In a process that was forked from theirs, which has others."""
        _FORGOTTEN.extend(self.all)
        for reader in self.all:
            with suppress(ValueError, OSError):
                reader.forget()
        self.__init__()  # type: ignore[misc]

    def waiting(self) -> Reader | None:
        """One that does nothing, if there is one."""
        with suppress(IndexError):
            while True:
                reader = self.idle.pop()
                if reader.is_alive:
                    return reader
                reader.end()
        return None

    def end(self) -> None:
        """Those that do nothing."""
        while self.idle:
            self.idle.pop().end()


_FORGOTTEN: list[Reader] = []
_READERS = _Readers()
os.register_at_fork(after_in_child=_READERS.forget)
atexit.register(_READERS.end)


@contextmanager
def a_reader() -> Iterator[Reader]:
    """One that nobody else has, as soon as there is one. Raises OSError where none can be started."""
    with _READERS.seats:
        reader = _READERS.waiting() or Reader()
        _READERS.all.add(reader)
        try:
            yield reader
        except BaseException:
            reader.end()
            raise
        _READERS.idle.append(reader)
