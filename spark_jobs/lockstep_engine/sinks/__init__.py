"""Sinks: cursors over the committed outboxes, one module a kind."""
