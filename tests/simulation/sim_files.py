"""The twin of `control.ports.Files`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from sim_lake import FILE_BYTES, OVERWRITE, REPLACE, File, Lake, RefChange, Snapshot

from lockstep.control.compaction import DataFileInfo
from lockstep.errors import StateDiverged
from lockstep.ids import is_trace


class SimulatedFiles:
    """Implements `control.ports.Files` over the network."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def data_files(self, table: str, snapshot_id: int) -> tuple[DataFileInfo, ...]:
        def read() -> tuple[DataFileInfo, ...]:
            files = self._lake.table(table).snapshot(snapshot_id).files
            return tuple(sorted(DataFileInfo(f.path, FILE_BYTES, len(f.rows)) for f in files))

        return self._lake.world.exchange(f"data files {table}", read)

    def narrow(self, table: str, branch: str, snapshot_id: int, keep: Collection[str]) -> int:
        def files_of(base: Snapshot) -> tuple[File, ...]:
            return tuple(file for file in base.files if file.path in keep)

        return self._on_branch(f"narrow {branch}", table, branch, snapshot_id, files_of, {})

    def swap(
        self,
        table: str,
        branch: str,
        snapshot_id: int,
        removed: Collection[str],
        merged_snapshot_id: int,
        summary: Mapping[str, str],
    ) -> int:
        found = self._lake.table(table)

        def files_of(base: Snapshot) -> tuple[File, ...]:
            if set(removed) - {file.path for file in base.files}:
                raise StateDiverged(f"table {table}: the files to merge are not there")
            merged = found.snapshot(merged_snapshot_id)
            parent = merged.parent
            before = set() if parent is None else {f.path for f in found.snapshot(parent).files}
            added = tuple(file for file in merged.files if file.path not in before)
            return tuple(file for file in base.files if file.path not in removed) + added

        kind = OVERWRITE if is_trace(table) else REPLACE
        what = f"swap {branch}"
        return self._on_branch(what, table, branch, snapshot_id, files_of, summary, kind)

    def _on_branch(
        self,
        what: str,
        table: str,
        branch: str,
        snapshot_id: int,
        files_of: Callable[[Snapshot], tuple[File, ...]],
        summary: Mapping[str, str],
        kind: str = OVERWRITE,
    ) -> int:
        def act() -> int:
            found = self._lake.table(table)
            base = found.snapshot(snapshot_id)
            files = files_of(base)
            snapshot = self._lake.add(found, base, kind, summary, files)
            self._lake.change(found, RefChange({branch: snapshot.id}))
            return snapshot.id

        return self._lake.world.exchange(f"{what} {table}", act)
