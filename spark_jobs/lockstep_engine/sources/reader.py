"""`python -m lockstep_engine.sources.reader`: slices of topics on stdin, their records on stdout.

::

    in    pickles of (PlainReading, OffsetRange)
    out   for each, messages of a kind, a length and as many bytes: batches of Arrow, and at last
          `done`, or `failed` with a sentence

It ends where stdin does. What anything prints goes to stderr.
"""

from __future__ import annotations

import gc
import pickle
import signal
import struct
import sys
from collections.abc import Iterable, Iterator
from importlib.abc import MetaPathFinder

import pyarrow as pa

__all__ = ["BATCH", "DONE", "FAILED", "HEAD", "large"]

HEAD = struct.Struct("<cQ")
BATCH, DONE, FAILED = b"b", b"d", b"f"

_ROWS = 1 << 16
"""Of a batch, about: whoever goes on from them does so for each."""


def main() -> int:
    """Serve who started this process, until that ends it."""
    # Of a terminal that interrupts the driver: which ends this process by ending.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.meta_path.insert(0, _WithoutPandas())
    # Of each record Kafka's client makes an object, and none of them is in a cycle: to look for those
    # would take a sixth of the time. So that is done once for each slice, and not in what was imported.
    gc.freeze()
    gc.disable()
    asked, answers, sys.stdout = sys.stdin.buffer, sys.stdout.buffer, sys.stderr

    def answer(kind: bytes, content: pa.Buffer | bytes = b"") -> None:
        answers.write(HEAD.pack(kind, len(content)))
        answers.write(content)

    while True:
        try:
            reading, wanted = pickle.load(asked)
        except EOFError:
            return 0
        try:
            for batch in large(reading.records(wanted)):
                answer(BATCH, batch.serialize())
        except Exception as error:
            answer(FAILED, f"{type(error).__name__}: {error}".encode())
        else:
            answer(DONE)
        answers.flush()
        gc.collect()


class _WithoutPandas(MetaPathFinder):
    """PyArrow imports pandas for its first array, if there is one, and uses it for nothing here: that is
    half of what a process takes to get ready."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Raises ModuleNotFoundError for pandas, and leaves all else to others."""
        del path, target
        if fullname == "pandas":
            raise ModuleNotFoundError(f"{fullname} is not imported here", name=fullname)


def large(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, in batches that are large but for the last."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= _ROWS:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


if __name__ == "__main__":
    sys.exit(main())
