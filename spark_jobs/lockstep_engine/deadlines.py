"""Deadlines of what a Connect client asks: an answer that is lost is asked for again.

Spark's client waits for each answer without end, and takes up a stream again only where that breaks. A
stream that neither breaks nor goes on, though the server has nothing more to say, held up an interval
for as long as somebody let it. Later versions of Spark have deadlines of their own (SPARK-56538).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import grpc
from pyspark.sql import SparkSession
from pyspark.sql.connect.client.core import DefaultChannelBuilder
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.session import SparkSession as ClientSession

__all__ = ["Deadlines", "Retries", "made_active", "opened"]

STREAM_SECONDS = 150.0
"""A server ends each stream after two minutes at most, to be taken up again; ours after ten seconds."""

CALL_SECONDS = 600.0
"""Of all other calls; the longest of them analyze a plan."""


@dataclass(frozen=True)
class Deadlines(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]
    grpc.StreamUnaryClientInterceptor,  # type: ignore[misc]
):
    """Gives each call so many seconds, and each stream of answers."""

    call_seconds: float = CALL_SECONDS
    stream_seconds: float = STREAM_SECONDS

    def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        return continuation(_Details.within(client_call_details, self.call_seconds), request)

    def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        return continuation(_Details.within(client_call_details, self.stream_seconds), request)

    def intercept_stream_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request_iterator: Any
    ) -> Any:
        details = _Details.within(client_call_details, self.call_seconds)
        return continuation(details, request_iterator)


@dataclass(frozen=True)
class _Details:
    """How a call is made, as gRPC has it."""

    method: str
    timeout: float
    metadata: Any
    credentials: Any
    wait_for_ready: Any
    compression: Any

    @staticmethod
    def within(made: Any, seconds: float) -> _Details:
        """The same call, with a deadline in so many seconds."""
        return _Details(
            made.method,
            seconds,
            made.metadata,
            made.credentials,
            made.wait_for_ready,
            made.compression,
        )


class Retries(DefaultPolicy):
    """Asks so many times more where the server is not reached, or nothing has come by the deadline. A
    query that runs is not run again: its stream is taken up where it was lost."""

    def __init__(self, times: int) -> None:
        super().__init__(max_retries=times)

    def can_retry(self, e: BaseException) -> bool:
        is_late = isinstance(e, grpc.RpcError) and e.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        return is_late or super().can_retry(e)


class _Closed(ClientSession):
    """A session that is closed by whoever has opened it, and by nobody else.

    PySpark (4.1) closes a session where it is garbage, too, be it closed already. That takes a lock,
    within whatever call allocates something: one that holds what a thread waits for that has the lock is
    never done, and neither is the other. All that fetched something in the process then stood still.
    """

    def __del__(self) -> None:
        """Nothing: what it has is closed, or goes with it."""


def opened(url: str, interceptors: Sequence[Any] = (Deadlines(),)) -> SparkSession:
    """A session of the server at the URL (`sc://host:port/;key=value`), whose calls have deadlines;
    all of them go through the interceptors of gRPC, the first of which stands outermost. It is to be
    stopped by who has asked for it."""
    # By this PySpark's functions know whose they are; it sets it for a session that has a URL, but not
    # for one that has channels of somebody's making.
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    channels = DefaultChannelBuilder(url)
    for one in interceptors:
        channels.add_interceptor(one)
    session = ClientSession.builder.channelBuilder(channels).create()
    session.__class__ = _Closed  # its builder makes none but its own
    return cast(SparkSession, session)


def made_active(session: SparkSession) -> None:
    """This thread's session, if it has none, as it is of the thread that has opened it: PySpark (4.1)
    asks for one to tell of what is held at the server."""
    if ClientSession.getActiveSession() is None:
        of_thread: Any = ClientSession._active_session
        of_thread.session = session
