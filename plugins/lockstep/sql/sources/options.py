"""Options of sources and sinks: those that must be there, and those that may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lockstep.errors import NotSupported, ProjectError
from lockstep.sql.circuit import SinkTable, SourceTable
from lockstep.sql.names import closest

__all__ = ["BROKER", "check_known", "choice", "need", "wrong"]

BROKER = "kafka.bootstrap.servers"


def need(owner: SourceTable | SinkTable, key: str, value: str) -> None:
    """Raise ProjectError where the option is absent or empty; `value` shows what it may be."""
    if not owner.options.get(key):
        raise ProjectError(
            f"{owner.name} has no option {key!r}",
            position=owner.position,
            expected=f"OPTIONS ({key!r} = {value!r}, ...)",
            found=", ".join(owner.options) or "no options",
        )


def check_known(
    owner: SourceTable | SinkTable,
    known: Sequence[str],
    with_what: str = "",
    client: str = "kafka.",
) -> None:
    """Raise NotSupported for an option that is neither known nor a setting of the client, which
    begins with `client`; '' where there is none."""
    also = f", or a client setting {client}*" if client else ""
    for key in owner.options:
        if key not in known and not (client and key.startswith(client)):
            raise NotSupported(
                f"{owner.name} has an option {key!r} that is not supported{with_what}",
                position=owner.position,
                expected=f"one of {', '.join(closest(key, known))}{also}",
                found=key,
            )


def choice(owner: SourceTable, key: str, values: Mapping[str, str]) -> str:
    """An option's value as the engine reads it; `values` are those that it may have, explained."""
    value = owner.options[key].lower()
    if value not in values:
        expected = " or ".join(
            f"{name!r} ({means})" if means else f"{name!r}" for name, means in values.items()
        )
        raise wrong(owner, key, expected)
    return value


def wrong(
    owner: SourceTable | SinkTable, key: str, expected: str, found: str = "", next_step: str = ""
) -> ProjectError:
    """The error for an option whose value can't be read."""
    return ProjectError(
        f"{owner.name} has an option {key!r} that can't be read",
        position=owner.position,
        expected=expected,
        found=found or owner.options[key],
        next_step=next_step,
    )
