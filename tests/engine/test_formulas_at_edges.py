"""Expressions of values that are hardly any: what comes out here, and what is left to Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lockstep.sql.plans.expressions import from_text
from lockstep.sql.plans.nodes import Output, Project, Scan
from lockstep_engine.local import formulas
from lockstep_engine.local.formulas import projected
from lockstep_engine.local.rows import Rows


def here(text: str, values: pa.Array) -> list[object] | None:
    """An expression of a column `v`; None where it is left to Spark."""
    columns = [values, pa.array([1] * len(values)), pa.array(range(len(values)))]
    rows = Rows.of(pa.table(columns, ["v", "_weight", "_step"]))
    found = projected(rows, Project(Scan("t", ("v",)), (Output("c", from_text(text)),)))
    return None if found is None else found.table["c"].to_pylist()


@pytest.mark.parametrize(
    "text",
    [
        "substring(`v`, 1, 1)",
        "length(`v`)",
        "trim(`v`)",
        "replace(`v`, 'a', 'b')",
        "split_part(`v`, 'a', 1)",
        "`v` LIKE '_a'",
    ],
)
def test_texts_that_are_not_utf8(text: str) -> None:
    """Arrow takes C0 80 for one character, Spark for two."""
    assert here(text, pa.array(["éa"])) is not None
    assert here(text, pa.array([b"\xc0\x80a"]).view(pa.string())) is None


def test_the_hours_of_the_first_and_the_last_time() -> None:
    times = pa.array([-(2**63), -(2**63) + 1, -1, 0, 2**63 - 1], pa.timestamp("us", "UTC"))
    assert here("hour(`v`)", times) == [19, 19, 23, 0, 4]


@pytest.mark.parametrize("error", [pa.ArrowCapacityError, pa.ArrowInvalid])
def test_texts_that_are_too_large_for_a_column(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """Two gigabytes of them, which would take as much to make."""

    def full(*_: object) -> None:
        raise error("array cannot contain more than 2147483646 bytes")

    assert here("concat(`v`, `v`)", pa.array(["a"])) == ["aa"]
    monkeypatch.setattr(formulas, "_concatenated", full)
    assert here("concat(`v`, `v`)", pa.array(["a"])) is None
