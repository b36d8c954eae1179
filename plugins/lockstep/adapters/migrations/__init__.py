"""Alembic's folder: how the control store's tables came to be, one revision after the other."""
