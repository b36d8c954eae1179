"""Tables whose rows are written from here, in Arrow or as whole files: the engine's `Tables`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table, Transaction
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.types import IcebergType, StructType

from lockstep.adapters.iceberg import IcebergState, is_open, opened_at
from lockstep.adapters.iceberg_changed import changed
from lockstep.adapters.iceberg_commits import LeanTransaction
from lockstep.adapters.iceberg_copies import append_files, copied, inserted_files, is_written_alike
from lockstep.adapters.iceberg_deletes import are_deleted_by_position, change_on, row_files
from lockstep.adapters.iceberg_files import (
    append_in,
    append_to,
    as_table,
    open_in,
    replace_on,
)
from lockstep.adapters.iceberg_history import snapshot_of
from lockstep.adapters.iceberg_making import make_table
from lockstep.adapters.iceberg_merging import merged_files
from lockstep.adapters.iceberg_netting import netted, rows_if_equal
from lockstep.control.job import CatalogSettings
from lockstep.control.ports import OutboxSteps, Rewritten

__all__ = ["IcebergTables"]

_COMMENT = "comment"
"""The property that Spark shows, and sets, as a table's comment."""


class IcebergTables(IcebergState):
    """The tables of one catalog and database, and rows for them. For several threads at once."""

    def __init__(self, catalog: CatalogSettings) -> None:
        super().__init__(catalog)
        self._lists: dict[str, bool] = {}

    def make(
        self,
        table: str,
        columns: pa.Schema,
        properties: Mapping[str, str],
        summary: Mapping[str, str],
    ) -> None:
        """Make the table, its root snapshot and its database, if they are not there. Raises
        StateDiverged where it is there with other columns."""
        with self._catalog.plain_errors(table):
            name = (self._settings.database, table)
            make_table(self._catalog, name, columns, properties, summary)

    def make_opened(
        self,
        table: str,
        columns: pa.Schema,
        properties: Mapping[str, str],
        branch: str,
        rows: pa.Table | Sequence[Mapping[str, object]] | None,
        summary: Mapping[str, str],
    ) -> None:
        """As `make`, with a root that says nothing, and `append_opening` at the root; without rows as
        `open_branch`. One commit where the table was not there."""

        def also(transaction: Transaction) -> None:
            open_in(transaction, branch, *opened_at(table, transaction.table_metadata, None))
            if rows is not None:
                found = as_table(transaction.table_metadata.schema(), rows)
                append_in(transaction, branch, found, summary)

        name = (self._settings.database, table)
        with self._catalog.plain_errors(table):
            is_made = make_table(self._catalog, name, columns, properties, EMPTY_DICT, also)
        if is_made:
            return
        if rows is None:
            self.open_branch(table, branch, None)
        else:
            self.append_opening(table, branch, None, rows, summary)

    def append_opening(
        self,
        table: str,
        branch: str,
        snapshot_id: int | None,
        rows: pa.Table | Sequence[Mapping[str, object]],
        summary: Mapping[str, str],
    ) -> None:
        """As `append_rows`, on a branch that is made with it, as `open_branch` does, in one commit.
        Raises StateDiverged where the branch is there, and somewhere else."""

        def write(loaded: Table) -> None:
            found = as_table(loaded.schema(), rows)
            opened, tags = opened_at(table, loaded.metadata, snapshot_id)
            if is_open(table, loaded.metadata, branch, opened):
                append_to(loaded, branch, found, summary)
            else:
                append_to(loaded, branch, found, summary, opened, tags)

        self._write(table, branch, write)

    def has_lists(self, table: str) -> bool:
        """Whether a column of the table holds lists or maps. Columns stay, so it is looked up once."""
        if table not in self._lists:
            self._lists[table] = _has_lists(self._load(table).schema().as_struct())
        return self._lists[table]

    def columns(self, table: str, snapshot_id: int) -> pa.Schema:
        """The columns that a table had at a snapshot."""
        loaded = self._load(table)
        schema_id = snapshot_of(table, loaded.metadata, snapshot_id).schema_id
        schema = loaded.schema() if schema_id is None else loaded.schemas()[schema_id]
        return schema_to_pyarrow(schema, include_field_ids=False)

    def describe(self, table: str, comment: str | None, columns: Mapping[str, str]) -> None:
        """Have the table and these of its columns say so, whatever they said before; a column that is
        not there is passed over. None: what the table says of itself stays. One commit, and none where
        they say so."""

        def commit(loaded: Table) -> None:
            said = {field.name: field.doc for field in loaded.schema().fields}
            changed = {n: text for n, text in columns.items() if n in said and said[n] != text}
            is_said = comment is None or loaded.properties.get(_COMMENT) == comment
            if is_said and not changed:
                return
            with LeanTransaction(loaded) as transaction:
                if comment is not None:
                    transaction.set_properties({_COMMENT: comment})
                if changed:
                    with transaction.update_schema() as update:
                        for name, text in changed.items():
                            update.update_column(name, doc=text)

        self._commit_missing(table, commit)

    def append_inserted(
        self, view: str, branch: str, steps: OutboxSteps, summary: Mapping[str, str]
    ) -> int | None:
        """One snapshot on the branch with copies of the outbox's files of these steps; how many rows are
        in them. None, and nothing is done, where there are other changes than single inserts, or too
        many, or the view cannot take files of the outbox."""
        with self._catalog.plain_errors(view):
            loaded, outbox = self._load(view), self._load(steps.table)
            found = inserted_files(loaded, outbox, steps)
            if found is None:
                return None
            files = copied(loaded, outbox, found)
        self._write(
            view, branch, lambda newest: append_files(newest, branch, outbox, files, summary)
        )
        return sum(file.record_count for file in files)

    def replace_netted(
        self, view: str, branch: str, base: int, steps: OutboxSteps, summary: Mapping[str, str]
    ) -> Rewritten | None:
        """One snapshot on the branch in place of all rows that are there: those of the view at `base`,
        with the changes of these steps. The view's rows are few, and files alone, as PyIceberg would go
        on counting deletes; of changes there may be more. None, and nothing is done, where rows cannot
        be compared here, or are to be written otherwise."""
        with self._catalog.plain_errors(view):
            loaded, outbox = self._load(view), self._load(steps.table)
            is_ours = is_written_alike(loaded.metadata, outbox.metadata)
            found = netted(loaded, base, outbox, steps) if is_ours else None
        if found is None:
            return None
        if found.lacking is None:
            rows = found.rows
            self._write(view, branch, lambda newest: replace_on(newest, branch, rows, summary))
        return Rewritten(found.changed, found.lacking)

    def change_netted(
        self, view: str, branch: str, base: int, steps: OutboxSteps, summary: Mapping[str, str]
    ) -> Rewritten | None:
        """One snapshot on the branch, which stands at `base`: of the view's rows there those are deleted
        by position that these steps take back, and others added. None, and nothing is done, where rows
        cannot be compared here, would have to be looked for in much, or are to be written otherwise."""
        with self._catalog.plain_errors(view):
            loaded, outbox = self._load(view), self._load(steps.table)
            is_ours = is_written_alike(loaded.metadata, outbox.metadata)
            if not is_ours or not are_deleted_by_position(loaded.metadata):
                return None
            found = changed(loaded, base, outbox, steps)
            if found is None or found.lacking is not None:
                return found and Rewritten(found.changed, found.lacking)
            files = row_files(loaded, found.added, found.deleted)
        if files is None:
            return None
        self._write(view, branch, lambda newest: change_on(newest, branch, base, files, summary))
        return Rewritten(found.changed, None)

    def merge_small_files(self, view: str, outbox: str, branch: str, base: int) -> int:
        """One snapshot on the branch, which stands at `base`, of the same rows in fewer files, or none;
        at which snapshot it stands then. None is made where files are few, or are to be other ones."""
        with self._catalog.plain_errors(view):
            loaded = self._load(view)
            is_ours = is_written_alike(loaded.metadata, self._load(outbox).metadata)
            if not is_ours or not are_deleted_by_position(loaded.metadata):
                return base
            files = merged_files(view, loaded, base)
        if files is None:
            return base
        self._write(
            view, branch, lambda newest: change_on(newest, branch, base, files, {}, same_rows=True)
        )
        return self.head(view, branch)

    def rows_if_equal(self, logged: OutboxSteps, replayed: OutboxSteps) -> int | None:
        """How many rows an outbox has of these steps, where they are the same Z-set at each step at both
        snapshots. None where they are not, or where rows are many or cannot be compared here."""
        with self._catalog.plain_errors(logged.table):
            return rows_if_equal(self._load(logged.table), logged, replayed)


def _has_lists(kind: IcebergType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_lists(field.field_type) for field in kind.fields)
    return not kind.is_primitive
