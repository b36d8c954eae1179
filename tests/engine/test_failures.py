"""How Spark's failures are said to people."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException, PythonException

from lockstep.errors import EngineFailed, SourceChanged
from lockstep_engine.connect import _plain_errors
from lockstep_engine.failures import is_of_a_row, plain_error

# Spark's Kafka source, of an interval whose records have gone; then a task that asks the broker itself.
BY_SPARK = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times
  Some data may have been lost because they are not available in Kafka any more; either the
JVM stacktrace:"""
BY_TASK = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times
Traceback (most recent call last):
  File "fetching.py", line 154, in _read
    raise _error(code, where)
kafka.errors.OffsetOutOfRangeError: [Error 1] OffsetOutOfRangeError: OFFSET_OUT_OF_RANGE (1): topic t
"""
GONE = [
    (PySparkException(BY_SPARK), "Some data may have been lost because they are not available"),
    (PythonException(BY_TASK), "kafka.errors.OffsetOutOfRangeError: [Error 1] "),
]


@pytest.mark.parametrize(("error", "found"), GONE, ids=["by Spark", "by a task"])
def test_records_that_are_gone_are_given_up_by_name(error: PySparkException, found: str) -> None:
    """No command takes up the steps that lost input, but one lets go of them."""
    said = plain_error("shop", error)
    assert isinstance(said, SourceChanged)
    assert said.message == "shop: a topic no longer holds records that a recorded step needs"
    assert said.found.startswith(found)
    assert said.next_step.startswith("lockstep reconcile shop --forget SOURCE, which recomputes")
    assert "new pipeline" not in said.next_step
    # It would be run again without the rows that fail, and each row looked for.
    assert not is_of_a_row(error)


def test_other_failures_may_pass() -> None:
    error = PySparkException("Executor lost\n\n at org.apache.spark")
    said = plain_error("shop", error)
    assert isinstance(said, EngineFailed)
    assert said.found == "Executor lost at org.apache.spark"


def test_a_server_s_failures_are_said_so() -> None:
    with pytest.raises(SourceChanged, match="--forget SOURCE"), _plain_errors("shop"):
        raise PySparkException(BY_SPARK)
