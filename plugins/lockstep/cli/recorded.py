"""`steps`, `receipt`, `verify`: what is recorded, and whether it is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lockstep.adapters.settings import Settings
from lockstep.cli.names import pipeline_name
from lockstep.cli.output import command, progress, show, table
from lockstep.control.model import Division, SourceSlice, TableSlice, TopicSlice
from lockstep.errors import StateDiverged, WrongUse

if TYPE_CHECKING:
    from lockstep.adapters.verify import ViewCheck

__all__ = ["register"]


def register(cli: click.Group) -> None:
    """Add the commands of this module."""
    command(cli, "steps", "lockstep steps shop --last 5")(steps)
    command(cli, "receipt", "lockstep receipt shop orders 0 17 --wait")(receipt)
    command(cli, "verify", "lockstep verify shop")(verify)


@click.argument("pipeline", metavar="PIPELINE|DIR")
@click.option("--last", default=20, show_default=True, type=click.IntRange(1), help="How many.")
@click.option("--step", type=click.IntRange(0), help="This step alone: what was it made from?")
def steps(pipeline: str, last: int, step: int | None) -> None:
    """Show the newest recorded steps, or one: their times and their input."""
    from lockstep import runtime

    settings = Settings.load()
    name = pipeline_name(pipeline)
    state = runtime.recorded(name, settings)
    if step is not None:
        divisions: tuple[Division, ...] = (runtime.step_input(name, step, settings),)
    else:
        first = max(state.oldest_step, state.next_step - last)
        with runtime.open_pipeline(name, settings) as opened:
            divisions = opened.divisions(first, state.next_step - 1)
    committed = state.version.last_step

    def text() -> str:
        rows = [
            (
                division.step,
                division.time,
                division.records,
                "committed" if division.step <= committed else "pending",
                " ".join(_read(slice_) for slice_ in division.slices if not slice_.is_empty),
            )
            for division in divisions
        ]
        if not rows:
            return f"pipeline {name} has no recorded steps yet"
        return table(("step", "time", "records", "state", "input"), rows)

    show(divisions, text)


def _read(slice_: SourceSlice) -> str:
    match slice_:
        case TopicSlice():
            return " ".join(
                f"{slice_.source}[{r.partition}] {r.start}..{r.end}"
                for r in slice_.ranges
                if r.records
            )
        case TableSlice():
            ends = (slice_.start, slice_.end)
            start, end = ("nothing" if one is None else f"snapshot {one}" for one in ends)
            return f"{slice_.source} {start}..{end}"


@click.argument("pipeline", metavar="PIPELINE|DIR")
@click.argument("subject", metavar="TOPIC|TABLE")
@click.argument("place", metavar="PARTITION OFFSET|SNAPSHOT", nargs=-1, type=click.IntRange(0))
@click.option("--wait", is_flag=True, help="Answer when every sink shows it.")
@click.option(
    "--timeout",
    "timeout_seconds",
    default=300.0,
    show_default=True,
    type=click.FloatRange(0),
    help="With --wait, give up after so many seconds, with exit code 1.",
)
def receipt(
    pipeline: str, subject: str, place: tuple[int, ...], wait: bool, timeout_seconds: float
) -> None:
    """Say what became of one record of a topic, or of one snapshot of a followed table: its step, the
    version that holds it, the sinks that show it."""
    from lockstep import runtime

    name, settings = pipeline_name(pipeline), Settings.load()
    match place:
        case (partition, offset) if wait:
            offsets = {(subject, partition): offset}
            found = runtime.wait_until_published(name, offsets, settings, timeout_seconds)
        case (snapshot_id,) if wait:
            found = runtime.wait_until_snapshot_published(
                name, subject, snapshot_id, settings, timeout_seconds
            )
        case (partition, offset):
            found = runtime.receipt(name, subject, partition, offset, settings)
        case (snapshot_id,):
            found = runtime.snapshot_receipt(name, subject, snapshot_id, settings)
        case _:
            raise WrongUse(
                f"{len(place)} numbers do not name a record or a snapshot",
                expected="TOPIC PARTITION OFFSET, or TABLE SNAPSHOT",
                found=" ".join(map(str, (subject, *place))),
                next_step=f"lockstep receipt {name} orders 0 17",
            )
    show(found, lambda: "\n".join(str(one) for one in found))


@click.argument("pipeline", metavar="PIPELINE|DIR")
def verify(pipeline: str) -> None:
    """Recompute every view from the sources' own rows with DuckDB, and compare.

    A difference ends with exit code 2. A view of which rows have failed, or that DuckDB does not know
    how to compute, is not compared.
    """
    from lockstep.adapters.verify import verify as check

    name = pipeline_name(pipeline)
    checks = check(name, Settings.load(), progress)
    show(checks, lambda: _checks_text(checks))
    if wrong := [c.view for c in checks if c.equal is False]:
        raise StateDiverged(
            f"pipeline {name}: {', '.join(wrong)} is not what its sources give",
            expected="the same rows as DuckDB computes",
            found=", ".join(
                f"{c.view}: {c.missing} missing, {c.unexpected} unexpected"
                for c in checks
                if c.equal is False
            ),
            next_step=f"lockstep versions {name}, and see when it went wrong",
        )


def _result(check: ViewCheck) -> bool | str:
    if check.equal is not None:
        return check.equal
    return "not computed" if check.reason else f"{check.failed_rows} rows failed"


def _checks_text(checks: tuple[ViewCheck, ...]) -> str:
    lines = [
        table(
            ("view", "step", "equal", "rows", "expected", "missing", "unexpected"),
            [
                (
                    c.view,
                    c.step,
                    _result(c),
                    c.rows_published,
                    c.rows_expected,
                    c.missing,
                    c.unexpected,
                )
                for c in checks
            ],
        )
    ]
    lines += [f"{c.view}: {row}" for c in checks for row in c.sample]
    return "\n".join(lines)
