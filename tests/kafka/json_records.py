"""JSON records of every kind, good and bad ones, of one declared table."""

from __future__ import annotations

import json

COLUMNS = (
    ("id", "BIGINT"),
    ("small", "TINYINT"),
    ("ratio", "DOUBLE"),
    ("price", "DECIMAL(6,2)"),
    ("name", "STRING"),
    ("at", "TIMESTAMP"),
    ("day", "DATE"),
    ("ok", "BOOLEAN"),
)
GOOD: dict[str, object] = {
    "id": 1,
    "small": 2,
    "ratio": 0.5,
    "price": 1.25,
    "name": "n",
    "at": "2026-01-02T03:04:05.678Z",
    "day": "2026-01-02",
    "ok": True,
}


def record(**changes: object) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def without(name: str) -> bytes:
    return json.dumps({key: value for key, value in GOOD.items() if key != name}).encode()


# A record and what its reason says; the good ones say nothing.
RECORDS: list[tuple[bytes | None, str]] = [
    (record(), ""),
    (record(more={"a": [1, {"b": "}"}]}), ""),
    (record() + b" \n", ""),
    (record(name="}{"), ""),
    (record(name="5"), ""),
    (record(name="-1.5e3"), ""),
    (record(name="true"), ""),
    (record(name='{"a": 1}'), ""),
    (record(name="[1]"), ""),
    (record(name=""), ""),
    (record(name="f0e12345 \u00e9 \U0001f600 \\ ' \""), ""),
    (record(**dict.fromkeys(GOOD)), ""),
    (record(small=-128, price=9999.994, id=-(2**63)), ""),
    (record(price=7, ratio=7), ""),
    (record(price=1.005), ""),
    (record(at="2026-01-02 03:04:05"), ""),
    (record(at="2026-01-02 03:04:05.1234567+05:30"), ""),
    (record(at="2026-1-2"), ""),
    (None, "the value is null"),
    (b"", "the value is not JSON"),
    (b"   ", "the value is not JSON"),
    (b"{", "the value is not JSON"),
    (record()[:-5], "the value is not JSON"),
    (b"plain text", "the value is not JSON"),
    (record() + b"x", "the value is not JSON"),
    (record() + record(), "the value is not JSON"),
    (record() + b"}", "the value is not JSON"),
    (record().replace(b'"', b"'"), "the value is not JSON"),
    (b'{"name": "\xff\xfe"}', "the value is not UTF-8"),
    (b"[" + record() + b"]", "the value is JSON, and not an object"),
    (b"[]", "the value is JSON, and not an object"),
    (b"null", "the value is JSON, and not an object"),
    (b"17", "the value is JSON, and not an object"),
    (b'"text"', "the value is JSON, and not an object"),
    (record(id=2**63), "column id does not fit bigint: 9223372036854775808"),
    (record(id="1"), "column id does not fit bigint: 1"),
    (record(id=1.0), "column id does not fit bigint: 1.0"),
    (record(id=True), "column id does not fit bigint: true"),
    (record(small=128), "column small does not fit tinyint: 128"),
    (record(small=200), "column small does not fit tinyint: 200"),
    (record(ratio="0.5"), "column ratio does not fit double: 0.5"),
    (record(price=9999.995), "column price does not fit decimal(6,2): 9999.995"),
    (record(price="1.25"), "column price does not fit decimal(6,2): 1.25"),
    (record(price="1,25"), "column price does not fit decimal(6,2): 1,25"),
    (record(name=5), "column name does not fit string: 5"),
    (record(name=False), "column name does not fit string: false"),
    (record(name={"a": 1}), 'column name does not fit string: {"a":1}'),
    (record(name=["x"]), 'column name does not fit string: ["x"]'),
    (record(at="12:00"), "column at does not fit timestamp: 12:00"),
    (record(at="2026"), "column at does not fit timestamp: 2026"),
    (record(at=1767323045), "column at does not fit timestamp: 1767323045"),
    (record(at="2026-02-30 00:00:00"), "column at does not fit timestamp: 2026-02-30 00:00:00"),
    (record(day="2026-01"), "column day does not fit date: 2026-01"),
    (record(day="2026-01-02T00:00:00Z"), "column day does not fit date: 2026-01-02T00:00:00Z"),
    (record(day=20000), "column day does not fit date: 20000"),
    (record(ok="true"), "column ok does not fit boolean: true"),
    (record(ok=1), "column ok does not fit boolean: 1"),
    (without("name"), "column name is absent"),
    (without("at"), "column at is absent"),
    (b"{}", "column id is absent"),
]
