"""Pipelines, the step log, versions, attempts and sinks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TABLES = (
    "pipelines",
    "steps",
    "divisions",
    "versions",
    "version_tables",
    "attempts",
    "sinks",
)


def _create(name: str, key: dict[str, type], columns: dict[str, tuple[type, bool]]) -> None:
    op.create_table(
        name,
        *(sa.Column(column, kind(), nullable=False) for column, kind in key.items()),
        *(
            sa.Column(column, kind(), nullable=nullable)
            for column, (kind, nullable) in columns.items()
        ),
        sa.PrimaryKeyConstraint(*key),
        sqlite_with_rowid=False,
    )


def upgrade() -> None:
    text, number, small = sa.Text, sa.BigInteger, sa.Integer
    _create(
        "pipelines",
        {"name": text},
        {
            "incarnation": (text, False),
            "revision": (number, False),
            "files": (text, False),
            "desired": (text, False),
            "lease_holder": (text, True),
            "lease_expires_ms": (number, True),
            "next_step": (number, False),
            "oldest_step": (number, False),
            "last_time_ms": (number, True),
            "positions": (text, False),
        },
    )
    _create("steps", {"pipeline": text, "step": number}, {"time_ms": (number, False)})
    _create(
        "divisions",
        {"pipeline": text, "step": number, "source": text, "partition": small},
        {
            "topic": (text, False),
            "topic_id": (text, False),
            "start_offset": (number, False),
            "end_offset": (number, False),
        },
    )
    _create(
        "versions",
        {"pipeline": text, "number": number},
        {"attempt": (text, False), "last_step": (number, False), "layout_epoch": (number, False)},
    )
    _create(
        "version_tables",
        {"pipeline": text, "number": number, "table_name": text},
        {"snapshot_id": (number, False)},
    )
    _create(
        "attempts",
        {"pipeline": text, "id": text},
        {
            "begun_revision": (number, False),
            "first_step": (number, False),
            "last_step": (number, False),
            "base": (text, False),
            "state": (text, False),
            "session": (text, False),
        },
    )
    _create(
        "sinks",
        {"pipeline": text, "name": text},
        {
            "ordinal": (number, False),
            "view": (text, False),
            "provider": (text, False),
            "published_step": (number, False),
            "intent_first_step": (number, True),
            "intent_last_step": (number, True),
        },
    )


def downgrade() -> None:
    for name in reversed(_TABLES):
        op.drop_table(name)
