"""The files of a pipeline's tables: data files of its newest version, and all that lies on the disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from aims_bench import Bench, Driven

from lockstep.adapters.iceberg_files import IcebergFiles
from lockstep.control.compaction import DataFileInfo
from lockstep.ids import is_trace

__all__ = ["LiveFiles", "data_files", "files_on_disk"]


@dataclass(frozen=True)
class LiveFiles:
    """Data files of the newest version, by table."""

    traces: Mapping[str, Sequence[DataFileInfo]]
    outboxes: Mapping[str, Sequence[DataFileInfo]]

    @property
    def all(self) -> list[DataFileInfo]:
        tables = (*self.traces.values(), *self.outboxes.values())
        return [file for found in tables for file in found]


def data_files(bench: Bench, driven: Driven) -> LiveFiles:
    """Those of traces and outboxes."""
    files = IcebergFiles(bench.catalog(driven.name))
    tables = driven.tables()
    outboxes = {outbox.table for outbox in driven.pipeline.circuit.outboxes}

    def of(names: Sequence[str]) -> dict[str, Sequence[DataFileInfo]]:
        return {name: files.data_files(name, tables[name]) for name in sorted(names)}

    return LiveFiles(
        of([name for name in tables if is_trace(name)]),
        of([name for name in tables if name in outboxes]),
    )


def files_on_disk(bench: Bench, driven: Driven) -> Sequence[Path]:
    """All files of the pipeline's tables, views and metadata too."""
    folder = Path(urlsplit(bench.settings.warehouse).path) / driven.name
    return [path for path in folder.rglob("*") if path.is_file()]
