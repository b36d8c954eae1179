"""Which files a snapshot has: what its manifests list, each of which a process reads once.

Law: a manifest never changes, and the next one has another name; so what has been read of it is what
it says. A commit adds some and keeps the others: of a table that is followed, or looked up in, from
interval to interval only the new ones are read. Eighty of them took 70 ms, and were read twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock

from cachetools import LRUCache, cached
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table import FileScanTask, ManifestGroupPlanner, Table

__all__ = ["MOST_ENTRIES", "live_entries", "manifests_of", "planned_files"]

MOST_ENTRIES = 4000
"""So many manifests and entries of theirs a process keeps, some kilobytes each, those that were read
last."""


def manifests_of(table: Table, snapshot_id: int | None) -> Sequence[ManifestFile]:
    """The manifests of a snapshot; none where there is no such snapshot."""
    snapshot = None if snapshot_id is None else table.metadata.snapshot_by_id(snapshot_id)
    return [] if snapshot is None else snapshot.manifests(table.io)


def planned_files(
    table: Table,
    manifests: Iterable[ManifestFile],
    near: BooleanExpression = AlwaysTrue(),  # noqa: B008 (it has no state)
) -> list[FileScanTask]:
    """The live data files of the manifests that can hold rows of which `near` is true, each with its
    deletes. The tasks share what is kept: who reads them does not change them."""
    planner = ManifestGroupPlanner(table.metadata, table.io, near)
    kept = (_KeptManifest(*(one[place] for place in range(len(one)))) for one in manifests)
    return list(planner.plan_files(kept))


class _KeptManifest(ManifestFile):
    """A manifest whose live entries are kept."""

    def fetch_manifest_entry(self, io: FileIO, discard_deleted: bool = True) -> list[ManifestEntry]:
        """Those that are kept, or of the file."""
        if discard_deleted:
            return live_entries(self, io)
        return super().fetch_manifest_entry(io, discard_deleted)


_KEPT = LRUCache[str, list[ManifestEntry]](MOST_ENTRIES, lambda entries: 1 + len(entries))
"""Of the whole process: tables are opened by each who needs one."""


@cached(_KEPT, key=lambda manifest, _: manifest.manifest_path, lock=Lock())
def live_entries(manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
    """What a manifest lists but what it says has gone. Kept: who reads them does not change them."""
    return ManifestFile.fetch_manifest_entry(manifest, io, discard_deleted=True)
