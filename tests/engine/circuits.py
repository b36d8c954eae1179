"""Circuits of SQL texts, for tests that look at no rows."""

from __future__ import annotations

from lockstep.sql.circuit import Circuit, ProjectFiles
from lockstep.sql.incremental import build_circuit
from lockstep.sql.project import parse_project

SPEC = """\
name: p
storage: unused
catalog: lake
database: p
libraries: [{glob: {include: "sql/**"}}]
"""


def circuit_of(text: str) -> Circuit:
    """That of a project of these statements."""
    return build_circuit(parse_project(ProjectFiles(SPEC, (("sql/v.sql", text),)), {}))
