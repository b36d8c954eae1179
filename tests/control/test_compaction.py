"""Which files are merged: a full level takes along all that is smaller, and large ones may stay."""

from __future__ import annotations

from random import Random

import pytest

from lockstep.control.compaction import FANOUT, LARGE_FILE_BYTES, DataFileInfo, files_to_merge

SMALL = 10_000


def files(*sizes: int) -> list[DataFileInfo]:
    return [DataFileInfo(f"f{number:04}", size, size // 10) for number, size in enumerate(sizes)]


def test_a_level_is_merged_once_it_is_full() -> None:
    assert files_to_merge(files(*[SMALL] * (FANOUT - 1))) == ()
    full = files(*[SMALL] * FANOUT, 3 << 20)
    assert files_to_merge(full) == tuple(full[:FANOUT])


def test_a_full_level_takes_along_all_below_it() -> None:
    found = files(*[2 << 20] * FANOUT, SMALL, 9 << 20)
    assert files_to_merge(found) == tuple(found[: FANOUT + 1])


@pytest.mark.parametrize(("keeps_all_rows", "merged"), [(False, FANOUT + 1), (True, 0)])
def test_large_files_stay_where_no_row_of_them_goes(keeps_all_rows: bool, merged: int) -> None:
    found = files(*[LARGE_FILE_BYTES] * FANOUT, SMALL)
    assert len(files_to_merge(found, keeps_all_rows=keeps_all_rows)) == merged


@pytest.mark.parametrize("keeps_all_rows", [False, True])
def test_files_stay_few_and_rows_are_seldom_rewritten(keeps_all_rows: bool) -> None:
    """A thousand appends, looked at after each fourth: every byte is written a few times."""
    random, held, written, appended = Random(7), [], 0, 0
    for number in range(1_000):
        held.append(DataFileInfo(f"a{number:04}", random.randint(5_000, 400_000), 1))
        appended += held[-1].bytes
        if number % 4:
            continue
        out = files_to_merge(held, keeps_all_rows=keeps_all_rows)
        if out:
            size = sum(file.bytes for file in out)
            written += size
            held = [file for file in held if file not in out]
            held.append(DataFileInfo(f"m{number:04}", size, 1))
    assert len(held) <= 4 * FANOUT
    assert written <= 5 * appended
