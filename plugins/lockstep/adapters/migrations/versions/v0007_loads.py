"""What the last intervals took."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pipelines", sa.Column("loads", sa.Text(), nullable=False, server_default="[]"))


def downgrade() -> None:
    op.drop_column("pipelines", "loads")
