"""A pipeline's state as rows: read as one value, written as the difference of two.

The pending interval is not a row of its own: it is the recorded steps beyond the newest version.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row, Table, delete, insert, select, update

from lockstep.adapters import sql_tables as tables
from lockstep.adapters.sql_values import (
    Values,
    attempt_of,
    attempt_values,
    files_of,
    files_text,
    layout_rows,
    milliseconds,
    positions_of,
    positions_text,
    record_of,
    replaced_of,
    replaced_text,
    sink_of,
    sink_rows,
    time_of,
)
from lockstep.control.layout.autoscaling import Load
from lockstep.control.layout.records import FIRST
from lockstep.control.model import (
    Division,
    Lease,
    OffsetRange,
    PipelineState,
    RunState,
    SourceSlice,
    TableSlice,
    TopicSlice,
    Version,
)
from lockstep.control.rollbacks import pending_interval

__all__ = ["read_divisions", "read_names", "read_state", "write_again", "write_state"]

_KEPT = (tables.versions, tables.version_tables)
_DROPPED = (tables.dropped_versions, tables.dropped_version_tables)

# Reading


def read_names(connection: Connection) -> tuple[str, ...]:
    """Names of all pipelines, sorted by code point as Python sorts, whatever the collation is."""
    return tuple(sorted(connection.execute(select(tables.pipelines.c.name)).scalars()))


def read_state(
    connection: Connection, name: str, known: PipelineState | None = None, *, lock: bool = False
) -> PipelineState | None:
    """The state, or None where nothing is deployed under that name.

    The connection's transaction must see one snapshot; with `lock`, nobody else can change the
    pipeline until it ends (SQLite's write transactions are alone anyway). `known` is a state that was
    read, or written: it is the answer where the pipeline's own row is still the same, which each change
    gives another revision.
    """
    query = select(tables.pipelines).where(tables.pipelines.c.name == name)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        return None
    if known is not None and _pipeline_values(None, known).items() <= dict(row._mapping).items():
        return known
    versions = _read_versions(connection, name, *_KEPT)
    dropped = _read_versions(connection, name, *_DROPPED)
    log = partial(read_divisions, connection, name)
    return PipelineState(
        name=row.name,
        incarnation=row.incarnation,
        revision=row.revision,
        files=files_of(row.files),
        desired=RunState(row.desired),
        lease=Lease(row.lease_holder, time_of(row.lease_expires_ms)) if row.lease_holder else None,
        next_step=row.next_step,
        last_time=None if row.last_time_ms is None else time_of(row.last_time_ms),
        positions=positions_of(row.positions),
        pending=pending_interval(versions[-1].last_step, dropped, row.next_step, log),
        versions=versions,
        attempts=tuple(
            map(attempt_of, _rows_of(connection, tables.attempts, name, "begun_revision"))
        ),
        sinks=tuple(map(sink_of, _rows_of(connection, tables.sinks, name, "ordinal"))),
        oldest_step=row.oldest_step,
        replaced=None if row.replaced is None else replaced_of(row.replaced),
        stop_at=row.stop_at,
        dropped=dropped,
        rebuilt_step=row.rebuilt_step,
        layouts=(FIRST, *map(record_of, _rows_of(connection, tables.layouts, name, "epoch"))),
        first_counts=json.loads(row.first_counts),
        loads=tuple(Load(*load) for load in json.loads(row.loads)),
    )


def read_divisions(
    connection: Connection, name: str, first_step: int, last_step: int
) -> tuple[Division, ...]:
    """Recorded divisions with first_step <= step <= last_step that are still kept, by step."""
    steps = tables.steps.c
    times = connection.execute(
        select(steps.step, steps.time_ms)
        .where(steps.pipeline == name, steps.step.between(first_step, last_step))
        .order_by(steps.step)
    ).all()
    if not times:
        return ()
    slices: list[tuple[int, SourceSlice]] = [
        *_read_topic_slices(connection, name, first_step, last_step),
        *_read_table_slices(connection, name, first_step, last_step),
    ]
    found: dict[int, list[SourceSlice]] = {}
    for step, slice_ in sorted(slices, key=lambda pair: pair[1].source):
        found.setdefault(step, []).append(slice_)
    return tuple(
        Division(step, time_of(time_ms), tuple(found.get(step, ()))) for step, time_ms in times
    )


def _read_topic_slices(
    connection: Connection, name: str, first_step: int, last_step: int
) -> Iterator[tuple[int, TopicSlice]]:
    divisions = tables.divisions.c
    found: dict[tuple[int, str], tuple[str, str, list[OffsetRange]]] = {}
    for step, source, topic, topic_id, partition, start, end in connection.execute(
        select(
            divisions.step,
            divisions.source,
            divisions.topic,
            divisions.topic_id,
            divisions.partition,
            divisions.start_offset,
            divisions.end_offset,
        ).where(divisions.pipeline == name, divisions.step.between(first_step, last_step))
    ):
        found.setdefault((step, source), (topic, topic_id, []))[2].append(
            OffsetRange(partition, start, end)
        )
    for (step, source), (topic, topic_id, ranges) in found.items():
        yield step, TopicSlice(source, topic, topic_id, tuple(sorted(ranges)))


def _read_table_slices(
    connection: Connection, name: str, first_step: int, last_step: int
) -> Iterator[tuple[int, TableSlice]]:
    slices = tables.table_slices.c
    for row in connection.execute(
        select(tables.table_slices).where(
            slices.pipeline == name, slices.step.between(first_step, last_step)
        )
    ):
        yield (
            row.step,
            TableSlice(
                row.source,
                row.table_name,
                row.table_id,
                row.start_snapshot,
                row.end_snapshot,
                row.records,
            ),
        )


def _read_versions(
    connection: Connection, name: str, versions: Table, version_tables: Table
) -> tuple[Version, ...]:
    snapshots: dict[int, dict[str, int]] = {}
    held = version_tables.c
    for number, table, snapshot_id in connection.execute(
        select(held.number, held.table_name, held.snapshot_id).where(held.pipeline == name)
    ):
        snapshots.setdefault(number, {})[table] = snapshot_id
    return tuple(
        Version(
            row.number, row.attempt, row.last_step, row.layout_epoch, snapshots.get(row.number, {})
        )
        for row in _rows_of(connection, versions, name, "number")
    )


def _rows_of(
    connection: Connection, table: Table, pipeline: str, order: str
) -> Sequence[Row[tuple[Any, ...]]]:
    query = select(table).where(table.c.pipeline == pipeline).order_by(table.c[order])
    return connection.execute(query).all()


# Writing


def write_state(connection: Connection, before: PipelineState | None, after: PipelineState) -> bool:
    """Write what changed from `before`; False where the store holds another revision by now.

    The compare and set comes first: it takes the pipeline's row, so that nothing else can change
    under the rest. A first deploy that lost against another raises SQLAlchemy's IntegrityError.
    """
    values = _pipeline_values(before, after)
    if before is None:
        connection.execute(insert(tables.pipelines).values(name=after.name, **values))
    else:
        columns = tables.pipelines.c
        row_count = connection.execute(
            update(tables.pipelines)
            .where(
                columns.name == before.name,
                columns.incarnation == before.incarnation,
                columns.revision == before.revision,
            )
            .values(**values)
        ).rowcount
        if row_count != 1:
            return False
    next_step = before.next_step if before is not None else 0
    if after.pending is not None and after.next_step > next_step:
        _write_divisions(connection, after.name, after.pending.divisions)
    if before is not None:
        _drop_divisions(connection, before, after)
    _write_versions(
        connection, after.name, before.versions if before else (), after.versions, *_KEPT
    )
    _write_versions(
        connection, after.name, before.dropped if before else (), after.dropped, *_DROPPED
    )
    _write_rows(
        connection,
        tables.attempts,
        after.name,
        {a.id: attempt_values(a) for a in before.attempts} if before else {},
        {a.id: attempt_values(a) for a in after.attempts},
        {"begun_revision": after.revision},
    )
    _write_rows(
        connection,
        tables.sinks,
        after.name,
        sink_rows(before.sinks) if before else {},
        sink_rows(after.sinks),
        {},
    )
    _write_rows(connection, tables.layouts, after.name, layout_rows(before), layout_rows(after), {})
    return True


def write_again(connection: Connection, name: str, divisions: Iterable[Division]) -> None:
    """Write these divisions, in place of what is there for their steps."""
    wanted = tuple(divisions)
    steps = [division.step for division in wanted]
    for table in (tables.steps, tables.divisions, tables.table_slices):
        connection.execute(delete(table).where(table.c.pipeline == name, table.c.step.in_(steps)))
    if wanted:
        _write_divisions(connection, name, wanted)


def _pipeline_values(before: PipelineState | None, after: PipelineState) -> Values:
    """The columns of the pipeline's own row that differ."""
    parts: tuple[tuple[Callable[[PipelineState], Any], Callable[[], Values]], ...] = (
        (lambda s: s.incarnation, lambda: {"incarnation": after.incarnation}),
        (lambda s: s.revision, lambda: {"revision": after.revision}),
        (lambda s: s.files, lambda: {"files": files_text(after.files)}),
        (lambda s: s.desired, lambda: {"desired": after.desired.value}),
        (lambda s: s.stop_at, lambda: {"stop_at": after.stop_at}),
        (
            lambda s: s.lease,
            lambda: {
                "lease_holder": after.lease.holder if after.lease else None,
                "lease_expires_ms": milliseconds(after.lease.expires) if after.lease else None,
            },
        ),
        (lambda s: s.next_step, lambda: {"next_step": after.next_step}),
        (lambda s: s.oldest_step, lambda: {"oldest_step": after.oldest_step}),
        (
            lambda s: s.last_time,
            lambda: {"last_time_ms": milliseconds(after.last_time) if after.last_time else None},
        ),
        (lambda s: s.positions, lambda: {"positions": positions_text(after.positions)}),
        (lambda s: s.rebuilt_step, lambda: {"rebuilt_step": after.rebuilt_step}),
        (
            lambda s: s.loads,
            lambda: {"loads": json.dumps([astuple(load) for load in after.loads])},
        ),
        (lambda s: s.first_counts, lambda: {"first_counts": json.dumps(dict(after.first_counts))}),
        (
            lambda s: s.replaced,
            lambda: {"replaced": replaced_text(after.replaced) if after.replaced else None},
        ),
    )
    values: Values = {}
    for part, columns in parts:
        if before is None or part(before) != part(after):
            values |= columns()
    return values


def _drop_divisions(connection: Connection, before: PipelineState, after: PipelineState) -> None:
    """Those that are trimmed; and those beyond the recorded steps, where a restore goes back to fewer
    than an old backup has: these steps are divided anew."""
    for table in (tables.steps, tables.divisions, tables.table_slices):
        of_pipeline = table.c.pipeline == after.name
        if before.oldest_step != after.oldest_step:
            connection.execute(delete(table).where(of_pipeline, table.c.step < after.oldest_step))
        if after.next_step < before.next_step:
            connection.execute(delete(table).where(of_pipeline, table.c.step >= after.next_step))


def _write_divisions(connection: Connection, name: str, divisions: Iterable[Division]) -> None:
    divisions = tuple(divisions)
    slices = [(division.step, slice_) for division in divisions for slice_ in division.slices]
    _insert_many(
        connection, tables.steps, [(name, d.step, milliseconds(d.time)) for d in divisions]
    )
    ranges = [
        (
            name,
            step,
            one.source,
            range_.partition,
            one.topic,
            one.topic_id,
            range_.start,
            range_.end,
        )
        for step, one in slices
        if isinstance(one, TopicSlice)
        for range_ in one.ranges
    ]
    _insert_many(connection, tables.divisions, ranges)
    snapshots = [
        (name, step, one.source, one.table, one.table_id, one.start, one.end, one.records)
        for step, one in slices
        if isinstance(one, TableSlice)
    ]
    _insert_many(connection, tables.table_slices, snapshots)


def _insert_many(connection: Connection, table: Table, rows: Sequence[tuple[object, ...]]) -> None:
    """Rows of numbers and texts, each with all columns of the table, in its order."""
    if not rows:
        return
    names = [column.name for column in table.columns]
    statement = insert(table).compile(dialect=connection.dialect, column_keys=names)
    if statement.positiontup is None:
        # Such a driver has a server to send them to, and SQLAlchemy puts many into a statement.
        connection.execute(insert(table), [dict(zip(names, row, strict=True)) for row in rows])
        return
    assert statement.positiontup == names, "columns are named in the order of the table"
    # SQLAlchemy would look at each value of each row, which takes longer than to write them.
    connection.exec_driver_sql(str(statement), list(rows))


def _write_versions(
    connection: Connection,
    pipeline: str,
    before: Iterable[Version],
    after: Iterable[Version],
    versions: Table,
    version_tables: Table,
) -> None:
    known = {version.number: version for version in before}
    wanted = {version.number: version for version in after}
    for number in [n for n, version in known.items() if wanted.get(n) != version]:
        for table in (versions, version_tables):
            connection.execute(
                delete(table).where(table.c.pipeline == pipeline, table.c.number == number)
            )
    for version in [v for number, v in wanted.items() if known.get(number) != v]:
        connection.execute(
            insert(versions).values(
                pipeline=pipeline,
                number=version.number,
                attempt=version.attempt,
                last_step=version.last_step,
                layout_epoch=version.layout_epoch,
            )
        )
        snapshots = [
            {
                "pipeline": pipeline,
                "number": version.number,
                "table_name": table,
                "snapshot_id": snapshot_id,
            }
            for table, snapshot_id in version.tables.items()
        ]
        if snapshots:
            connection.execute(insert(version_tables), snapshots)


def _write_rows(
    connection: Connection,
    table: Table,
    pipeline: str,
    known: Mapping[Any, Values],
    wanted: Mapping[Any, Values],
    when_new: Values,
) -> None:
    """Make the rows of a pipeline, by the second key column, what is wanted."""
    key = list(table.primary_key.columns)[1]
    for name in known.keys() - wanted.keys():
        connection.execute(delete(table).where(table.c.pipeline == pipeline, key == name))
    for name, values in wanted.items():
        if name not in known:
            connection.execute(
                insert(table).values({"pipeline": pipeline, key.name: name, **values, **when_new})
            )
        elif known[name] != values:
            connection.execute(
                update(table).where(table.c.pipeline == pipeline, key == name).values(values)
            )
