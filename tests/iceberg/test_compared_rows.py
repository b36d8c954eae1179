"""Two snapshots of an outbox compared without Spark: its rows where they are equal, else nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lake_builders import Lake, local_catalog
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask
from pyiceberg.typedef import EMPTY_DICT

from lockstep.adapters import iceberg_netting
from lockstep.control.ports import OutboxSteps
from lockstep.lake import file_batches

Row = tuple[Any, ...]
NAMED = pa.schema([("name", pa.string()), ("amount", pa.float64())])
LOGGED = [
    ("a", 0.0, 2, 3),
    ("b", math.nan, 1, 3),
    ("a", 0.0, -1, 4),
    (None, None, 1, 4),
    ("z", 1.5, 1, 9),
]
FIRST, LAST = 3, 8


class Log:
    """An outbox whose states are appended to its root, each as files of one append or of several."""

    def __init__(
        self, folder: Path, columns: pa.Schema = NAMED, properties: Mapping[str, str] = EMPTY_DICT
    ) -> None:
        self.state = Lake(local_catalog(folder)).state
        self.columns = columns
        for name in ("_weight", "_step"):
            self.columns = self.columns.append(pa.field(name, pa.int64()))
        self.state.make("v_changes", self.columns, properties, {"lockstep.step": "-1"})
        self.states = 0

    def add(self, *appends: list[Row]) -> int:
        """The snapshot of a state, which stands on the root alone."""
        self.states += 1
        branch = f"attempt_{self.states}"
        self.state.open_branch("v_changes", branch, None)
        for rows in appends:
            last = str(max((row[-1] for row in rows), default=FIRST))
            self.state.append_rows("v_changes", branch, self.table(rows), {"lockstep.step": last})
        return self.state.head("v_changes", branch)

    def table(self, rows: list[Row]) -> pa.Table:
        named = (dict(zip(self.columns.names, row, strict=True)) for row in rows)
        return pa.Table.from_pylist(list(named), schema=self.columns)

    def compared(self, logged: int, replayed: int) -> int | None:
        of = [OutboxSteps("v_changes", at, after=FIRST - 1, last=LAST) for at in (logged, replayed)]
        return self.state.rows_if_equal(*of)


def test_equal_rows_are_counted_whatever_their_order_files_and_weights(tmp_path: Path) -> None:
    log = Log(tmp_path)
    logged = log.add(LOGGED)
    split = [("a", -0.0, 1, 3), ("a", 0.0, 1, 3), *LOGGED[2:4]]
    others = [[("y", 7.0, 1, 9), ("b", -math.nan, 1, 3)], split[::-1]]
    replayed = log.add(*others)
    assert log.compared(logged, replayed) == 4
    assert log.compared(replayed, logged) == 5


@pytest.mark.parametrize(
    "replayed",
    [
        [*LOGGED[:3], ("", None, 1, 4)],
        [*LOGGED[:3], (None, 0.0, 1, 4)],
        [("a", 0.0, 3, 3), *LOGGED[1:]],
        [("a", 0.0, 2, 4), *LOGGED[1:]],
        [("a", math.nan, 2, 3), ("b", 0.0, 1, 3), *LOGGED[2:]],
        LOGGED[1:],
        [*LOGGED, ("c", 1.0, 1, 8)],
        [],
    ],
    ids=["text", "null", "weight", "step", "swapped", "missing", "unexpected", "nothing"],
)
def test_whatever_differs_is_not_equal(tmp_path: Path, replayed: list[Row]) -> None:
    log = Log(tmp_path)
    one, other = log.add(LOGGED), log.add(replayed)
    assert log.compared(one, other) is None
    assert log.compared(other, one) is None


def test_steps_without_rows_are_equal(tmp_path: Path) -> None:
    log = Log(tmp_path)
    assert log.compared(log.add([("a", 1.0, 1, 2)]), log.add([("b", 1.0, 1, 9)])) == 0


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),
        st.sampled_from([0.0, -0.0, 1.5, None]),
        st.sampled_from([-1, 1, 2]),
        st.integers(FIRST - 1, LAST + 1),
    ),
    max_size=8,
)


@pytest.fixture(scope="module")
def log_of_many(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return Log(tmp_path_factory.mktemp("log"))


@given(logged=ROWS, replayed=ROWS, is_shuffled=st.booleans())
def test_it_says_what_the_sums_of_weights_say(
    log_of_many: Log, logged: list[Row], replayed: list[Row], is_shuffled: bool
) -> None:
    log = log_of_many
    replayed = logged[::-1] if is_shuffled else replayed
    found = log.compared(log.add(logged), log.add(replayed[:3], replayed[3:]))
    sums: Counter[Row] = Counter()
    for sign, rows in ((1, logged), (-1, replayed)):
        for name, amount, weight, step in rows:
            # Python's keys, too: -0.0 and 0.0 are one.
            sums[name, amount, step] += sign * weight if FIRST <= step <= LAST else 0
    rows_logged = sum(FIRST <= row[-1] <= LAST for row in logged)
    assert found == (None if any(sums.values()) else rows_logged)


def test_only_files_that_may_have_rows_of_other_steps_are_scanned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned = list[int]()

    class Noting(ArrowScan):
        def to_table(self, tasks: Iterable[FileScanTask]) -> pa.Table:
            files = list(tasks)
            scanned.append(len(files))
            return super().to_table(files)

    def compared(log: Log) -> int | None:
        scanned.clear()
        return log.compared(log.add(LOGGED), log.add(LOGGED[:1], LOGGED[1:2], LOGGED[2:]))

    monkeypatch.setattr(iceberg_netting, "ArrowScan", Noting)
    monkeypatch.setattr(file_batches, "ArrowScan", None)
    assert compared(Log(tmp_path / "bounds")) == 4
    assert scanned == [1, 1], "that of all steps, and the last, which has step 9"
    without = {"write.metadata.metrics.default": "none"}
    assert compared(Log(tmp_path / "none", properties=without)) == 4
    assert sorted(scanned) == [1, 3], "what a file does not tell it may have"


def test_what_is_many_or_holds_others_is_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, nested = Log(tmp_path / "flat"), Log(tmp_path / "nested", NESTED)
    one, other = log.add(LOGGED), log.add(LOGGED)
    assert log.compared(one, other) == 4
    in_list = [([1], 1, 3)]
    assert nested.compared(nested.add(in_list), nested.add(in_list)) is None
    monkeypatch.setattr(iceberg_netting, "_MOST_COMPARED", 9)
    assert log.compared(one, other) is None
    monkeypatch.undo()
    monkeypatch.setattr(iceberg_netting, "_MOST_BYTES", 9)
    assert log.compared(one, other) is None


NESTED = pa.schema([("parts", pa.list_(pa.int64()))])

DAY = date(2026, 11, 29)
NOON = datetime(2026, 11, 29, 12)
OF_KINDS = {
    pa.bool_(): (False, True),
    pa.int32(): (-1, (1 << 31) - 1),
    pa.int64(): (0, -(1 << 63)),
    pa.float32(): (0.0, 1.5),
    pa.float64(): (math.nan, -math.inf),
    pa.decimal128(38, 4): (Decimal("0"), Decimal("-1.2345")),
    pa.string(): ("", "ä"),
    pa.binary(): (b"", b"\xff"),
    pa.binary(3): (b"abc", b"abd"),
    pa.date32(): (DAY, DAY + timedelta(1)),
    pa.time64("us"): (time(0), time(23, 59)),
    pa.timestamp("us"): (NOON, NOON + timedelta(microseconds=1)),
    pa.timestamp("us", "UTC"): (NOON.replace(tzinfo=UTC), NOON.replace(tzinfo=UTC) + timedelta(1)),
}
"""Of each type that a column of a view can have two values."""

KINDS = pa.schema([(f"c{place}", kind) for place, kind in enumerate(OF_KINDS)])


def test_two_rows_of_one_digest_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all factors are one, a digest is a sum: of other rows, too."""

    class Ones:
        def integers(self, _least: int, _most: int, count: int, _kind: type) -> Any:
            return np.zeros(count, np.uint64)

    monkeypatch.setattr(np.random, "default_rng", lambda _: Ones())
    log = Log(tmp_path, pa.schema([("x", pa.int64()), ("y", pa.int64())]))
    logged = log.add([(1, 2, 1, 3), (2, 1, 1, 3)])
    assert log.compared(logged, log.add([(2, 1, 1, 3), (1, 2, 1, 3)])) == 2
    assert log.compared(logged, log.add([(2, 1, 1, 3), (2, 1, 1, 3)])) is None


def test_rows_of_any_kind_are_told_apart_by_a_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any order, without groups; one value that is another one is a difference, and so is null."""
    log = Log(tmp_path, KINDS)
    one, other = zip(*OF_KINDS.values(), strict=True)
    nothing = (None,) * len(KINDS)
    rows = [
        (*of, weight, step) for of in (one, other, nothing) for weight, step in [(1, 3), (-2, 4)]
    ]
    logged = log.add(rows)
    with monkeypatch.context() as without:
        without.setattr(iceberg_netting, "_summed", None)
        assert log.compared(logged, log.add(rows[::-1])) == len(rows)
        assert log.compared(logged, log.add(rows[3:], rows[:3])) == len(rows)
        # Of a file that has another step, too, which is scanned.
        later = (*one, 1, LAST + 1)
        assert log.compared(logged, log.add([*rows[:2], later], rows[2:])) == len(rows)
        assert log.compared(log.add([later, *rows]), log.add([later], rows)) == len(rows)
    for place in range(len(KINDS)):
        for wrong in (other[place], None):
            changed = (*one[:place], wrong, *one[place + 1 :], 1, 3)
            assert log.compared(logged, log.add([changed, *rows[1:]])) is None, KINDS[place]
