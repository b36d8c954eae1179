"""What carries a group's progress between processes: the control store's database.

Between threads it is `control.coordination.memory`; between Spark's tasks,
`lockstep_engine.coordination`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from lockstep.adapters.sql_store import SqlStore
from lockstep.adapters.sql_tables import coordination
from lockstep.control.coordination.progress import Notice, Progress, decoded, encoded

__all__ = ["SqlCarrier"]

REST_SECONDS = 0.01
"""How late a waiting worker may hear of what others have told."""


class SqlCarrier:
    """One group in the control store's database, for processes on any host that reach it.

    A row a worker, which is written by that worker and by who proposes through it: no row is contended.
    It holds little more than what is not settled, and `forget` takes the rows of a group that is over.
    Every method raises Unreachable where the database does not answer.
    """

    def __init__(
        self, store: SqlStore, pipeline: str, group: str, rest_seconds: float = REST_SECONDS
    ) -> None:
        self._store, self._rest_seconds = store, rest_seconds
        self._key = {"pipeline": pipeline, "group_name": group}
        table = coordination.c
        self._is_group = (table.pipeline == pipeline) & (table.group_name == group)

    def publish(self, worker: str, notice: Notice) -> Progress:
        try:
            return self._write(worker, notice)
        except IntegrityError:
            # Another life of this worker, or one that proposes through it, has just made the row.
            return self._write(worker, notice)

    def read(self) -> Mapping[str, Progress]:
        asked = select(coordination.c.worker, coordination.c.progress).where(self._is_group)
        with self._store.transaction(writes=False) as connection:
            return {row.worker: decoded(row.progress) for row in connection.execute(asked)}

    def rest(self, known: Mapping[str, Progress]) -> None:
        """A database tells nobody that it has changed: `known` does not matter."""
        del known
        time.sleep(self._rest_seconds)

    def forget(self) -> None:
        """Delete what all workers of the group have told: nobody may be at work in it."""
        with self._store.transaction(writes=True) as connection:
            connection.execute(delete(coordination).where(self._is_group))

    def _write(self, worker: str, notice: Notice) -> Progress:
        its_row = self._is_group & (coordination.c.worker == worker)
        asked = select(coordination.c.progress).where(its_row).with_for_update()
        with self._store.transaction(writes=True) as connection:
            found = connection.execute(asked).scalar()
            before = Progress() if found is None else decoded(found)
            after = before.after(notice)
            told = {"progress": encoded(after)}
            if found is None:
                connection.execute(insert(coordination).values(**self._key, worker=worker, **told))
            elif after != before:
                connection.execute(update(coordination).where(its_row).values(**told))
        return after
