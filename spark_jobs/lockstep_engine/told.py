"""What the driver is told of a frame: few rows, what an action counted in passing, whose it is."""

from __future__ import annotations

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, Observation, SparkSession

__all__ = ["counted_in_passing", "few_rows", "is_of_connect"]


def is_of_connect(one: DataFrame | SparkSession) -> bool:
    """Whether a session, or a frame of it, is a Connect client's; else this process is the driver."""
    return type(one).__module__.startswith("pyspark.sql.connect")


def few_rows(frame: DataFrame, most: int) -> pa.Table | None:
    """The rows, if there are at most so many."""
    rows = frame.limit(most + 1).toArrow()
    return rows if rows.num_rows <= most else None


def counted_in_passing(observation: Observation, name: str) -> int | None:
    """What the first action on the observed frame counted under that name; None where Spark does not
    say, and whoever asks has to count."""
    try:
        found = observation.get
    except Py4JError:
        # A classic session says no more of a plan from which Spark could take the frame away.
        return None
    # To a Connect client there is then nothing in it; nor where a busy server answers before its
    # listener has the metrics.
    return int(found[name]) if name in found else None
