"""The error tree of Lockstep: one base, and a leaf for each thing a person can do about it.

::

    LockstepError                    exit code 1
    ├── Refused                      exit code 2: as it stands it can never succeed; do not retry
    │   ├── ProjectError             a project file is wrong: file, line and column are named
    │   │   └── NotSupported         correct Spark SQL that Lockstep does not maintain (yet)
    │   ├── NotDeployed              no pipeline of that name is recorded
    │   ├── WrongUse                 arguments or settings that do not fit together
    │   ├── SourceChanged            a source can no longer give what was recorded
    │   └── StateDiverged            store, Iceberg and Kafka disagree; `lockstep doctor` decides
    └── Retry                        exit code 1: the same command may succeed later
        ├── Unreachable              a broker, catalog, Spark or Airflow does not answer
        ├── LeaseHeld                another run of this pipeline is at work
        ├── AttemptLost              another attempt has landed, or this one was abandoned
        ├── AuditFailed              an audit has rows, so that nothing is published
        ├── BadRecord                a record could not be decoded and the source says on_error = 'fail'
        ├── FailedRow                an expression fails for a row that is not, or can't be, left out
        └── EngineFailed             the Spark job ended with an error
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "AttemptLost",
    "AuditFailed",
    "BadRecord",
    "EngineFailed",
    "FailedRow",
    "LeaseHeld",
    "LockstepError",
    "NotDeployed",
    "NotSupported",
    "Position",
    "ProjectError",
    "Refused",
    "Retry",
    "SourceChanged",
    "StateDiverged",
    "Unreachable",
    "WrongUse",
]


@dataclass(frozen=True, order=True)
class Position:
    """A place in a project file; line and column count from 1."""

    file: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class LockstepError(Exception):
    """Base of every error that Lockstep raises on purpose.

    The message is one sentence that names the object; `expected`, `found` and `next_step` (what to
    run or write next) are kept apart, so that `--output json` can show them as fields.
    """

    exit_code = 1

    def __init__(
        self, message: str, *, expected: str = "", found: str = "", next_step: str = ""
    ) -> None:
        self.message = message
        self.expected = expected
        self.found = found
        self.next_step = next_step
        super().__init__(message)

    def __str__(self) -> str:
        parts = [self.message]
        for label, text in (
            ("expected", self.expected),
            ("found", self.found),
            ("next", self.next_step),
        ):
            if text:
                parts.append(f"  {label}: {text}")
        return "\n".join(parts)


class Refused(LockstepError):
    """As it stands, this can never succeed; retrying is pointless."""

    exit_code = 2


class ProjectError(Refused):
    """A file of a project is wrong; the position says where."""

    def __init__(
        self,
        message: str,
        *,
        position: Position,
        expected: str = "",
        found: str = "",
        next_step: str = "",
    ) -> None:
        self.position = position
        super().__init__(
            f"{position}: {message}", expected=expected, found=found, next_step=next_step
        )


class NotSupported(ProjectError):
    """Correct Spark SQL that Lockstep does not keep up to date; `next_step` says what to write."""


class NotDeployed(Refused):
    """No pipeline of that name is recorded in the control store."""


class WrongUse(Refused):
    """Arguments or settings that do not fit together."""


class SourceChanged(Refused):
    """A source can no longer give exactly what was recorded for a step."""


class StateDiverged(Refused):
    """The control store, Iceberg and Kafka disagree about what has happened."""


class Retry(LockstepError):
    """The same command may succeed later."""


class Unreachable(Retry):
    """A broker, a catalog, Spark or Airflow does not answer."""


class LeaseHeld(Retry):
    """Another run of this pipeline is at work."""


class AttemptLost(Retry):
    """Another attempt at this interval landed first, or this one was abandoned."""


class AuditFailed(Retry):
    """An audit has rows: nothing is published until it has none."""


class BadRecord(Retry):
    """A record could not be decoded, and its source says `on_error = 'fail'`."""


class FailedRow(Retry):
    """An expression fails for a row: the project says `lockstep.on_error: fail`, or it fails in a way
    that has no form that does not."""


class EngineFailed(Retry):
    """The Spark job of an interval ended with an error."""
