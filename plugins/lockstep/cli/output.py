"""What every command has in common: `--output text|json`, and how results become text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import click

__all__ = ["command", "duration", "is_json", "progress", "show", "table", "time_text"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

TEXT, JSON = "text", "json"


def command(group: click.Group, name: str, example: str) -> Callable[[_Function], click.Command]:
    """Make a function a command of `group`, with `--output` and an example at the end of its help.

    The function takes its other options and arguments by name, and gives back nothing: it calls
    `show`.
    """

    def made(function: _Function) -> click.Command:
        option = click.Option(
            ["--output", "-o"],
            type=click.Choice([TEXT, JSON]),
            default=TEXT,
            show_default=True,
            help="Lines for people, or one JSON value on standard output.",
            expose_value=False,
            is_eager=True,
            callback=_remember,
        )
        found = click.command(name, epilog=f"\b\nExample:\n  {example}")(function)
        found.params.append(option)
        group.add_command(found)
        return found

    return made


def _remember(context: click.Context, _: click.Parameter, value: str) -> str:
    context.find_root().obj["output"] = value
    return value


def is_json(found: Mapping[str, str]) -> bool:
    """Whether a command was asked for JSON; `found` is the object of the root context."""
    return found.get("output") == JSON


def show(value: object, text: Callable[[], str]) -> None:
    """Print a result: a dataclass, or a list or dict of them, as JSON; `text` is for people."""
    if is_json(click.get_current_context().find_root().obj):
        click.echo(to_json(value))
    else:
        click.echo(text().rstrip("\n"))


def to_json(value: object) -> str:
    """One JSON value, indented; dataclasses are objects, times ISO 8601 text."""
    from lockstep.control import codec

    return json.dumps(codec.encode(value), indent=2, ensure_ascii=False)


def progress(line: str) -> None:
    """A line of progress goes to standard error: a result can be piped."""
    click.echo(line, err=True)


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns under headers; numbers to the right, with thousands apart."""
    cells = [[_cell(value) for value in row] for row in rows]
    numeric = [
        bool(cells) and all(row[i].replace(",", "").lstrip("-").isdigit() for row in cells)
        for i in range(len(headers))
    ]
    widths = [max(len(row[i]) for row in [list(headers), *cells]) for i in range(len(headers))]

    def line(row: Sequence[str]) -> str:
        padded = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        ]
        return "  ".join(padded).rstrip()

    return "\n".join(line(row) for row in [list(headers), *cells])


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return time_text(value)
    return "-" if value is None else str(value)


def time_text(time: datetime | None) -> str:
    """A UTC time without its zone, '-' for none."""
    if time is None:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S") + f".{time.microsecond // 1000:03}Z"


def duration(seconds: float) -> str:
    """'0.8 s', '3 min 20 s'."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"
