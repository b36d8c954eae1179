"""Names that stand in tables, refs and logs, made in one place."""

from __future__ import annotations

__all__ = [
    "FAILED_ROWS_TABLE",
    "LAYOUTS_TABLE",
    "MAIN",
    "MAINTENANCE_SUFFIX",
    "MARKED_TAG",
    "ROOT_TAG",
    "STEPS_TABLE",
    "SWAP_PREFIX",
    "TABLE_STEPS_TABLE",
    "TRACE_PREFIX",
    "attempt_branch",
    "attempt_of",
    "errors_table",
    "is_trace",
    "is_whole",
    "late_table",
    "merge_branch",
    "merge_branches",
    "outbox_table",
    "publish_branch",
    "publish_branches",
    "swap_branch",
    "swap_branches",
    "version_tag",
    "write_id",
]

MAIN = "main"
"""The branch that people and other engines read."""

MARKED_TAG = "lockstep"
"""The tag on the newest published snapshot of a view: expiry must not remove the last marker."""

ROOT_TAG = "root"
"""The tag on the empty snapshot that a table was made with: a version of before opens it there again."""

STEPS_TABLE = "_steps"
"""The Iceberg copy of the step log: what steps read of topics."""

TABLE_STEPS_TABLE = "_table_steps"
"""The Iceberg copy of the step log: what steps read of Iceberg tables."""

FAILED_ROWS_TABLE = "_failed_rows"
"""The table of rows for which an expression of a view fails, with what became of them by step."""

LAYOUTS_TABLE = "_layouts"
"""The Iceberg copy of the layouts under which versions were made."""

MAINTENANCE_SUFFIX = "__maintenance"
"""How the id of the second DAG of a pipeline ends; the pipeline's name stands before it."""

TRACE_PREFIX = "_trace_"
"""How the names of trace tables begin; the hash of the plan follows."""


SWAP_PREFIX = "swap_"
"""How the branches begin on which merged files are swapped into a version."""


def is_trace(table: str) -> bool:
    """True for the table of a trace."""
    return table.startswith(TRACE_PREFIX)


def attempt_branch(attempt: str) -> str:
    """The branch that an attempt appends to, on every table."""
    return f"attempt_{attempt}"


def attempt_of(ref: str) -> str:
    """The attempt whose branch, or whose version's tag, a ref is."""
    return ref.partition("_")[2]


def merge_branches(attempt: str) -> str:
    """How the branches begin on which files of the version of an attempt are merged."""
    return f"merge_{attempt}_"


def merge_branch(attempt: str, merge: str) -> str:
    """The branch on which a merge of files of the version of an attempt reads and writes."""
    return merge_branches(attempt) + merge


def swap_branches(attempt: str) -> str:
    """How the branches begin on which merged files are swapped into the version of an attempt."""
    return f"{SWAP_PREFIX}{attempt}_"


def swap_branch(attempt: str, merge: str) -> str:
    """The branch on which merged files are swapped into the version of an attempt."""
    return swap_branches(attempt) + merge


def publish_branches(incarnation: str) -> str:
    """How the branches begin on which a pipeline prepares the next state of its views."""
    return f"publish_{incarnation[:8]}_"


def publish_branch(incarnation: str, publish: str) -> str:
    """The branch of one publish of a view. Each has its own: one that wakes up late then writes where
    nobody looks."""
    return publish_branches(incarnation) + publish


def outbox_table(view: str) -> str:
    """The table of a published view's changes."""
    return f"{view}_changes"


def errors_table(source: str) -> str:
    """The table of a source's records that could not be decoded."""
    return f"{source}_errors"


def late_table(source: str) -> str:
    """The table of a source's rows that came below its watermark."""
    return f"{source}_late"


def version_tag(number: int, attempt: str) -> str:
    """The tag that pins a table's snapshot in a version; a rollback can repeat the number, so the
    attempt stands in it too."""
    return f"v{number}_{attempt}"


_WHOLE = ":whole"


def write_id(attempt: str, table: str, *, whole: bool = False) -> str:
    """What an attempt's snapshot of a table says of itself; `whole` where it puts rows in the place of
    all that the table held."""
    return f"{attempt}:{table}{_WHOLE if whole else ''}"


def is_whole(write: str) -> bool:
    """True for the id of a write in the place of all rows."""
    return write.endswith(_WHOLE)
