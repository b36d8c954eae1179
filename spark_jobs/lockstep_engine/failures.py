"""What Spark says when it ends a job, and how that is said to people."""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, PythonException

from lockstep.errors import EngineFailed, LockstepError, SourceChanged

__all__ = ["SPARK_ERRORS", "first_line", "is_lost", "is_of_a_row", "is_of_size", "plain_error"]

SPARK_ERRORS = (PySparkException, Py4JError)
"""The second is what a driver of its own lets pass of Java's errors."""

_OF_DATA = ("22", "P0001")
"""How the states of data exceptions begin: division by zero, bad casts, overflows; what is raised."""

_OF_JAVA = ("java.lang.ArithmeticException", "java.time.DateTimeException")
"""What Spark lets pass of the overflows of times: without a state."""

_MOST = "spark.driver.maxResultSize"

_GONE = ("not available in Kafka any more", "OffsetOutOfRangeError")
"""What is said of offsets that retention or a deleted topic has taken: by Spark's Kafka source, and by
tasks that ask the broker themselves."""

_ABANDONED = "INVALID_HANDLE.OPERATION_ABANDONED"

_TRACEBACK = "Traceback (most recent call last):"


def is_of_a_row(error: Exception) -> bool:
    """Whether an expression failed for a value, whatever Spark has wrapped that in; a Python function
    may have."""
    if _is_of_gone_records(error):
        return False
    state = error.getSqlState() if isinstance(error, PySparkException) else None
    if isinstance(error, PythonException) or (state is not None and state.startswith(_OF_DATA)):
        return True
    text = str(error)
    return any(name in text for name in (*_OF_JAVA, *(f"SQLSTATE: {one}" for one in _OF_DATA)))


def is_of_size(error: Exception) -> bool:
    """Whether the rows that were asked for are more than a driver hands out."""
    return _MOST in str(error)


def is_lost(error: Exception) -> bool:
    """Whether a server has given a query up, as its client had not taken up the stream for seconds."""
    return _ABANDONED in str(error)


def plain_error(pipeline: str, error: Exception) -> LockstepError:
    """One of SPARK_ERRORS in a sentence, with what to run next."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if _is_of_gone_records(error):
        said = next(line for line in lines if any(words in line for words in _GONE))
        return SourceChanged(
            f"{pipeline}: a topic no longer holds records that a recorded step needs",
            found=said[:500],
            next_step=f"lockstep reconcile {pipeline} --forget SOURCE, which recomputes from what the "
            "topic holds now; where it is a change of queries that needs the past, lockstep deploy DIR "
            "with the queries of before. Raise the topic's retention",
        )
    return EngineFailed(
        f"{pipeline}: Spark ended the job with an error",
        found=" ".join(lines[:3])[:1500],
        next_step="run the interval again; if it stays, `lockstep plan` the project",
    )


def _is_of_gone_records(error: Exception) -> bool:
    text = str(error)
    return any(words in text for words in _GONE)


def first_line(error: Exception) -> str:
    """The sentence that it begins with; of a Python function's exception the one that it ends with."""
    text = str(error).strip()
    if isinstance(error, PythonException):
        # Frames are indented, and the exception stands behind the last of them.
        _, _, trace = text.rpartition(_TRACEBACK)
        raised = (line for line in trace.splitlines() if line and not line[0].isspace())
        return next(raised, text.splitlines()[0])[:500]
    return text.splitlines()[0][:500]
