"""The project that made the newest version, where another has been deployed since; where to stop."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pipelines", sa.Column("replaced", sa.Text(), nullable=True))
    op.add_column("pipelines", sa.Column("stop_at", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("pipelines", "stop_at")
    op.drop_column("pipelines", "replaced")
