"""What steps read of Iceberg tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "table_slices",
        sa.Column("pipeline", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("table_name", sa.Text(), nullable=False),
        sa.Column("table_id", sa.Text(), nullable=False),
        sa.Column("start_snapshot", sa.BigInteger(), nullable=True),
        sa.Column("end_snapshot", sa.BigInteger(), nullable=True),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "step", "source"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("table_slices")
