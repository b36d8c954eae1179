"""Commits through PyIceberg whose cost does not grow with each look at the table's metadata."""

from __future__ import annotations

import warnings

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CreateTableTransaction, StagedTable, Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate
from pyiceberg.table.update.snapshot import ManageSnapshots

from lockstep.lake.remembering import unchanging

__all__ = ["CreatingTransaction", "LeanTransaction", "OpeningTransaction", "ref_changes"]

# PyIceberg (0.12) says with each file that it does not know the property. What is written from here is
# few rows, less than any row group.
warnings.filterwarnings("ignore", r"Parquet writer option\(s\) .*row-group-size-bytes")


class _Lean(Transaction):
    """A transaction that works out its metadata once for each update.

    PyIceberg (0.12) copies all of it, with every snapshot, each time that anybody looks at it: some
    twenty times an append, half of what a small interval computes in Python once there are a hundred
    snapshots.
    """

    _known: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata as the updates make it, to be read only."""
        base, updates = self._table.metadata, self._updates
        if not updates:
            return base
        if self._known is None or self._known[0] is not base or self._known[1] is not updates:
            self._known = (base, updates, super().table_metadata)
        return self._known[2]


class LeanTransaction(_Lean):
    """Of a table that is there."""

    def __init__(self, table: Table, autocommit: bool = False) -> None:
        super().__init__(table, autocommit)
        table.metadata = unchanging(table.metadata)


class CreatingTransaction(_Lean, CreateTableTransaction):
    """Of a table that is not there yet."""

    def __init__(self, begun: CreateTableTransaction) -> None:
        staged = begun._table
        assert isinstance(staged, StagedTable), "the catalog has begun it"
        super().__init__(staged)
        staged.metadata = unchanging(staged.metadata)


class OpeningTransaction(LeanTransaction):
    """A transaction that makes a branch and writes to it.

    Where somebody else was first, PyIceberg (0.12) makes the snapshot anew, but not what else there is
    of refs: without its branch the snapshot would stand on nothing. So whoever asked begins anew.
    """

    def _rebuild_snapshot_updates(self) -> None:
        raise CommitFailedException("somebody else has changed the table")


def ref_changes(table: Table) -> ManageSnapshots:
    """`table.manage_snapshots()`, without the copies."""
    return ManageSnapshots(transaction=LeanTransaction(table, autocommit=True))
