"""Versions that a rollback has dropped and that are not replayed yet; where queries changed last."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "pipelines",
        sa.Column("rebuilt_step", sa.BigInteger(), nullable=False, server_default="-1"),
    )
    op.create_table(
        "dropped_versions",
        sa.Column("pipeline", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Text(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("layout_epoch", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "number"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "dropped_version_tables",
        sa.Column("pipeline", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("table_name", sa.Text(), nullable=False),
        sa.Column("snapshot_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "number", "table_name"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("dropped_version_tables")
    op.drop_table("dropped_versions")
    op.drop_column("pipelines", "rebuilt_step")
