"""`python -m lockstep_engine.sources.reader`: reads slices of topics for who has started it.

Its stdin is a socket: pickles of (PlainReading, OffsetRange) come in, and what is read goes back, as
`handing_over` has it. It ends where these do. What anything prints goes to stderr.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import socket
import sys
from collections.abc import Iterable, Iterator
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

import pyarrow as pa

from lockstep_engine.sources.handing_over import DONE, FAILED, NobodyThere, Telling

if TYPE_CHECKING:
    # What comes in brings its modules along.
    from lockstep.control.model import OffsetRange
    from lockstep_engine.sources.plain_reading import PlainReading

__all__ = ["large"]

_ROWS = 1 << 16
"""Of a batch, about: whoever goes on from them does so for each."""


def main() -> int:
    """Serve who started this process, until that ends it."""
    # Of a terminal that interrupts the driver: which ends this process by ending.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.meta_path.insert(0, _WithoutPandas())
    # Nothing that is made of records is in a cycle. So cycles are looked for once for each slice, and
    # not in what was imported.
    gc.freeze()
    gc.disable()
    asked, sys.stdout = sys.stdin.buffer, sys.stderr
    telling = Telling(socket.socket(fileno=os.dup(asked.fileno())))
    while True:
        try:
            reading, wanted = pickle.load(asked)
            _answer(reading, wanted, telling)
        except (EOFError, ConnectionError, NobodyThere):
            return 0
        gc.collect()


def _answer(reading: PlainReading, wanted: OffsetRange, telling: Telling) -> None:
    """Raises NobodyThere."""
    try:
        for batch in large(reading.told(wanted)):
            telling.hand_over(batch)
    except NobodyThere:
        raise
    except Exception as error:
        telling.end(FAILED, f"{type(error).__name__}: {error}".encode())
    else:
        telling.end(DONE)


class _WithoutPandas(MetaPathFinder):
    """PyArrow imports pandas for its first array, if there is one, and uses it for nothing here: that is
    half of what a process takes to get ready."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Raises ModuleNotFoundError for pandas, and leaves all else to others."""
        del path, target
        if fullname == "pandas":
            raise ModuleNotFoundError(f"{fullname} is not imported here", name=fullname)


def large(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, in batches that are large but for the last, and for those before one of another
    shape."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        if waiting and waiting[0].schema != batch.schema:
            yield pa.concat_batches(waiting)
            waiting = []
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= _ROWS:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


if __name__ == "__main__":
    sys.exit(main())
