"""What the circuit asks of the version that an interval opens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from lockstep.lake.lookups import MOST_ROWS
from lockstep.lake.wanted_rows import Numbers
from lockstep_engine.local.rows import Rows

__all__ = ["Before"]


def _nothing(*_: object) -> None:
    """Spark is to read."""


@dataclass(frozen=True)
class Before:
    """What was there before an interval.

    `trace`: the rows of a trace at the version opened, None where it is new. `table`: of a followed
    table at the snapshot that the interval starts from, given the source and columns: these and
    `_weight`; asked for after the first interval only. `trace_size`, `table_size`: how many rows these
    are at most.

    `look_up`: of such a table's rows at least those that hold one of the numbers, or null, in each of
    some columns, given the source, columns and numbers by column: these columns and `_weight`; all rows
    where there are no numbers.
    `look_up_trace`: the same of a trace that is not new, with all its columns. None where they are not
    to be had without reading much; `most_rows` of a trace are read whole.
    """

    trace: Callable[[str], DataFrame | None]
    table: Callable[[str, tuple[str, ...]], DataFrame]
    trace_size: Callable[[str], int]
    table_size: Callable[[str], int]
    look_up: Callable[[str, tuple[str, ...], Mapping[str, Numbers]], Rows | None] = _nothing
    look_up_trace: Callable[[str, Mapping[str, Numbers]], Rows | None] = _nothing
    most_rows: int = MOST_ROWS
