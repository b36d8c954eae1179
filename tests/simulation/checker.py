"""Says of what a user sees whether it is right: lost, duplicated, unexpected, out of order.

It shares no code with what it judges, nor with the twins: it is given the steps as they were recorded,
the records that producers committed, and what can be read of outbox, view and topic, as plain values.
From the first two it works out by itself what the others must hold.

A row is (key, count, total, chain); a change is (row, weight); `chain` is the CRC-32 of the text
"<chain before> <offset> <value>" of the key's newest record, 0 before its first.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

Row = tuple[str, int, int, int]
Range = tuple[str, int, int, int]
"""Source, partition, first offset, offset after the last."""

Records = Callable[[str, int], Sequence[tuple[int, str, int]]]
"""Source, partition → offset, key and value of what producers committed, in order."""


@dataclass(frozen=True)
class Finding:
    """`kind` is one word or two; `where` names what was looked at."""

    kind: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}: {self.what}"


class Checker:
    """What each step must bring, worked out from the divisions, which come in order of steps."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._steps: list[tuple[Range, ...]] = []
        self._states: list[dict[str, Row]] = []
        self._changes: list[Counter[tuple[Row, int]]] = []

    @property
    def last_step(self) -> int:
        return len(self._steps) - 1

    def recorded(self, step: int, ranges: Iterable[Range]) -> list[Finding]:
        """A step's division, as somebody reads it; once it is recorded it must not change."""
        found = tuple(ranges)
        if step < len(self._steps):
            if self._steps[step] == found:
                return []
            return [Finding("changed", f"step {step}", f"{self._steps[step]} to {found}")]
        if step > len(self._steps):
            return [Finding("lost", "steps", f"step {len(self._steps)} comes after {step}")]
        self._steps.append(found)
        return []

    def ranges(self, step: int) -> tuple[Range, ...]:
        """A step's division as it was recorded first."""
        return self._steps[step]

    # ── what must be there ──────────────────────────────────────────────────────────────────────

    def _state(self, step: int) -> dict[str, Row]:
        """The view's rows by key after a step."""
        while len(self._states) <= step:
            state = dict(self._states[-1]) if self._states else {}
            before = dict(state)
            for source, partition, start, end in self._steps[len(self._states)]:
                for offset, key, value in self._records(source, partition):
                    if start <= offset < end:
                        _, count, total, chain = state.get(key, (key, 0, 0, 0))
                        link = zlib.crc32(f"{chain} {offset} {value}".encode())
                        state[key] = (key, count + 1, total + value, link)
            changes: Counter[tuple[Row, int]] = Counter()
            for key in state:
                if state[key] != before.get(key):
                    changes[state[key], 1] += 1
                    if key in before:
                        changes[before[key], -1] += 1
            self._states.append(state)
            self._changes.append(changes)
        return self._states[step] if step >= 0 else {}

    # ── what is there ───────────────────────────────────────────────────────────────────────────

    def input_read(self, ends: Mapping[tuple[str, int], int]) -> list[Finding]:
        """Every offset of every partition, up to its end, is read by one step."""
        reached = dict.fromkeys(ends, 0)
        found = []
        for step, ranges in enumerate(self._steps):
            for source, partition, start, end in ranges:
                at = reached[source, partition]
                where = f"step {step}, {source} {partition}"
                if start > at:
                    found.append(Finding("lost", where, f"offsets {at} to {start}"))
                if start < at:
                    found.append(Finding("duplicated", where, f"offsets {start} to {at}"))
                reached[source, partition] = end
        for place, end in ends.items():
            if reached[place] < end:
                found.append(Finding("lost", f"{place}", f"offsets {reached[place]} to {end}"))
        return found

    def grown(self, source: str, new: int, ends: Mapping[int, int]) -> list[Finding]:
        """Of a partition that came when the others were at `ends`: all up to there is in earlier steps
        than what came into it. Of what came before the source was first read nothing is known."""
        first = next((ranges for ranges in self._steps if source in {one[0] for one in ranges}), ())
        if new in {partition for of, partition, *_ in first if of == source}:
            return []
        found, has_begun = [], False
        for step, ranges in enumerate(self._steps):
            read = {p: (start, end) for of, p, start, end in ranges if of == source and end > start}
            has_begun = has_begun or new in read
            for partition, (start, end) in read.items():
                if has_begun and start < ends.get(partition, 0):
                    where = f"step {step}, {source} {partition}"
                    found.append(Finding("out of order", where, f"offsets {start} to {end}"))
        return found

    def view(self, where: str, step: int, rows: Iterable[Row]) -> list[Finding]:
        """The view's rows, of which it says that they are those after a step."""
        if not -1 <= step <= self.last_step:
            return [Finding("unexpected", where, f"step {step} of {self.last_step}")]
        return _differences(where, Counter(self._state(step).values()), Counter(rows))

    def trace(self, where: str, step: int, rows: Iterable[tuple[Row, int]]) -> list[Finding]:
        """Rows with weights whose sum is the view after a step."""
        held: Counter[Row] = Counter()
        for row, weight in rows:
            held[row] += weight
        return _differences(where, Counter(self._state(step).values()), held)

    def changes(
        self, where: str, first: int, last: int, rows: Iterable[tuple[int, Row, int]]
    ) -> list[Finding]:
        """Step, row, weight of every change of the steps first..last, in any order."""
        self._state(last)
        expected = Counter(
            {
                (step, *change): count
                for step in range(first, last + 1)
                for change, count in self._changes[step].items()
            }
        )
        return _differences(where, expected, Counter(rows))

    def order(self, where: str, rows: Iterable[tuple[int, Row, int]]) -> list[Finding]:
        """Of each key, steps come in order, and what takes a row away before what brings one."""
        newest: dict[str, tuple[int, int]] = {}
        found = []
        for step, row, weight in rows:
            before = newest.get(row[0], (-1, 0))
            if (step, weight) < before:
                found.append(Finding("out of order", where, f"{row} of step {step} after {before}"))
            newest[row[0]] = max(before, (step, weight))
        return found


def _differences(where: str, expected: Counter, found: Counter) -> list[Finding]:  # type: ignore[type-arg]
    findings = []
    for one in sorted(expected.keys() | found.keys(), key=repr):
        wanted, there = expected[one], found[one]
        if there < wanted:
            findings.append(Finding("lost", where, f"{one}, {wanted - there} times"))
        elif there > wanted:
            kind = "duplicated" if wanted else "unexpected"
            findings.append(Finding(kind, where, f"{one}, {there - wanted} times"))
    return findings
