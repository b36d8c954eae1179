"""A Spark for one command: the one that is up, else one of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from lockstep.adapters.settings import Settings
from lockstep.cli.output import progress

__all__ = ["spark_for"]


@contextmanager
def spark_for(configuration: Mapping[str, str], settings: Settings) -> Iterator[Settings]:
    """Settings that name a Spark such as a project's configuration wants."""
    from lockstep.adapters.embedded.ephemeral import ephemeral_connect

    if configuration.get("lockstep.engine", "connect") != "connect" or settings.spark_remote:
        yield settings
        return
    with ephemeral_connect(settings.home / "spark-once", progress) as remote:
        yield replace(settings, spark_remote=remote)
