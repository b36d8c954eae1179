"""The JSON form of job, model and report values: what is written is read, the rest is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from airflow_fakes import NOON, interval, job
from hypothesis import given
from hypothesis import strategies as st

from lockstep.control.codec import decode, dumps, encode, loads
from lockstep.control.job import (
    ComparedTable,
    CompareJob,
    CompareResult,
    Difference,
    IntervalJob,
    IntervalResult,
    TableWrite,
)
from lockstep.control.model import (
    Attempt,
    AttemptState,
    Lease,
    PipelineState,
    RunState,
)
from lockstep.errors import WrongUse


def test_a_job_survives_the_way_through_a_file() -> None:
    assert loads(IntervalJob, dumps(job())) == job()
    # Mappings do not take part in the equality of some values, so they are compared by themselves.
    assert loads(IntervalJob, dumps(job())).base_tables == job().base_tables


def test_a_result_keeps_64_bit_snapshot_ids_and_whole_seconds_as_floats() -> None:
    result = IntervalResult(
        {"t": 2**63 - 1}, (TableWrite("t", "a:t", 2**63 - 1, 5),), {"append": 2}
    )
    back = loads(IntervalResult, dumps(result))
    assert back.tables == {"t": 2**63 - 1}
    assert back.writes == result.writes
    assert isinstance(back.seconds["append"], float)


def test_a_comparison_survives_the_way_there_and_back() -> None:
    asked = CompareJob("p", (ComparedTable("v", "v_changes", 2**62, 7),), 3, 8, job().catalog, "s")
    assert loads(CompareJob, dumps(asked)) == asked
    found = CompareResult({"v": 4}, (Difference("v", 4, 1, 0, ('-1 {"n":3}',)),))
    back = loads(CompareResult, dumps(found))
    assert (back, back.rows) == (found, {"v": 4})


def test_states_with_enums_optional_members_and_times_survive() -> None:
    state = PipelineState(
        "shop",
        "9f",
        4,
        job().files,
        desired=RunState.PAUSE,
        lease=Lease("me", NOON),
        pending=interval(),
        attempts=(Attempt("a", 1, 2, "", AttemptState.ABANDONED),),
    )
    assert loads(PipelineState, dumps(state)) == state


def test_equal_values_give_equal_text() -> None:
    one = IntervalResult({"a": 1, "b": 2}, (), {})
    other = IntervalResult({"b": 2, "a": 1}, (), {})
    assert dumps(one) == dumps(other)


@given(
    st.dictionaries(st.text(), st.integers(min_value=-(2**63), max_value=2**63 - 1)),
    st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False)),
)
def test_any_names_numbers_and_times_survive(
    tables: dict[str, int], seconds: dict[str, float]
) -> None:
    result = IntervalResult(tables, (), seconds)
    back = loads(IntervalResult, dumps(result))
    assert (back.tables, back.seconds) == (tables, seconds)


@pytest.mark.parametrize(
    ("change", "path", "found"),
    [
        ({"surprise": 1}, "IntervalJob cannot be read", "surprise"),
        ({"base_version": "3"}, "IntervalJob.base_version", "'3'"),
        ({"base_version": True}, "IntervalJob.base_version", "True"),
        ({"base_tables": {"t": 1.5}}, "IntervalJob.base_tables.t", "1.5"),
        ({"files": {"spec": "", "files": [["one"]], "folder": ""}}, "files.files[0]", "one"),
        ({"interval": {"divisions": []}}, "IntervalJob.interval", "at least one step"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_path(
    change: dict[str, object], path: str, found: str
) -> None:
    data = {**encode(job()), **change}
    with pytest.raises(WrongUse) as refused:
        decode(IntervalJob, data)
    assert path in refused.value.message
    assert found in refused.value.found


def test_a_missing_field_is_refused_even_where_it_has_a_default() -> None:
    data = encode(job())
    del data["files"]["folder"]
    with pytest.raises(WrongUse, match=r"IntervalJob\.files cannot be read") as refused:
        decode(IntervalJob, data)
    assert "folder" in refused.value.found


def test_a_time_without_zone_is_refused_both_ways() -> None:
    data = json.loads(dumps(job()))
    data["interval"]["divisions"][0]["time"] = "2013-01-01T00:00:00"
    with pytest.raises(WrongUse, match=r"divisions\[0\]\.time"):
        decode(IntervalJob, data)
    with pytest.raises(TypeError, match="no time zone"):
        encode(NOON.replace(tzinfo=None))


def test_what_is_no_json_says_so() -> None:
    with pytest.raises(WrongUse, match="IntervalResult is not JSON"):
        loads(IntervalResult, "{")


def test_a_union_of_two_kinds_is_a_mistake_of_the_programmer() -> None:
    @dataclass(frozen=True)
    class Wide:
        either: int | str

    Wide.__annotations__["either"] = int | str
    with pytest.raises(TypeError, match="only a type or None"):
        decode(Wide, {"either": 1})
