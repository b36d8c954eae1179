"""Revisions, oldest first; a revision that was released is never changed."""
