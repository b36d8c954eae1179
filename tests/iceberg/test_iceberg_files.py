"""Merged files in the place of others: the rows stay, and what the snapshot says fits the table."""

from __future__ import annotations

from pathlib import Path

import pytest
from lake_builders import Lake, local_catalog

from lockstep.adapters.iceberg_files import IcebergFiles
from lockstep.errors import StateDiverged

SWAP = {"lockstep.merge": "swap_a_1", "lockstep.step": "3"}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(local_catalog(tmp_path))


def swapped(lake: Lake, table: str) -> tuple[int, int]:
    """Four appends, of which the first three are merged; the snapshots before and after."""
    lake.make(table)
    for step in range(4):
        write = {"step": str(step)}
        before = lake.append(table, [step, step + 10], "main", write=f"a{step}:{table}", **write)
    files = IcebergFiles(lake.settings)
    held = files.data_files(table, before)
    paths = [file.path for file in held]
    narrowed = files.narrow(table, "merge_1", before, paths[:3])
    ids = sorted(id_ for (id_,) in lake.rows(table, narrowed).elements())
    merged = lake.append(table, ids, "merge_1")
    # The narrowed files stand on that branch, too; what the swap takes is what was added.
    return before, files.swap(table, "swap_a_1", before, paths[:3], merged, SWAP)


@pytest.mark.parametrize(
    ("table", "operation"), [("v_changes", "replace"), ("_trace_1", "overwrite")]
)
def test_files_are_swapped_and_the_rows_stay(lake: Lake, table: str, operation: str) -> None:
    before, after = swapped(lake, table)
    assert lake.rows(table, after) == lake.rows(table, before)
    assert len(IcebergFiles(lake.settings).data_files(table, after)) == 2
    summary = lake.state.summary(table, after)
    assert {**summary, **SWAP, "operation": operation} == summary
    assert (summary["total-records"], summary["total-data-files"]) == ("8", "2")
    assert lake.table(table).snapshot_by_id(after).parent_snapshot_id == before  # type: ignore[union-attr]


def test_rows_of_later_steps_are_counted_through_a_swap(lake: Lake) -> None:
    before, after = swapped(lake, "v_changes")
    counted = [lake.state.records_after("v_changes", after, step) for step in (-1, 1, 2, 3)]
    assert counted == [lake.state.records_after("v_changes", before, s) for s in (-1, 1, 2, 3)]
    assert counted == [8, 4, 2, 0]


def test_files_that_are_gone_are_not_swapped(lake: Lake) -> None:
    _, after = swapped(lake, "v_changes")
    with pytest.raises(StateDiverged, match="the files to merge are not in snapshot"):
        IcebergFiles(lake.settings).swap("v_changes", "swap_a_2", after, ["gone"], after, SWAP)
