"""What the workers of a group have told each other: barriers and sequencers between processes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "coordination",
        sa.Column("pipeline", sa.Text(), nullable=False),
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("progress", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "group_name", "worker"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("coordination")
