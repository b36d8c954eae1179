"""`versions`, `rollback`: the versions that are kept, and going back to one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click

from lockstep.adapters.settings import Settings
from lockstep.cli.names import pipeline_name
from lockstep.cli.output import command, progress, show, table
from lockstep.control.model import PipelineState, Version
from lockstep.control.opening import Opening
from lockstep.errors import Refused, WrongUse

__all__ = ["register"]


def register(cli: click.Group) -> None:
    """Add the commands of this module."""
    command(cli, "versions", "lockstep versions shop")(versions)
    command(cli, "rollback", "lockstep rollback shop --to-version 41")(rollback)


@click.argument("pipeline", metavar="PIPELINE|DIR")
def versions(pipeline: str) -> None:
    """Show the versions that are kept, which attempt made each, and whether it can be opened."""
    from lockstep import rolling_back, runtime

    name, settings = pipeline_name(pipeline), Settings.load()
    state = runtime.recorded(name, settings)
    kept = [
        _kept(version, found, dropped=dropped)
        for some, dropped in ((state.versions, False), (state.dropped, True))
        for found in [rolling_back.opening(state, some, settings)]
        for version in some
    ]
    show(kept, lambda: _versions_text(state, kept))


@dataclass(frozen=True)
class KeptVersion:
    """A version as `versions` shows it; `lacking` are the tables that cannot open it, and `dropped` says
    that a rollback took it away, while its steps are replayed."""

    number: int
    attempt: str
    last_step: int
    layout_epoch: int
    tables: Mapping[str, int]
    lacking: tuple[str, ...]
    dropped: bool


def _kept(version: Version, found: Opening, *, dropped: bool) -> KeptVersion:
    return KeptVersion(
        version.number,
        version.attempt,
        version.last_step,
        version.layout_epoch,
        version.tables,
        found.lacking.get(version.number, ()),
        dropped,
    )


def _versions_text(state: PipelineState, kept: Sequence[KeptVersion]) -> str:
    shown = table(
        ("version", "last step", "attempt", "tables", "layout", "can be opened"),
        [
            (
                v.number,
                v.last_step,
                v.attempt or "-",
                len(v.tables),
                v.layout_epoch,
                (f"no: {', '.join(v.lacking)}" if v.lacking else "yes")
                + (", dropped" if v.dropped else ""),
            )
            for v in kept
        ],
    )
    if not state.dropped:
        return shown
    return (
        f"{shown}\nsteps {state.version.last_step + 1}..{state.output_step} are replayed after a "
        f"rollback; `lockstep rollback {state.name} --undo` brings back what it dropped"
    )


@click.argument("pipeline", metavar="PIPELINE|DIR")
@click.option("--to-version", "number", type=click.IntRange(0), help="The version to go back to.")
@click.option("--undo", is_flag=True, help="Take a rollback back whose steps are not all replayed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def rollback(pipeline: str, number: int | None, undo: bool, yes: bool) -> None:
    """Go back to a version that is kept, and have the steps after it run again.

    Recorded divisions stay: a replay reads what the first run read, and an output that differs is an
    error. Sinks are not sent a step twice.
    """
    from lockstep import rolling_back

    name = pipeline_name(pipeline)
    if undo == (number is not None):
        raise WrongUse(
            "--to-version and --undo exclude each other, and one of them is needed",
            expected="the version to go back to, or --undo",
            found="both" if undo else "neither",
            next_step=f"lockstep versions {name}",
        )
    settings = Settings.load()
    plan = rolling_back.plan_rollback(name, number, settings)
    if not yes:
        click.echo(plan.text, err=True)
        if not _is_approved():
            asked = "--undo" if undo else f"--to-version {number}"
            raise Refused(
                f"pipeline {name} was not rolled back: it was not approved",
                expected="a yes",
                found="none",
                next_step=f"lockstep rollback {name} {asked} --yes",
            )
    rolling_back.roll_back(plan, settings, progress)
    show(plan, lambda: plan.text)


def _is_approved() -> bool:
    try:
        return click.confirm("Go on?", err=True)
    except click.Abort:
        # Ctrl-C, or the end of an input that nobody types: nothing was done that could be taken up.
        return False
