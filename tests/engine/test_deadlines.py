"""Answers that do not come: calls of a real server go to where nobody answers, or their answers do."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator
from pyspark.sql.connect.proto import AnalyzePlanResponse, ExecutePlanResponse

from lockstep_engine.deadlines import Deadlines, Retries, opened
from lockstep_engine.told import fetched

pytestmark = pytest.mark.spark

GIVEN_UP = 6.5
"""Seconds after which the server has given up a query whose stream nobody takes up."""


class Nowhere(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Notes the calls of some methods. The answer to the first is lost; the call itself `arrives`."""

    def __init__(self, channel: grpc.Channel, methods: set[str], *, arrives: bool) -> None:
        self.channel, self.methods, self.arrives = channel, methods, arrives
        self.calls: list[str] = []

    def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        answer = ExecutePlanResponse
        return self._call(
            self.channel.unary_stream, answer, continuation, client_call_details, request
        )

    def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        def lost(*about: Any, **codec: Any) -> Callable[..., Any]:
            return self.channel.unary_unary(*about, **codec).future

        answer = AnalyzePlanResponse
        return self._call(lost, answer, continuation, client_call_details, request)

    def _call(self, lost: Any, answer: Any, go_on: Any, details: Any, request: Any) -> Any:
        name = details.method.rpartition("/")[2]
        if name not in self.methods:
            return go_on(details, request)
        self.calls.append(name)
        if len(self.calls) > 1:
            return go_on(details, request)
        if self.arrives:
            assert list(go_on(details, request))
        call = lost(
            details.method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return call(request, timeout=details.timeout)


@pytest.fixture
def nowhere() -> Iterator[grpc.Channel]:
    """A connection that is made, and then silent."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        with grpc.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)]) as channel:
            yield channel


@contextmanager
def session(remote: str, deadlines: Deadlines, losses: Nowhere) -> Iterator[SparkSession]:
    spark = opened(remote, [deadlines, losses])
    client: Any = spark.client
    client.set_retry_policies([Retries(2)])
    try:
        yield spark
    finally:
        spark.stop()


@pytest.mark.parametrize(
    ("arrives", "seconds", "calls"),
    [
        pytest.param(
            False, 1, ["ExecutePlan", "ReattachExecute", "ExecutePlan"], id="it never arrived"
        ),
        pytest.param(True, 1, ["ExecutePlan", "ReattachExecute"], id="it waits to be taken up"),
        pytest.param(
            True, GIVEN_UP, ["ExecutePlan", "ReattachExecute", "ExecutePlan"], id="it is given up"
        ),
    ],
)
def test_rows_come_though_an_answer_is_lost(
    spark_server: Any, nowhere: grpc.Channel, arrives: bool, seconds: float, calls: list[str]
) -> None:
    losses = Nowhere(nowhere, {"ExecutePlan", "ReattachExecute"}, arrives=arrives)
    with session(spark_server.remote, Deadlines(60, seconds), losses) as spark:
        rows, _ = fetched(spark.range(3))
    assert rows.to_pydict() == {"id": [0, 1, 2]}
    assert losses.calls == calls


def test_a_question_is_asked_again(spark_server: Any, nowhere: grpc.Channel) -> None:
    losses = Nowhere(nowhere, {"AnalyzePlan"}, arrives=False)
    with session(spark_server.remote, Deadlines(1, 60), losses) as spark:
        assert spark.range(3).columns == ["id"]
    assert losses.calls == ["AnalyzePlan", "AnalyzePlan"]


def test_a_session_that_is_garbage_waits_for_nobody(spark_server: Any) -> None:
    """It may be collected in any thread, within any call: also in one that holds what another waits for
    that releases an answer, and has PySpark's lock for it."""
    session: Any = opened(spark_server.remote)
    session.in_a_circle = session
    session.stop()
    held, is_collected = threading.Event(), threading.Event()

    def release() -> None:
        with ExecutePlanResponseReattachableIterator._lock:
            held.set()
            is_collected.wait(30)

    def collect() -> None:
        gc.collect()
        is_collected.set()

    releasing, collecting = threading.Thread(target=release), threading.Thread(target=collect)
    releasing.start()
    assert held.wait(30)
    del session
    collecting.start()
    collecting.join(20)
    was_collected = is_collected.is_set()
    is_collected.set()
    for thread in (releasing, collecting):
        thread.join()
    assert was_collected
