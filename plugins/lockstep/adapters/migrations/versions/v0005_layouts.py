"""Layouts, and how many partitions each topic had when it was read first."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "pipelines", sa.Column("first_counts", sa.Text(), nullable=False, server_default="{}")
    )
    op.create_table(
        "layouts",
        sa.Column("pipeline", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("from_step", sa.BigInteger(), nullable=True),
        sa.Column("layout", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "epoch"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("layouts")
    op.drop_column("pipelines", "first_counts")
