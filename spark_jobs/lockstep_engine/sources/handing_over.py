"""What a process that reads tells the one that it reads for, over a socket between the two.

::

    a kind, a length      BATCH: and the descriptor of a file of so many bytes, a batch of Arrow
                          DONE: that was all
                          FAILED: and a sentence of so many bytes
    back, for each batch  a byte, once it is mapped

A batch is written once, to memory that both have (on Linux), and the other one works on it there; by a
pipe it would be copied three times. There is never more than one under way, so a process does not go on
reading for one that does not come to it.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import IO

import pyarrow as pa

__all__ = ["BATCH", "DONE", "FAILED", "NobodyThere", "Telling", "receive"]

BATCH, DONE, FAILED = b"b", b"d", b"f"

_HEAD = struct.Struct("<cQ")
_BUFFER = 1 << 16
_MAPPED = b"m"


class NobodyThere(Exception):
    """The one to be told is gone, or listens no more."""


class Telling:
    """The end of the one that reads."""

    def __init__(self, other: socket.socket) -> None:
        self._other = other
        self._under_way: IO[bytes] | None = None

    def hand_over(self, batch: pa.RecordBatch) -> None:
        """The next batch. Raises NobodyThere, and OSError where there is no room for it."""
        memory = _memory()
        try:
            with pa.ipc.new_stream(memory, batch.schema) as stream:
                stream.write_batch(batch)
            memory.flush()
            with _told():
                self._wait()
                head = _HEAD.pack(BATCH, memory.tell())
                socket.send_fds(self._other, [head], [memory.fileno()])
        except BaseException:
            memory.close()
            raise
        # Not every system keeps a file whose descriptor is under way.
        self._under_way = memory

    def end(self, kind: bytes, text: bytes = b"") -> None:
        """DONE, or FAILED and a sentence. Raises NobodyThere."""
        with _told():
            self._wait()
            self._other.sendall(_HEAD.pack(kind, len(text)) + text)

    def _wait(self) -> None:
        """Until the last batch is mapped, if there was one."""
        if self._under_way is None:
            return
        with self._under_way:
            self._under_way = None
            if self._other.recv(len(_MAPPED)) != _MAPPED:
                raise NobodyThere


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NobodyThere from error


def receive(other: socket.socket) -> pa.RecordBatch | str | None:
    """What is told next: a batch, why there is no more, or None, which was all. Raises EOFError,
    OSError."""
    head, descriptors = _head(other)
    try:
        if len(head) < _HEAD.size:
            raise EOFError("it said nothing more")
        kind, size = _HEAD.unpack(head)
        if kind == BATCH:
            return _mapped(other, descriptors, size)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    if kind == DONE:
        return None
    if kind != FAILED:
        raise EOFError(f"it said {kind!r}, which says nothing")
    text = other.recv(size, socket.MSG_WAITALL)
    if len(text) < size:
        raise EOFError("it said less than it announced")
    return text.decode()


def _head(other: socket.socket) -> tuple[bytes, array.array[int]]:
    """And the descriptors that came with it: one, or none where this process may have no more."""
    descriptors = array.array("i")
    flags = socket.MSG_WAITALL | getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    room = socket.CMSG_SPACE(descriptors.itemsize)
    head, messages, _, _ = other.recvmsg(_HEAD.size, room, flags)
    for _, _, content in messages:
        descriptors.frombytes(
            content[: len(content) // descriptors.itemsize * descriptors.itemsize]
        )
    return head, descriptors


def _mapped(other: socket.socket, descriptors: array.array[int], size: int) -> pa.RecordBatch:
    if not descriptors:
        raise EOFError("its batch did not come with what it said")
    # What is closed stays mapped for as long as anything of the batch is there.
    with pa.memory_map(f"/dev/fd/{descriptors[0]}") as shared:
        content = shared.read_buffer(size)
    other.sendall(_MAPPED)
    return pa.ipc.open_stream(content).read_next_batch()


def _memory() -> IO[bytes]:
    """A file that nobody else can find: in memory, where the system has such files."""
    try:
        return open(os.memfd_create("lockstep"), "w+b", _BUFFER)
    except (AttributeError, OSError):
        return TemporaryFile(buffering=_BUFFER)
