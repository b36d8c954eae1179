"""The project that made the newest version, where another has been deployed since."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pipelines", sa.Column("replaced", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("pipelines", "replaced")
