"""The function that `lockstep.partition_mapper` names: imported, or refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.adapters.partition_mapper import mapper_named
from lockstep.control.layout.partitions import by_modulo
from lockstep.errors import WrongUse

MODULE = """
def halves(partition, count, first):
    return partition if partition < first else (partition - first) * first // (count - first)

def two(partition, count):
    return 0

def elsewhere(partition, count, first):
    return 7

number = 3
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mappers_of_ours.py").write_text(MODULE, "utf-8")
    (tmp_path / "mappers_that_fail.py").write_text("1 / 0", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))


def test_the_default_is_what_producers_do() -> None:
    assert mapper_named("modulo") is by_modulo


def test_a_function_is_imported() -> None:
    found = mapper_named("mappers_of_ours:halves")
    assert [found(partition, 6, 2) for partition in range(6)] == [0, 1, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (
            "no_such_module_of_ours:f",
            "ModuleNotFoundError: No module named 'no_such_module_of_ours'",
        ),
        ("mappers_that_fail:f", "ZeroDivisionError: division by zero"),
        ("mappers_of_ours:thirds", "has no attribute 'thirds'"),
        ("mappers_of_ours:number", "TypeError: 'int' object is not callable"),
        ("mappers_of_ours:two", "takes 2 positional arguments but 3 were given"),
        ("mappers_of_ours:elsewhere", "of (0, 2, 1) 7"),
    ],
)
def test_what_is_no_mapper_is_refused(name: str, found: str) -> None:
    with pytest.raises(WrongUse) as refused:
        mapper_named(name)
    assert refused.value.message == (
        f"configuration key lockstep.partition_mapper names no mapper: {name}"
    )
    assert "a function of three numbers" in refused.value.expected
    assert found in refused.value.found
    assert "spark-pipeline.yml" in refused.value.next_step
