"""Sessions that are joined where Spark is asked for something: what was told before counts."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ClientSession

from lockstep.errors import Unreachable
from lockstep.threads import in_parallel
from lockstep_engine.connect import ConnectEngine
from lockstep_engine.deadlines import made_active
from lockstep_engine.sessions import JoinedLater, is_of_connect, set_all

if TYPE_CHECKING:
    from conftest import SparkServer

pytestmark = pytest.mark.spark

PARTITIONS = "spark.sql.shuffle.partitions"
NOWHERE = "sc://127.0.0.1:1"


class Joins:
    """Joins sessions, and counts them."""

    def __init__(self, remote: str) -> None:
        self.engine = ConnectEngine(remote, lambda _: pytest.fail("nobody asks for tables"))
        self.joined: list[SparkSession] = []

    def __call__(self) -> SparkSession:
        self.joined.append(self.engine._connect(str(uuid.uuid4())))
        return self.joined[-1]


@pytest.fixture
def joins(spark_server: SparkServer) -> Iterator[Joins]:
    made = Joins(spark_server.remote)
    yield made
    for one in made.joined:
        one.stop()


def test_a_session_is_joined_once_with_what_it_was_told(joins: Joins) -> None:
    later = JoinedLater(joins, made_active).as_session()
    set_all(later, {PARTITIONS: "7", "spark.sql.ansi.enabled": "true"})
    set_all(later, {PARTITIONS: "9"})
    assert is_of_connect(later)
    assert joins.joined == []
    assert later.conf.get(PARTITIONS) == "9"
    assert later.range(3).count() == 3
    set_all(later, {PARTITIONS: "11"})
    [joined] = joins.joined
    assert joined.conf.get(PARTITIONS) == "11"


def test_a_session_that_nobody_asks_is_left_without_having_been_joined(joins: Joins) -> None:
    JoinedLater(joins, made_active).stop()
    assert joins.joined == []


def test_a_setting_that_is_refused_is_refused_each_time(joins: Joins) -> None:
    """And not left out by who asks again; nor is it sent again, as the session is not joined again."""
    later = JoinedLater(joins, made_active).as_session()
    set_all(later, {"spark.sql.warehouse.dir": "elsewhere"})
    for _ in range(2):
        with pytest.raises(Exception, match=r"CANNOT_MODIFY_.*CONFIG"):
            later.range(1)
    assert len(joins.joined) == 1


def test_threads_that_ask_at_the_same_time_join_one_session_which_is_theirs(joins: Joins) -> None:
    later = JoinedLater(joins, made_active)

    def ask(number: int) -> tuple[int, bool]:
        found = later.as_session().range(number).count()
        own = ClientSession.getActiveSession()
        return found, own is not None and not own.is_stopped

    numbers = range(4)
    assert in_parallel(ask, numbers) == [(number, True) for number in numbers]
    assert len(joins.joined) == 1


def test_what_copies_things_does_not_join(joins: Joins) -> None:
    with pytest.raises(TypeError, match="RLock"):
        copy.deepcopy(JoinedLater(joins, made_active))
    assert joins.joined == []


def test_a_server_that_is_not_there_is_told_once_it_is_asked() -> None:
    engine = ConnectEngine(NOWHERE, lambda _: pytest.fail("nobody asks for tables"))
    with engine._beside(str(uuid.uuid4()), "publish") as later:
        set_all(later, {PARTITIONS: "2"})
        with pytest.raises(Unreachable, match="does not answer"):
            later.range(1)


def test_a_session_beside_one_that_has_ended_is_another(
    spark_server: SparkServer,
) -> None:
    engine = ConnectEngine(spark_server.remote, lambda _: pytest.fail("nobody asks for tables"))
    session = str(uuid.uuid4())
    with engine._beside(session, "publish") as first:
        client: Any = first.client
        derived = client._session_id
        client.release_session()
    with engine._beside(session, "publish") as second:
        assert second.range(2).count() == 2
        assert second.client._session_id != derived  # type: ignore[attr-defined]
