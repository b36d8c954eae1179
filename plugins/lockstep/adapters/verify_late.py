"""Rows below a source's watermark, left out by verification in a way of its own: step by step."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from lockstep.adapters.verify_changes import Reading
from lockstep.adapters.verify_decode import Row
from lockstep.adapters.verify_records import RawRecord
from lockstep.errors import WrongUse
from lockstep.sql.circuit import SourceTable
from lockstep.sql.sources.source_layout import layout_of
from lockstep.sql.sources.watermarks import watermark_of

__all__ = ["OnTime", "refuse_watermark"]


class OnTime:
    """The rows of a reading that are on time; known when all records were read, as partitions are
    read one after the other. `watermark` is then that after the last step, None without a value."""

    def __init__(self, source: SourceTable, reading: Reading) -> None:
        marked = watermark_of(source)
        assert marked is not None, "asked for only where there is a watermark"
        if layout_of(source).kind != "rows":
            refuse_watermark(source)
        self._reading = reading
        self._place = [column.key for column in source.columns].index(marked.column)
        self._delay = timedelta(microseconds=marked.delay)
        self._steps: dict[int, list[Row]] = {}
        self.watermark: datetime | None = None

    def rows(self, record: RawRecord, step: int) -> Iterable[Row]:
        self._steps.setdefault(step, []).extend(self._reading.rows(record, step))
        return ()

    def rest(self) -> Iterable[Row]:
        for _, rows in sorted(self._steps.items()):
            before = self.watermark
            for row in rows:
                time = row[self._place]
                if not isinstance(time, datetime):
                    yield row
                    continue
                moment = time.replace(tzinfo=UTC) if time.tzinfo is None else time
                if before is None or moment >= before:
                    yield row
                mark = moment - self._delay
                self.watermark = mark if self.watermark is None else max(self.watermark, mark)


def refuse_watermark(source: SourceTable) -> None:
    """Raise WrongUse for a source of which verification does not know the rows by step."""
    if watermark_of(source) is not None:
        raise WrongUse(
            f"source {source.name} has a watermark, and rows that are taken back",
            expected="a topic whose records are rows",
            found=f"a {source.provider} source of changes",
            next_step="compare its views by hand: verification does not know what of it was late",
        )
