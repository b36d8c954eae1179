"""`doctor`: what is wrong, and what to run."""

from __future__ import annotations

import click

from lockstep.adapters.settings import Settings
from lockstep.cli.names import pipeline_name
from lockstep.cli.output import command, show, table
from lockstep.control.diagnosis import Finding, Health
from lockstep.errors import StateDiverged

__all__ = ["register"]


def register(cli: click.Group) -> None:
    """Add the command of this module."""
    command(cli, "doctor", "lockstep doctor shop")(doctor)


@click.argument("pipeline", metavar="PIPELINE|DIR")
@click.option("--rebuild", is_flag=True, help="Record the pipeline again; needs the project's DIR.")
def doctor(pipeline: str, rebuild: bool) -> None:
    """Check the control store against the tables, the sinks and the sources; a fault ends with exit
    code 2.

    With --rebuild the pipeline of a project is recorded from what its tables and sinks say, where the
    store has lost it, or is an old backup.
    """
    from lockstep import doctor as doctors

    settings = Settings.load()
    if rebuild:
        doctors.rebuild(pipeline, settings)
    name = pipeline_name(pipeline)
    findings = doctors.diagnose(name, settings)
    show(findings, lambda: _text(findings))
    faults = [finding for finding in findings if finding.health is Health.FAULT]
    if faults:
        raise StateDiverged(
            f"pipeline {name}: {len(faults)} faults",
            expected="store, tables, sinks and sources that fit together",
            found="; ".join(f"{fault.subject}: {fault.what}" for fault in faults),
            next_step=faults[0].next_step,
        )


def _text(findings: tuple[Finding, ...]) -> str:
    rows = [(one.health.value, one.subject, one.what) for one in findings]
    lines = [table(("", "subject", "found"), rows)]
    lines += [f"{one.subject}: {one.next_step}" for one in findings if one.next_step]
    return "\n".join(lines)
