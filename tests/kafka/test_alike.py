"""Objects that are taken as alike are those that Arrow's parser takes, with the values that it finds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import json as arrow_json

from lockstep_engine.kernels.alike import Objects, read_alike

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int8()),
        ("ratio", pa.float64()),
        ("price", pa.decimal128(6, 2)),
        ("name", pa.string()),
        ("ok", pa.bool_()),
        ("of", pa.struct([("id", pa.int64()), ("name", pa.string())])),
    ]
)
NUMBERS = ["0", "-0", "7", "12345678", "123456789", "-90071992547409931", "9" * 18, "9" * 19]
NUMBERS += ["01", "-", "+1", "1.", ".5", "1.5", "-0.0", "1e3", "2E-2", "1e", "128", "-128", "0x1"]
TEXTS = ['""', '"x"', '"12"', '"{}"', '"a,b:"', '"é"', '"null"', '"' + "x" * 40 + '"']
OTHERS = ["null", "true", "false", "{}", "[]", '{"id":1,"name":"y"}', '{"name":null}', "[1,2]"]
OTHERS += ['{"a":[{"id":"b"}]}', '{"id":1.5}', '["id"]', "nul", "NaN", r'"\n"', r'"\""', r'"\\"']
LIKELY = {
    "id": NUMBERS[:7],
    "small": ["0", "-128", "127"],
    "ratio": ["1.5", "2E-2", "0", "12"],
    "price": ["0.5", "9999.99", "-12", "0"],
    "name": TEXTS,
    "ok": ["true", "false"],
    "of": ['{"id":1,"name":"y"}', '{"id":-20,"name":"é"}'],
    "other": ["1", "22", '"x"', '"zzz"'],
}
ANY = [*NUMBERS, *TEXTS, *OTHERS]


def taken(texts: Sequence[bytes], schema: pa.Schema = SCHEMA) -> dict[int, dict[str, Any]]:
    """The rows of those that are taken, by their places; each once."""
    ends = np.cumsum([len(text) + 1 for text in texts]) - 1
    starts = ends - [len(text) for text in texts]
    rows = dict[int, dict[str, Any]]()
    for group in read_alike(Objects(b"\n".join(texts), starts, ends), schema):
        numbers = group.numbers.tolist()
        assert numbers == sorted(set(numbers) - rows.keys()), "in order, and of no other group"
        rows |= dict(zip(numbers, group.rows.to_pylist(), strict=True))
    return rows


def parsed(text: bytes, schema: pa.Schema = SCHEMA) -> list[dict[str, Any]]:
    """What Arrow finds in the text of one. Raises ArrowInvalid."""
    rows: list[dict[str, Any]] = arrow_json.read_json(
        pa.BufferReader(text),
        arrow_json.ReadOptions(use_threads=False),
        arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    ).to_pylist()
    return rows


def _is_utf_8(text: bytes) -> bool:
    try:
        return bool(text.decode())
    except UnicodeDecodeError:
        return False


@st.composite
def some_alike(draw: st.DrawFn) -> list[bytes]:
    """Objects of a few shapes, some of which are not quite of theirs."""
    names = st.lists(st.sampled_from([*LIKELY]), min_size=1, max_size=8, unique=True)
    shapes = draw(
        st.lists(
            st.tuples(names, st.sampled_from([("", ""), (" ", " "), ("", " ")])),
            min_size=1,
            max_size=3,
        )
    )
    texts = list[bytes]()
    for _ in range(draw(st.integers(1, 30))):
        own, (before, after) = draw(st.sampled_from(shapes))
        fields = [(name, draw(st.sampled_from(LIKELY[name]))) for name in own]
        if draw(st.integers(0, 7)) == 0:
            place = draw(st.integers(0, len(fields) - 1))
            fields[place] = (
                draw(st.sampled_from([own[0], fields[place][0]])),
                draw(st.sampled_from(ANY)),
            )
        text = (
            "{" + ("," + before).join(f'"{name}":{after}{value}' for name, value in fields) + "}"
        ).encode()
        if draw(st.integers(0, 7)) == 0:
            place = draw(st.integers(1, len(text) - 1))
            put = draw(
                st.sampled_from(
                    [b"", b'"', b",", b"}", b"{", b" ", b"0", b"x", b":", b"[", b"\xc3\xa9"]
                )
            )
            text = text[:place] + put + text[place + draw(st.integers(0, 2)) :]
        if text.startswith(b"{") and text.endswith(b"}") and _is_utf_8(text):
            texts.append(text)
    return texts or [b'{"id":1}']


@given(some_alike())
def test_what_is_taken_is_what_arrow_finds(texts: list[bytes]) -> None:
    for place, row in taken(texts).items():
        assert parsed(texts[place]) == [row], texts[place]
        assert json.loads(texts[place]), "it is JSON for others, too"


def test_what_is_written_alike_is_taken() -> None:
    texts = [
        b'{"id": %d, "name": "%s", "of": {"name": "x", "id": %d}}'
        % (number, b"n" * number, -number)
        for number in range(1000)
    ]
    assert taken(texts) == {place: parsed(text)[0] for place, text in enumerate(texts)}


def test_several_shapes_are_found() -> None:
    shapes = [
        b'{"id":%d}',
        b'{"id":%d,"name":null}',
        b'{"name":"x","id":%d}',
        b'{"id":%d,"ok":true}',
    ]
    texts = [shapes[number % 4] % number for number in range(400)]
    assert taken(texts) == {place: parsed(text)[0] for place, text in enumerate(texts)}


def test_one_that_is_like_no_other_is_left() -> None:
    texts = [b'{"id":%d}' % number for number in range(100)]
    texts[3], texts[50] = rb'{"id":3,"name":"\""}', b'{"id":50,"id":50}'
    assert taken(texts).keys() == {*range(100)} - {3, 50}


def test_where_few_are_alike_it_gives_up() -> None:
    texts = [b'{"id":%d,"n%d":1}' % (number, number) for number in range(100)]
    assert len(taken(texts)) == 1


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("field", ["id", "small", "ratio", "price", "other"])
def test_a_number_is_what_it_is_alone(field: str, number: str) -> None:
    """As the last value, and between others."""
    for text in (f'{{"{field}":{number}}}', f'{{"name":"x","{field}":{number},"ok":true}}'):
        alone = text.encode()
        likely = text.replace(number, "1").encode()
        for place, row in taken([likely, alone]).items():
            assert parsed([likely, alone][place]) == [row]
        try:
            [expected] = parsed(alone)
        except pa.ArrowInvalid:
            continue
        usual = number not in ("9" * 19, "-128", "128") and not (field == "price" and "e" in number)
        if usual and field == "id":
            assert taken([likely, alone])[1] == expected, "as most numbers are"


@pytest.mark.parametrize(
    ("likely", "other"),
    [
        (b'{"id":1,"name":"x"}', b'{"id":1,"name":"x"'),
        (b'{"id":1,"name":"x"}', b'{"id":1,"name":x"}'),
        (b'{"id":1,"name":"x"}', b'{"id":1,"name":"x","name":"x"}'),
        (b'{"id":1,"name":"x"}', b'{"id":1 ,"name":"x"}'),
        (b'{"id":1,"name":"x"}', b'{"id":1"name":,"x"}'),
        (b'{"id":1,"name":"x"}', b'{"id":,"name":"x"}'),
        (b'{"id":1,"other":2}', b'{"id":1,"other":[2]}'),
        (b'{"id":1,"other":2}', b'{"id":1,"other":2}}'),
        (b'{"id":1,"other":[2]}', b'{"id":1,"other":2]]}'),
        (b'{"name":"x"}', b'{"name":""x"}'),
        (b'{"id":1,"name":"x"}', b'{"id":1,"nome":"x"}'),
    ],
)
def test_what_is_nearly_alike_is_left(likely: bytes, other: bytes) -> None:
    found = taken([likely, other, likely])
    assert found.keys() == {0, 2} or found == {0: found[0], 1: parsed(other)[0], 2: found[0]}


@pytest.mark.parametrize(
    "text",
    [
        *(b'{"id":[1]}', b'{"name":["x"]}', b'{"of":["x"]}', b'{"id":{"id":1}}', b'{"name":1}'),
        *(b'{"of":{"id":"x"}}', b'{"id":"1"}', b'{"ok":1}', b'{"ok":"true"}', b'{"of":1}'),
        *(b'{"other":[1,2],"name":"x"}', b'{"other":NaN}', b'{"small":1e99}', b"{}"),
    ],
)
def test_what_is_of_other_types_is_left(text: bytes) -> None:
    assert taken([text] * 3) == {}


def test_no_two_schemas_share_what_is_known() -> None:
    text = b'{"id":1,"name":"x"}'
    assert taken([text], pa.schema([("id", pa.int64())])) == {0: {"id": 1}}
    assert taken([text], pa.schema([("name", pa.string())])) == {0: {"name": "x"}}
    assert taken([text], pa.schema([("name", pa.int64())])) == {}
