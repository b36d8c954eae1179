"""What verification takes for a row, and what for a bad record."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal

import pytest

from lockstep.adapters.verify_decode import UndecodableError, arrow_type, row_decoder
from lockstep.errors import WrongUse
from lockstep.sql.circuit import SourceColumn


def columns(*declared: str) -> Sequence[SourceColumn]:
    """'id INT' and the like."""
    return [SourceColumn(text.split(" ", 1)[0], text.split(" ", 1)[1]) for text in declared]


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        ("INT", "2147483647", 2147483647),
        ("INT", "-2147483648", -2147483648),
        ("BIGINT", "9223372036854775807", 9223372036854775807),
        ("BOOLEAN", "true", True),
        ("DOUBLE", "1.5", 1.5),
        ("DOUBLE", "3", 3.0),
        ("DECIMAL(5, 2)", "1.005", Decimal("1.01")),
        ("DECIMAL(38, 0)", "9" * 38, Decimal("9" * 38)),
        ("FLOAT", "0.5", 0.5),
        ("STRING", '"é"', "é"),
        ("DATE", '"2013-01-31"', date(2013, 1, 31)),
        ("TIMESTAMP", '"2013-01-01T10:00:00Z"', datetime(2013, 1, 1, 10)),
        ("TIMESTAMP", '"2013-01-01 10:00:00.5"', datetime(2013, 1, 1, 10, 0, 0, 500000)),
        ("TIMESTAMP", '"2013-01-01T10:00:00+02:00"', datetime(2013, 1, 1, 8)),
        ("INT", "null", None),
    ],
)
def test_value_of_the_declared_type_is_taken(type_: str, text: str, value: object) -> None:
    assert row_decoder(columns(f"a {type_}"))(f'{{"a": {text}}}'.encode()) == (value,)


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("INT", "2147483648"),
        ("INT", "1.5"),
        ("INT", "true"),
        ("INT", '"1"'),
        ("BIGINT", "9223372036854775808"),
        ("TINYINT", "128"),
        ("BOOLEAN", "1"),
        ("DOUBLE", '"x"'),
        ("DOUBLE", "1e400"),
        ("FLOAT", "1e39"),
        ("STRING", '"\\ud800"'),
        ("DECIMAL(5, 2)", "1000"),
        ("STRING", "1"),
        ("DATE", '"2013-02-30"'),
        ("TIMESTAMP", '"yesterday"'),
    ],
)
def test_value_of_another_type_makes_the_record_bad(type_: str, text: str) -> None:
    with pytest.raises(UndecodableError, match="column a: "):
        row_decoder(columns(f"a {type_}"))(f'{{"a": {text}}}'.encode())


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b'{"a": 1', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"", "not JSON"),
        (b'{"a": NaN}', "not JSON"),
        (b'{"a": 1} {"a": 2}', "not JSON"),
        (b"[1]", "not a JSON object"),
        (None, "not a JSON object"),
        (b'{"A": 1}', "column a is absent"),
    ],
)
def test_record_that_is_no_object_with_all_columns_is_bad(value: bytes | None, says: str) -> None:
    with pytest.raises(UndecodableError, match=says):
        row_decoder(columns("a INT"))(value)


def test_null_in_a_column_that_must_not_be_null_is_bad() -> None:
    decode = row_decoder([SourceColumn("a", "INT", nullable=False)])
    assert decode(b'{"a": 1}') == (1,)
    with pytest.raises(UndecodableError, match="column a is null"):
        decode(b'{"a": null}')


def test_a_nullable_column_may_be_absent_where_the_source_says_so() -> None:
    declared = [SourceColumn("a", "INT", nullable=False), SourceColumn("b", "INT")]
    decode = row_decoder(declared, absent_is_null=True)
    assert decode(b'{"a": 1}') == (1, None)
    assert decode(b'{"a": 1, "b": null}') == (1, None)
    assert decode(b'{"a": 1, "b": 2}') == (1, 2)
    for value, says in (
        (b'{"b": 1}', "column a is absent"),
        (b'{"a": null}', "column a is null"),
        (b'{"a": 1, "b": "x"}', "column b"),
        (None, "not a JSON object"),
    ):
        with pytest.raises(UndecodableError, match=says):
            decode(value)


def test_other_fields_and_order_do_not_matter() -> None:
    decode = row_decoder(columns("a INT", "b STRING"))
    assert decode(b'{"c": [1], "b": "x", "a": 1}') == (1, "x")


def test_type_that_verification_lacks_is_refused_by_name() -> None:
    with pytest.raises(WrongUse, match="ARRAY<INT>"):
        arrow_type("ARRAY<INT>")
