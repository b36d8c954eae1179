"""What a process that reads tells the one that it reads for, over a socket between the two.

::

    a kind, a length      BATCH: and the descriptor of a file of so many bytes, a batch of Arrow
                          DONE: that was all
                          FAILED: and a sentence of so many bytes

A batch is written once, to memory that both have (on Linux), and the other one works on it there; by a
pipe it would be copied three times.
"""

from __future__ import annotations

import os
import socket
import struct
from tempfile import TemporaryFile
from typing import IO

import pyarrow as pa

__all__ = ["BATCH", "DONE", "FAILED", "hand_over", "receive", "tell"]

BATCH, DONE, FAILED = b"b", b"d", b"f"

_HEAD = struct.Struct("<cQ")
_BUFFER = 1 << 16


def tell(other: socket.socket, kind: bytes, text: bytes = b"") -> None:
    """DONE, or FAILED. Raises OSError where nobody is there."""
    other.sendall(_HEAD.pack(kind, len(text)) + text)


def hand_over(other: socket.socket, batch: pa.RecordBatch) -> None:
    """Raises OSError where nobody is there."""
    with _memory() as memory:
        with pa.ipc.new_stream(memory, batch.schema) as stream:
            stream.write_batch(batch)
        memory.flush()
        head = _HEAD.pack(BATCH, memory.tell())
        socket.send_fds(other, [head], [memory.fileno()])


def receive(other: socket.socket) -> tuple[bytes, pa.RecordBatch | str | None]:
    """What is told next: its kind, and the batch or the sentence. Raises EOFError, OSError."""
    head, descriptors, _, _ = socket.recv_fds(other, _HEAD.size, 1, socket.MSG_WAITALL)
    try:
        if len(head) < _HEAD.size:
            raise EOFError("it said nothing more")
        kind, size = _HEAD.unpack(head)
        if kind == BATCH and descriptors:
            # What is closed stays mapped for as long as anything of the batch is there.
            with pa.memory_map(f"/dev/fd/{descriptors[0]}") as shared:
                content = shared.read_buffer(size)
            return kind, pa.ipc.open_stream(content).read_next_batch()
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    if kind == DONE:
        return kind, None
    text = other.recv(size, socket.MSG_WAITALL)
    if len(text) < size:
        raise EOFError("it said less than it announced")
    return kind, text.decode()


def _memory() -> IO[bytes]:
    """A file that nobody else can find: in memory, where the system has such files."""
    try:
        return open(os.memfd_create("lockstep"), "w+b", _BUFFER)
    except (AttributeError, OSError):
        return TemporaryFile(buffering=_BUFFER)
