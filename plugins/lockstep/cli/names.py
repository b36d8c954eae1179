"""A pipeline as people name it: by its name, or by the folder of its project."""

from __future__ import annotations

from pathlib import Path

__all__ = ["pipeline_name"]


def pipeline_name(text: str) -> str:
    """The name in the spec where `text` is a project's folder, else `text`. Raises ProjectError."""
    if Path(text).is_dir():
        from lockstep.sql.reading.spec import parse_spec, read_project_files

        return parse_spec(read_project_files(Path(text)).spec).name
    return text
