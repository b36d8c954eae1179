"""Records that Arrow decides on are good ones, with the values that verification's own decoder finds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from json_records import COLUMNS, GOOD, RECORDS, record

from lockstep.adapters.verify_decode import row_decoder
from lockstep.sql.circuit import SourceColumn
from lockstep_engine.kernels import alike, plain_json
from lockstep_engine.kernels.plain_json import PLAIN, PlainObject
from lockstep_engine.kernels.plain_kinds import PlainKey, PlainKeyed
from lockstep_engine.kernels.plain_values import PlainColumn

ARROW = {
    "BIGINT": pa.int64(),
    "TINYINT": pa.int8(),
    "DOUBLE": pa.float64(),
    "DECIMAL(6,2)": pa.decimal128(6, 2),
    "STRING": pa.string(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "DATE": pa.date32(),
    "BOOLEAN": pa.bool_(),
}
DECLARED = tuple(SourceColumn(name, kind) for name, kind in COLUMNS)
PLAIN_COLUMNS = tuple(PlainColumn(name, ARROW[kind], may_be_null=True) for name, kind in COLUMNS)
NULLS = {"never": (False, False), "there": (True, False), "absent": (True, True)}
"""Whether a column may be null, and whether it may be absent."""

TOKENS = [
    *("0", "-0", "1", "127", "128", "-129", "9223372036854775808", "01", "+1", "1" * 400),
    *("1.0", "1e2", "0.1", "-0.0", ".5", "5.", "1e-400", "1e400", "1e99999999", "9999.999", "12.5"),
    *("NaN", "-NaN", "Infinity", "-Infinity", "Inf", '"NaN"', '"1"', '"12.5"', "nan"),
    *(
        "true",
        "false",
        "null",
        "tru",
        "TRUE",
        '"true"',
        "{}",
        "[]",
        '{"b": [1, {"c": "}"}]}',
        "[1,]",
    ),
    *(
        '"x"',
        '""',
        r'"\u00e9"',
        '"é"',
        r'"\ud83d\ude00"',
        r'"\ud83d"',
        r'"a\nb"',
        '"a\nb"',
        r'"\q"',
    ),
    *("'x'", '"\x7f"', '"\x00"', r'"\u0000"', '"5"', '"{}"', '"a', '"}\n{"'),
    *(
        '"2026-01-02"',
        '"2026-1-2"',
        '"2026-02-30"',
        '"0000-01-01"',
        '"9999-12-31"',
        '"-2026-01-02"',
    ),
    *(
        f'"2026-01-02{time}"'
        for time in ("T03:04:05Z", " 03:04:05.678", "T03:04:05.1234567", "T24:00:00")
    ),
    *(
        f'"2026-01-02T03:04{rest}"'
        for rest in ("", ":05+02:00", ":05+02", ":05z", ":60Z", ":05ZZ", ":05 ")
    ),
]
NAMES = [*GOOD, "other", "", "ID", r"pric\u0065", r"\"", "NaN"]
AROUND = ["", "", "", "", " ", "\n", ",", "5", "{}", "x", "}", "{", "\x00", "\ufeff"]


def read_plain(values: Sequence[bytes | None], columns: Sequence[PlainColumn]) -> pa.Table:
    return plain_json.read_plain(values, PlainObject(tuple(columns)))


def read_keyed(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    columns: Sequence[PlainColumn],
    key: PlainColumn,
    *,
    is_raw: bool,
) -> list[dict[str, Any]]:
    of_key = PlainKey(PlainObject((key,)), is_raw)
    found: list[dict[str, Any]] = (
        PlainKeyed(PlainObject(tuple(columns)), of_key).read(keys, values).to_pylist()
    )
    return found


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """A good record, or one that is not quite."""
    fields = [(name, json.dumps(value)) for name, value in GOOD.items()]
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(fields)))
        field = (draw(st.sampled_from(NAMES)), draw(st.sampled_from(TOKENS)))
        fields[place : place + draw(st.integers(0, 1))] = [field]
    comma = draw(st.sampled_from([",", " ,\n"]))
    inner = comma.join(f'"{name}": {value}' for name, value in fields)
    before, after = draw(st.sampled_from(AROUND)), draw(st.sampled_from(AROUND))
    text = f"{before}{{{inner}}}{after}".encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 9)) == 0:
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(st.sampled_from([b"\xff", b"\xc3", b'"', b"}"])) + text[place:]
    return text


def plain_rows(
    values: list[bytes | None], columns: Sequence[PlainColumn] = PLAIN_COLUMNS
) -> dict[int, tuple[Any, ...]]:
    """The rows of the plain ones, by their places; instants as verification has them."""
    found = read_plain(values, columns).to_pylist()
    rows = {place: row for place, row in enumerate(found) if row.pop(PLAIN)}
    return {
        place: tuple(
            value.replace(tzinfo=None) if value and kind == "TIMESTAMP" else value
            for value, (_, kind) in zip(row.values(), COLUMNS, strict=True)
        )
        for place, row in rows.items()
    }


def test_of_every_kind_of_record_the_plain_ones() -> None:
    decode = row_decoder(DECLARED)
    undecided = set()
    for value, reason in RECORDS:
        found = plain_rows([value])
        if found:
            assert not reason
            assert found[0] == decode(value)
        elif not reason:
            undecided.add(value)
    assert undecided == {
        record() + b" \n",
        record(small=-128, price=9999.994, id=-(2**63)),
        record(price=1.005),
        record(at="2026-01-02 03:04:05.1234567+05:30"),
        record(at="2026-1-2"),
    }


@settings(max_examples=400)
@given(st.lists(texts(), min_size=1, max_size=3), st.sampled_from(list(NULLS)))
def test_a_plain_record_is_a_good_one_with_the_same_values(values: list[bytes], nulls: str) -> None:
    may_be_null, may_be_absent = NULLS[nulls]
    decode = row_decoder(
        tuple(replace(one, nullable=may_be_null) for one in DECLARED), may_be_absent
    )
    columns = tuple(
        replace(one, may_be_null=may_be_null, may_be_absent=may_be_absent) for one in PLAIN_COLUMNS
    )
    together = plain_rows(list(values), columns)
    for place, value in enumerate(values):
        alone = plain_rows([value], columns)
        for found in [*alone.values(), *([together[place]] if place in together else [])]:
            assert repr(found) == repr(decode(value)), value


KEYS = st.one_of(
    st.none(),
    st.sampled_from([b"", b"{}", b"k", b"\xff", b"\xed\xa0\x80", "é".encode(), b'{"k": "a"}']),
    st.builds(lambda token: b'{"k": %s}' % token.encode(), st.sampled_from(TOKENS)),
)


NAMES_OF_KEYED = (str(len(COLUMNS)), str(len(COLUMNS) + 1))


@settings(max_examples=200)
@given(st.lists(st.tuples(KEYS, st.one_of(st.none(), texts())), max_size=4), st.booleans())
def test_a_keyed_record_is_its_key_and_its_value(
    records: list[tuple[bytes | None, bytes | None]], is_raw: bool
) -> None:
    """Each by itself; what has no value has nothing but its key."""
    key = PlainColumn("k", pa.string(), may_be_null=False)
    decode = row_decoder((SourceColumn("k", "STRING", nullable=False),))
    keys, values = [k for k, _ in records], [v for _, v in records]
    found = read_keyed(keys, values, PLAIN_COLUMNS, key, is_raw=is_raw)
    assert len(found) == len(records)
    for row, (of_key, value) in zip(found, records, strict=True):
        is_plain, known, is_end = (row.pop(name) for name in (PLAIN, *NAMES_OF_KEYED))
        assert is_end is (value is None)
        if not is_plain:
            continue
        if is_raw:
            assert of_key is not None
            assert known == of_key.decode()
        else:
            assert decode(of_key) == (known,)
        if value is None:
            assert set(row.values()) == {None}
        else:
            assert read_plain([value], PLAIN_COLUMNS).to_pylist() == [{**row, PLAIN: True}]


def test_keys_that_are_texts_and_keys_that_are_none() -> None:
    key = PlainColumn("k", pa.string(), may_be_null=False)
    column = PlainColumn("a", pa.int32(), may_be_null=False)
    value = b'{"a": 1}'
    keys, values = [b"x", b"y", None, b"\xff"], [value, None, value, value]
    assert read_keyed(keys, values, [column], key, is_raw=True) == [
        {"0": 1, "1": "x", "2": False, PLAIN: True},
        {"0": None, "1": "y", "2": True, PLAIN: True},
        {"0": 1, "1": None, "2": False, PLAIN: False},
        {"0": 1, "1": None, "2": False, PLAIN: False},
    ]
    [found] = read_keyed([b"x"], [value], [column], key, is_raw=True)
    assert found == {"0": 1, "1": "x", "2": False, PLAIN: True}
    assert not read_keyed([], [], [column], key, is_raw=True)


def test_what_cannot_be_parsed_takes_few_others_with_it() -> None:
    values = [record(id=number) for number in range(5000)]
    values[1234] = record(id="1234")
    values[4000] = b'{"id": \xff'
    found = plain_rows(list(values))
    assert len(values) - 200 < len(found) < len(values)
    assert 1234 not in found
    assert all(row[0] == place for place, row in found.items())


@pytest.mark.parametrize("wanted", [{0, 4}, {0, 1, 2, 3}, set()])
def test_what_is_not_wanted_is_looked_at_all_the_same(wanted: set[int]) -> None:
    values = [value for value, _ in RECORDS]
    values += [record(id=number, name=name) for number in range(100) for name in ("n", "m", None)]
    content = PlainObject(PLAIN_COLUMNS)
    for some in (values, values[-300:], [record(id=number) for number in range(100)]):
        whole = plain_json.read_plain(some, content)
        found = plain_json.read_plain(some, content.only(wanted))
        assert found[PLAIN] == whole[PLAIN]
        is_plain = plain_json.plain_of(whole)
        for place in map(str, wanted):
            assert found[place].filter(is_plain) == whole[place].filter(is_plain)


def test_few_that_are_written_otherwise_stay_in_their_places() -> None:
    """Most are taken at once, others by Arrow, and some by nobody."""
    alike._known.cache_clear()
    values = [record(id=number, name="n" * (number % 7)) for number in range(3000)]
    for place in range(0, 3000, 60):
        values[place] = record(id=place, name='a"b')
        values[place + 1] = json.dumps(
            {"name": "last", **json.loads(record(id=place + 1))}
        ).encode()
    found = plain_rows(list(values))
    assert [row[0] for _, row in sorted(found.items())] == [*range(3000)]
    assert (found[60][4], found[61][4], found[44][4]) == ('a"b', "n", "nn")
    values[77] = record(id="77")
    missing = {*range(3000)} - plain_rows(list(values)).keys()
    assert 77 in missing
    assert all(place == 77 or place % 60 < 2 for place in missing), "others are not parsed with it"
    values[77] = record(id=77, day="2026-02-30")
    found = plain_rows(list(values))
    assert 77 not in found
    assert len(found) >= len(values) - 100
    assert all(row[0] == place for place, row in found.items())


def test_records_that_could_be_taken_for_others() -> None:
    """One that holds two objects, beside others that hold none."""
    two = record() + b"\n" + record()
    assert plain_rows([two, b"", b"{}"]) == {}
    assert plain_rows([two]) == {}
    assert plain_rows([b'{"other": [{}', b"{}]}"]) == {}


def test_what_is_too_much_for_sparks_parser_is_undecided() -> None:
    other = '{"other": %s, ' + record().decode()[1:]
    deep, long = "[" * 1001 + "]" * 1001, "1" * 1001
    fine = (other % ('"' + "x" * 4000 + '"')).encode()
    for value in (deep, long, '"' + "x" * 40_000 + '"'):
        much = (other % value).encode()
        assert plain_rows([much]) == {}
        assert plain_rows([b"1" * 600, fine, much, record(), fine]).keys() == {1, 3, 4}
        assert plain_rows([fine, much]).keys() == {0}
    assert plain_rows([fine, fine, record(), fine]).keys() == {0, 1, 2, 3}
    digits = " ".join(["1" * 999] * 30)
    assert len(plain_rows([(other % f'"{digits}"').encode()] * 2_000)) == 2_000


def test_a_negative_zero_that_is_written_whole_is_undecided() -> None:
    column = PlainColumn("a", pa.float64(), may_be_null=True, may_be_absent=True)
    values = [b'{"a": -0}', b'{"a": -0.0}', b'{"a": 0}', b'{"a": null}', b'{"a": -1e-5}']
    found = read_plain(values, [column]).to_pylist()
    assert [row[PLAIN] for row in found] == [False, False, True, True, True]


def test_columns_that_may_be_absent() -> None:
    column = PlainColumn("a", pa.int32(), may_be_null=True, may_be_absent=True)
    values = [b'{"a": 1}', b'{"a": null}', b'{"b": 2}', None]
    found = read_plain(values, [column]).to_pylist()
    assert found == [
        {"0": 1, PLAIN: True},
        {"0": None, PLAIN: True},
        {"0": None, PLAIN: True},
        {"0": None, PLAIN: False},
    ]
    assert read_plain([], [column]).num_rows == 0


def test_columns_that_may_be_null_and_not_absent() -> None:
    """It has to be seen that they are there."""
    names = ("a", "é b", "t")
    columns = [PlainColumn(n, pa.string(), may_be_null=True) for n in names[:2]]
    columns.append(PlainColumn("t", pa.timestamp("us"), may_be_null=True))
    told = ',"é b":null, "t" :\t null'
    values = {
        '{"a":"x"%s}': True,
        '{"a": null%s}': True,
        '{"a"\t:  null%s, "c": [null, 1]}': True,
        '{"c":"x"%s}': False,
        '{"c":", a"%s, "a ": null}': False,
        '{"a": null%s, "c":"\\n"}': False,
        '{"c":{"a":null}%s}': False,
        '{"a":null, "c":{}%s}': False,
        '{"A":null%s}': False,
    }
    texts = [(value % told).encode() for value in values]
    found = read_plain(texts, columns).to_pylist()
    assert [row[PLAIN] for row in found] == list(values.values())
    decode = row_decoder(
        tuple(SourceColumn(n, "TIMESTAMP" if n == "t" else "STRING") for n in names)
    )
    for text, row in zip(texts, found, strict=True):
        assert not row.pop(PLAIN) or tuple(row.values()) == decode(text)
    [row] = read_plain([texts[1].replace(b"\t", b"\n")], columns).to_pylist()
    assert not row[PLAIN]
    every = [b'{"a":null,"\xc3\xa9 b":"x","t":null}'] * 3
    assert [row[PLAIN] for row in read_plain(every, columns).to_pylist()] == [True] * 3


DECIMALS = [(6, 2), (38, 10), (38, 0), (18, 18), (2, 1), (38, 38), (1, 0)]


@pytest.mark.parametrize(("precision", "scale"), DECIMALS)
@pytest.mark.parametrize("others", [[], [b"x"]], ids=["alone", "beside what is none"])
def test_decimals_at_the_ends_of_their_types(
    precision: int, scale: int, others: list[bytes]
) -> None:
    column = PlainColumn("a", pa.decimal128(precision, scale), may_be_null=False)
    decode = row_decoder((SourceColumn("a", f"DECIMAL({precision},{scale})"),))
    whole = ["0", *(first + "9" * more for more in range(40) for first in ("1", "9"))]
    tokens = [
        f"{sign}{digits}{rest}"
        for sign in ("", "-")
        for digits in whole
        for rest in ("", ".0", ".5", ".05", f".{'0' * 37}5", "e0", "e4", "E-3")
    ]
    tokens += ["1e-41", "0e-60", "1e-10000000", "1e99999999", "0." + "0" * 200 + "1"]
    plain = 0
    for token in tokens:
        value = b'{"a": %s}' % token.encode()
        (row, *_) = read_plain([value, *others], [column]).to_pylist()
        if row[PLAIN]:
            plain += 1
            assert (row["0"],) == decode(value), token
    assert plain > 0


def test_a_decimal_in_quotes_is_undecided() -> None:
    assert plain_rows([record(price=12.5)])[0][3] == Decimal("12.50")
    quoted = record(price="12.5")
    assert plain_rows([quoted]) == {}
    assert plain_rows([quoted.replace(b"price", rb"pric\u0065")]) == {}


MOMENTS = [
    "2026-01-02T03:04:05.678Z",
    "2027-11-12 13:14:15.999Z",
    "1999-01-02T03:04:05.678Z",
    "2026-01-02T03:04:05.6789",
    "2026-01-02T03:04:0５.67Z",
    "2026-01-02T03:04:05,678Z",
    "2026-01-02T03:04:05.67aZ",
    "2026-01-02t03:04:05.678Z",
    "2026-13-02T03:04:05.678Z",
    "2026-02-30T03:04:05.678Z",
    "3026-01-02T03:04:05.678Z",
    "2026-01-02T03:04:05.67",
    "2026-01-02",
    "2026-1-002",
    "2026/01/02",
    "",
    None,
]


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()], ids=str
)
def test_times_that_look_alike_are_those_of_each_alone(kind: pa.DataType) -> None:
    column, plain = PlainColumn("a", kind, may_be_null=True), 0

    def read(*moments: str | None) -> list[dict[str, Any]]:
        values: list[bytes | None] = [json.dumps({"a": one}).encode() for one in moments]
        return read_plain(values, [column]).to_pylist()

    for first in MOMENTS:
        for other in MOMENTS:
            together = read(first, first, other, first)
            for row, moment in zip(together, (first, first, other, first), strict=True):
                [alone] = read(moment)
                # What cannot be parsed takes others with it.
                assert not row[PLAIN] or row == alone, (first, other)
                plain += row[PLAIN]
    assert plain > 100
