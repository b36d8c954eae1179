"""Spark's sessions: what they are told, and those that are joined where Spark is asked for something."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from threading import RLock
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession

__all__ = ["JoinedLater", "is_of_connect", "set_all"]


class JoinedLater:
    """Stands for a Connect client's session, and joins it with the first that is asked of it.

    An interval that this process works out asks for nothing: to join a session in run and another in
    publish, and to tell them what is counted on, takes as long as a sixth of such an interval.

    `join` is called once, whether it succeeds or not. `enter` makes the session that of the thread: some
    of PySpark's functions ask for that, and whoever asks first may be a thread of its own.
    """

    def __init__(
        self, join: Callable[[], SparkSession], enter: Callable[[SparkSession], None]
    ) -> None:
        self._join = join
        self._enter = enter
        self._settings: dict[str, str] = {}
        self._joined: SparkSession | None = None
        self._failed: Exception | None = None
        self._joining = RLock()
        # By this PySpark's functions know whose they are, also before there is a session.
        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"

    def as_session(self) -> SparkSession:
        """For whoever takes one."""
        return cast(SparkSession, self)

    def tell(self, settings: Mapping[str, str]) -> None:
        """Settings of the session, before anything else is asked of it."""
        with self._joining:
            if self._joined is None:
                self._settings.update(settings)
                return
        set_all(self._joined, settings)

    def stop(self) -> None:
        """Leave the session, if it was joined."""
        with self._joining:
            if self._joined is not None:
                self._joined.stop()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            # Asked by what copies things, also of one that has not begun.
            raise AttributeError(name)
        session = self._session()
        self._enter(session)
        return getattr(session, name)

    def _session(self) -> SparkSession:
        with self._joining:
            if self._failed is not None:
                raise self._failed
            if self._joined is None:
                try:
                    self._joined = self._told(self._join())
                except Exception as error:
                    self._failed = error
                    raise
            return self._joined

    def _told(self, session: SparkSession) -> SparkSession:
        try:
            set_all(session, self._settings)
        except BaseException:
            session.stop()
            raise
        return session


def is_of_connect(one: DataFrame | SparkSession) -> bool:
    """Whether a session, or a frame of it, is a Connect client's; else this process is the driver."""
    if isinstance(one, JoinedLater):
        return True
    # By name: a classic session does without the client's package, which asks for grpc.
    return any(kind.__module__.startswith("pyspark.sql.connect.") for kind in type(one).__mro__)


def set_all(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Settings of a session, in one request where it is a Connect client's: each takes milliseconds."""
    if isinstance(spark, JoinedLater):
        spark.tell(settings)
    elif not is_of_connect(spark):
        for key, value in settings.items():
            spark.conf.set(key, value)
    elif settings:
        from pyspark.sql.connect import proto

        # What only a Connect client has.
        connected: Any = spark
        pairs = [proto.KeyValue(key=key, value=value) for key, value in settings.items()]
        operation = proto.ConfigRequest.Operation(set=proto.ConfigRequest.Set(pairs=pairs))
        connected.client.config(operation)
