"""`up`, `down`, `status`: the embedded stack and what is deployed on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lockstep.adapters.settings import Settings
from lockstep.cli.output import command, progress, show, table

if TYPE_CHECKING:
    from lockstep.adapters.embedded.stack import PartStatus
    from lockstep.adapters.overview import Overview

__all__ = ["register"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

# Named here as well as in `embedded.parts`, so that `--help` need not import the stack; a test
# holds the two together.
PORTS = {
    "kafka": 9092,
    "kafka_controller": 9093,
    "spark": 15002,
    "spark_ui": 4040,
    "airflow": 8080,
}


def register(cli: click.Group) -> None:
    """Add the commands of this module."""
    command(cli, "up", "lockstep up --airflow-port 8081")(up)
    command(cli, "down", "lockstep down")(down)
    command(cli, "status", "lockstep status --output json")(status)


def _port_options(function: _Function) -> _Function:
    for name, default in reversed(PORTS.items()):
        function = click.option(
            f"--{name.replace('_', '-')}-port",
            type=click.IntRange(1, 65535),
            envvar=f"LOCKSTEP_{name.upper()}_PORT",
            help=f"Default: as it was, else {default}; or LOCKSTEP_{name.upper()}_PORT.",
        )(function)
    return function


@_port_options
@click.option("--without-airflow", is_flag=True, help="Only the broker and Spark.")
@click.option(
    "--spark-memory",
    default="4g",
    show_default=True,
    envvar="LOCKSTEP_SPARK_MEMORY",
    help="Heap of the warm Spark server.",
)
@click.option(
    "--spark-master",
    default="",
    envvar="LOCKSTEP_SPARK_MASTER",
    help="Default: Spark in one process, on up to eight cores.",
)
def up(without_airflow: bool, spark_memory: str, spark_master: str, **ports: int | None) -> None:
    """Start what does not run yet of Kafka broker, warm Spark and Airflow. Twice is harmless."""
    from lockstep.adapters.embedded import stack

    home = Settings.load().home
    asked = {name.removesuffix("_port"): port for name, port in ports.items() if port}
    options = stack.StackOptions(asked, not without_airflow, spark_memory, spark_master)
    parts = stack.up(home, options, progress)
    settings = Settings.load()
    result = {
        "home": str(home),
        "parts": parts,
        "airflow": settings.airflow_url,
        "airflow_user": stack.USER if settings.airflow_url else "",
        "airflow_password": stack.password(home) if settings.airflow_url else "",
    }

    def text() -> str:
        lines = [_parts_text(parts), ""]
        if settings.airflow_url:
            lines.append(
                f"Airflow: {settings.airflow_url}  "
                f"(user {result['airflow_user']}, password {result['airflow_password']})"
            )
        lines.append(f"everything is in {home}; `lockstep down` ends it")
        return "\n".join(lines)

    show(result, text)


def down() -> None:
    """End what `lockstep up` has started, and nothing else. Twice is harmless."""
    from lockstep.adapters.embedded import stack

    ended = stack.down(Settings.load().home, progress)
    show({"ended": ended}, lambda: f"ended {len(ended)} parts" if ended else "nothing was running")


def status() -> None:
    """Show the parts of the stack, and how far each deployed pipeline is."""
    from lockstep import runtime
    from lockstep.adapters.embedded import stack
    from lockstep.adapters.overview import overview
    from lockstep.threads import in_parallel

    settings = Settings.load()
    parts = stack.status(settings.home)
    pipelines = in_parallel(lambda name: overview(name, settings), runtime.deployed(settings))
    show(
        {"home": str(settings.home), "parts": parts, "pipelines": pipelines},
        lambda: f"{_parts_text(parts)}\n\n{_pipelines_text(pipelines)}",
    )


def _parts_text(parts: tuple[PartStatus, ...]) -> str:
    return table(
        ("part", "state", "address", "pid", "log"),
        [(p.name, p.state, p.address, str(p.pid or "-"), p.log) for p in parts],
    )


def _pipelines_text(pipelines: list[Overview]) -> str:
    if not pipelines:
        return "no pipeline is deployed; next: lockstep deploy DIR"
    rows = []
    for found in pipelines:
        lag = None if found.lag_records is None else sum(found.lag_records.values())
        errors = None if found.error_records is None else sum(found.error_records.values())
        published = min((sink.step for sink in found.sinks), default=None)
        rows.append((found.name, found.state, found.version, found.step, published, lag, errors))
    titles = ("pipeline", "state", "version", "step", "published", "lag", "bad records")
    lines = [table(titles, rows)]
    lines += [f"{found.name}: {fault}" for found in pipelines for fault in found.trouble]
    return "\n".join(lines)
