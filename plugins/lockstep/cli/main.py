"""`lockstep`: the group of all commands, and what happens when one fails.

Exit codes: 0 done; 1 failed, and may succeed later; 2 wrong use, or refused for good.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import metadata

import click

from lockstep.cli import doctor, history, layout, operate, project, recorded, stack
from lockstep.cli.bench import bench
from lockstep.cli.output import is_json
from lockstep.errors import LockstepError

__all__ = ["cli", "main"]

INTERRUPTED = 130


class InOrder(click.Group):
    """Lists its commands in the order in which they are used, not by the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.commands)


@click.group(
    cls=InOrder,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExample:\n  lockstep init shop && lockstep up && lockstep deploy shop",
)
@click.version_option(package_name="lockstep")
@click.pass_context
def cli(context: click.Context) -> None:
    """SQL views over Kafka and Iceberg, kept up to date incrementally and exactly once.

    Settings come from LOCKSTEP_* in the environment, else from the running stack in LOCKSTEP_HOME
    (default: ~/.lockstep).
    """
    context.ensure_object(dict)


for _module in (project, stack, operate, recorded, history, layout, doctor):
    _module.register(cli)
cli.add_command(bench)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and end the process with its exit code."""
    found: dict[str, str] = {}
    try:
        cli.main(arguments, prog_name="lockstep", standalone_mode=False, obj=found)
    except click.UsageError as error:
        usage = error.ctx.get_usage() + "\n" if error.ctx else ""
        code = _failed(found, usage + error.format_message(), error, error.exit_code)
    except click.ClickException as error:
        code = _failed(found, error.format_message(), error, error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted; the next run takes up what is unfinished", err=True)
        code = INTERRUPTED
    except LockstepError as error:
        code = _failed(found, str(error), error, error.exit_code)
    except Exception as error:
        code = _failed(found, _unexpected(), error, 1)
    else:
        code = 0
    sys.exit(code)


def _failed(found: Mapping[str, str], text: str, error: Exception, code: int) -> int:
    """Say what went wrong on standard error; under `--output json` as an object on standard output."""
    if is_json(found):
        details = {"type": type(error).__name__, "message": str(error)}
        if isinstance(error, LockstepError):
            details["message"] = error.message
            for name in ("expected", "found", "next_step"):
                details[name] = str(getattr(error, name))
        click.echo(json.dumps({"error": details, "exit_code": code}, indent=2, ensure_ascii=False))
    click.echo(text, err=True)
    return code


def _unexpected() -> str:
    version = metadata.version("lockstep")
    return (
        f"{traceback.format_exc()}\nThis is a bug in Lockstep {version}: nothing that was recorded is "
        "lost.\nPlease report the lines above with the command that you ran, and what\n"
        "`lockstep status --output json` says. Running the command again is safe."
    )
