"""Run by Alembic: migrates in the transaction of the connection that `SqlStore` hands in."""

from __future__ import annotations

from alembic import context

from lockstep.adapters.sql_tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
