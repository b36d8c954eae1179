"""What Spark says when it ends a job."""

from __future__ import annotations

from pyspark.errors import PySparkException

__all__ = ["first_line", "is_of_a_row"]

_OF_DATA = ("22", "P0001")
"""How the states of data exceptions begin: division by zero, bad casts, overflows; what is raised."""


_OF_JAVA = ("java.lang.ArithmeticException", "java.time.DateTimeException")
"""What Spark lets pass of the overflows of times: without a state."""


def is_of_a_row(error: PySparkException) -> bool:
    """Whether an expression failed for a value, whatever Spark has wrapped that in."""
    text = str(error)
    return any(name in text for name in _OF_JAVA) or any(
        (error.getSqlState() or "").startswith(state) or f"SQLSTATE: {state}" in text
        for state in _OF_DATA
    )


def first_line(error: PySparkException) -> str:
    """The sentence that it begins with."""
    return str(error).strip().splitlines()[0][:500]
