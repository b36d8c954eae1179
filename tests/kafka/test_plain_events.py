"""Change events that are plain: good ones for verification too, with the same rows."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_builders import source

from lockstep.adapters.verify_changes import (
    _KeyedRecord,
    _LastOfEachKey,
    _TakenAtTheirWord,
    reading_of,
)
from lockstep.adapters.verify_decode import UndecodableError
from lockstep.adapters.verify_records import RawRecord
from lockstep_engine.kernels.plain_json import PLAIN
from lockstep_engine.kernels.plain_kinds import PlainEvents
from lockstep_engine.kernels.plain_values import PlainColumn

COLUMNS = (
    ("id", "BIGINT NOT NULL"),
    ("v", "STRING"),
    ("price", "DECIMAL(6,2)"),
    ("at", "TIMESTAMP"),
    ("ratio", "DOUBLE"),
    ("day", "DATE"),
    ("ok", "BOOLEAN"),
)
TYPES = (
    pa.int64(),
    pa.string(),
    pa.decimal128(6, 2),
    pa.timestamp("us", "UTC"),
    pa.float64(),
    pa.date32(),
    pa.bool_(),
)
Row = tuple[Any, ...]


def events(keys: tuple[int, ...], absent_is_null: bool) -> PlainEvents:
    return PlainEvents(
        tuple(
            PlainColumn(name, type_, name != "id", absent_is_null and name != "id")
            for (name, _), type_ in zip(COLUMNS, TYPES, strict=True)
        ),
        keys,
    )


def plain_changes(
    value: bytes | None, beside: list[bytes], absent_is_null: bool
) -> Counter[Row] | None:
    """Of an event without keys; None where it is undecided."""
    row, *_ = events((), absent_is_null).read([], [value, *beside]).to_pylist()
    if not row.pop(PLAIN):
        return None
    *values, comes, goes = row.values()
    changes: Counter[Row] = Counter()
    changes[tuple(values[: len(COLUMNS)])] += comes
    changes[tuple(values[len(COLUMNS) :])] -= goes
    return Counter({row: weight for row, weight in changes.items() if weight})


def record_of(value: bytes | None) -> RawRecord:
    return RawRecord(0, 0, value, None, 0, (), "t")


def options(absent_is_null: bool) -> dict[str, str]:
    return {"missing_columns": "null"} if absent_is_null else {}


def verified_changes(value: bytes | None, absent_is_null: bool) -> Counter[Row] | None:
    """The same by verification; None for a bad one."""
    reading = reading_of(source("h:1", "t", COLUMNS, format="debezium", **options(absent_is_null)))
    assert isinstance(reading, _TakenAtTheirWord)
    try:
        reading.rows(record_of(value), 0)
    except UndecodableError:
        return None
    return Counter({utc(row): weight for row, weight in reading._rows.items() if weight})


def plain_change(value: bytes | None, absent_is_null: bool) -> tuple[Row, Row | None] | str | None:
    """Of an event with keys: the key, and the row, if there is one; `nothing`; None for an undecided."""
    [row] = events((0,), absent_is_null).read([], [value]).to_pylist()
    if not row.pop(PLAIN):
        return None
    *values, is_change, is_end = row.values()
    if not is_change:
        return "nothing"
    return (values[0],), None if is_end else tuple(values)


def verified_change(
    value: bytes | None, absent_is_null: bool
) -> tuple[Row, Row | None] | str | None:
    table = source("h:1", "t", COLUMNS, format="debezium", key="id", **options(absent_is_null))
    reading = reading_of(table)
    assert isinstance(reading, _LastOfEachKey)
    try:
        found: _KeyedRecord | None = reading._read(record_of(value))
    except UndecodableError:
        return None
    if found is None:
        return "nothing"
    key, others = found
    named = {**key, **(others or {})}
    row = None if others is None else utc(tuple(named[name] for name, _ in COLUMNS))
    return (key["id"],), row


def utc(row: Row) -> Row:
    return tuple(one.replace(tzinfo=UTC) if isinstance(one, datetime) else one for one in row)


def row_of(**changes: object) -> dict[str, object]:
    return {
        "id": 1,
        "v": "x",
        "price": 1.25,
        "at": "2026-01-02T03:04:05Z",
        "ratio": 0.5,
        "day": "2026-01-02",
        "ok": True,
        **changes,
    }


TOKENS = {
    "id": ["1", "-7", "null", '"1"', "1.0", "1e2", "9223372036854775808"],
    "v": ['"x"', "null", '""', '"}"', r'"\""', '"é"', "5", "{}", r'"\u0000"', '"after"', '"v"'],
    "price": ["1.25", "0", "null", "99999", '"1"', "1e2", "0.001"],
    "at": ['"2026-01-02T03:04:05Z"', "null", '"2026-1-2"', "5"],
    "ratio": ["0.5", "-0.0", "-0", "1e400", "null", "NaN", '"NaN"', "7"],
    "day": ['"2026-01-02"', '"2026-02-30"', '"2026-1-2"', "null"],
    "ok": ["true", "false", "null", '"true"', "1"],
    "more": ["[1]", '{"v": null}', "null"],
}
SOURCES = [
    '{"ts": 1}',
    '{"after": {"v": null}}',
    '{"v": null, "id": 5}',
    '"after"',
    "null",
    '{"op": "c"}',
]


@st.composite
def rows(draw: st.DrawFn) -> str:
    if draw(st.integers(0, 5)) == 0:
        return draw(st.sampled_from(["null", "null", "{}", "[]", "5", '"x"']))
    names = draw(st.lists(st.sampled_from(list(TOKENS)), max_size=2))
    fields = {name: json.dumps(value) for name, value in row_of().items()}
    for name in names:
        fields[name] = draw(st.sampled_from(TOKENS[name]))
    for name in draw(st.lists(st.sampled_from(list(fields)), max_size=1)):
        del fields[name]
    comma = draw(st.sampled_from([", ", ","]))
    return "{" + comma.join(f'"{name}": {value}' for name, value in fields.items()) + "}"


@st.composite
def values(draw: st.DrawFn) -> bytes:
    ops = ['"c"', '"r"', '"u"', '"d"', '"m"', '"t"', '"x"', "null", "1"]
    weights = [6, 2, 6, 6, 1, 1, 1, 1, 1]
    op = draw(
        st.sampled_from([one for one, many in zip(ops, weights, strict=True) for _ in range(many)])
    )
    fields = [("op", op), ("before", draw(rows())), ("after", draw(rows()))]
    if draw(st.booleans()):
        fields.append(("source", draw(st.sampled_from(SOURCES))))
    if draw(st.integers(0, 9)) == 0:
        fields.pop(draw(st.integers(0, 2)))
    if draw(st.integers(0, 9)) == 0:
        fields.append(
            (
                draw(st.sampled_from(["op", "after", "payload", "Op"])),
                draw(st.sampled_from(['"c"', "null", "{}", "5"])),
            )
        )
    text = "{" + ", ".join(f'"{name}": {value}' for name, value in fields) + "}"
    if draw(st.booleans()):
        schema = draw(
            st.sampled_from(['{"field": "after", "type": "struct"}', "null", '{"after": {}}'])
        )
        text = f'{{"schema": {schema}, "payload": {text}}}'
        if draw(st.integers(0, 4)) == 0:
            outer = draw(
                st.sampled_from(
                    ['"op": "c"', '"after": null', f'"after": {draw(rows())}', '"before": {}']
                )
            )
            text = f"{{{outer}, {text[1:]}"
    if draw(st.integers(0, 19)) == 0:
        text = text.replace('"after"', r'"aft\u0065r"')
    return text.encode()


@settings(max_examples=300)
@given(values(), st.booleans(), st.booleans())
def test_a_plain_event_is_a_good_one_with_the_same_rows(
    value: bytes, absent_is_null: bool, is_beside_others: bool
) -> None:
    beside = [event("c", after=row_of())] * is_beside_others
    found = plain_changes(value, beside, absent_is_null)
    if found is not None:
        wanted = verified_changes(value, absent_is_null)
        assert wanted is not None, value
        assert {k: n for k, n in found.items() if n} == {k: n for k, n in wanted.items() if n}, (
            value
        )
    keyed = plain_change(value, absent_is_null)
    assert keyed is None or keyed == verified_change(value, absent_is_null), value


def event(op: str, **sides: object) -> bytes:
    return json.dumps({"op": op, **sides, "source": {"ts": 1}}).encode()


AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
X = (1, "x", Decimal("1.25"), AT, 0.5, date(2026, 1, 2), True)
NULL = (2, *[None] * 6)
NULLS = {**dict.fromkeys(row_of()), "id": 2}


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_what_is_plain(is_wrapped: bool) -> None:
    """Nulls that the row says, too."""
    schema = {"type": "struct", "fields": [{"field": "before"}, {"field": "after"}]}

    def wrapped(value: bytes) -> bytes:
        return (
            json.dumps({"schema": schema, "payload": json.loads(value)}).encode()
            if is_wrapped
            else value
        )

    for value, expected in (
        (event("c", before=None, after=row_of()), {X: 1}),
        (event("r", after=NULLS), {NULL: 1}),
        (event("u", before=NULLS, after=row_of()), {NULL: -1, X: 1}),
        (event("d", before=row_of(), after=None), {X: -1}),
        (event("m"), {}),
    ):
        assert plain_changes(wrapped(value), [], absent_is_null=False) == expected
    assert plain_changes(None, [], absent_is_null=False) == {}
    lacking = {"id": 2, "v": "x", "price": 1}
    value = wrapped(event("c", after=lacking))
    assert plain_changes(value, [], absent_is_null=False) is None
    assert plain_changes(value, [], absent_is_null=True) == {
        (2, "x", Decimal("1.00"), *[None] * 4): 1
    }
    gone = wrapped(event("d", before={"id": 5}))
    assert plain_change(gone, absent_is_null=False) == ((5,), None)
    assert plain_change(wrapped(event("u", after=NULLS)), absent_is_null=False) == ((2,), NULL)
