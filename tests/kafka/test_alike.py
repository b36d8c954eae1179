"""Objects that are taken as alike are those that Arrow's parser takes, with the values that it finds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import json as arrow_json

from lockstep_engine.kernels import alike
from lockstep_engine.kernels.alike import ROOM, Objects, only_there, read_alike

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


def objects_of(texts: Sequence[bytes]) -> Objects:
    ends = np.cumsum([len(text) + 1 for text in texts]) - 1
    return Objects(b"\n".join([*texts, ROOM]), ends - [len(text) for text in texts], ends)


def taken(
    texts: Sequence[bytes], schema: pa.Schema = SCHEMA, least: float = 0
) -> dict[int, dict[str, Any]]:
    """The rows of those that are taken, by their places, where nothing was seen before: they have the
    shape of the one in the middle. So many of them have to have it."""
    alike._known.cache_clear()
    with patch.object(alike, "LEAST_PART", least):
        found = read_alike(objects_of(texts), schema)
    if found is None:
        return {}
    numbers = found.numbers.tolist()
    assert numbers == sorted(set(numbers)), "in order, and each once"
    return dict(zip(numbers, found.rows.to_pylist(), strict=True))


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


def test_those_that_are_like_few_others_are_left() -> None:
    texts = [b'{"id":%d}' % number for number in range(100)]
    texts[3], texts[40] = rb'{"id":3,"name":"\""}', b'{"id":40,"id":40}'
    assert taken(texts, least=0.98).keys() == {*range(100)} - {3, 40}
    assert taken(texts, least=0.99) == {}


def test_where_few_are_alike_none_is_taken_for_a_while() -> None:
    alike._known.cache_clear()
    few = objects_of([b'{"id":%d,"n%d":1}' % (number, number % 2) for number in range(10)])
    all_ = objects_of([b'{"id":%d,"n":1}' % number for number in range(10)])
    assert read_alike(all_, SCHEMA) is not None
    assert read_alike(few, SCHEMA) is None
    found = [read_alike(all_, SCHEMA) is None for _ in range(alike.REST + 2)]
    assert found == [*[True] * alike.REST, False, False]
    alike._known(SCHEMA).rest = -1
    assert read_alike(all_, SCHEMA) is not None, "two threads have taken the last one"


def test_a_shape_is_looked_for_where_the_last_one_is_not() -> None:
    alike._known.cache_clear()
    for name in ("a", "b", "a"):
        texts = [b'{"id":%d,"%s":1}' % (number, name.encode()) for number in range(10)]
        found = read_alike(objects_of(texts), SCHEMA)
        assert found is not None
        assert found.rows["id"].to_pylist() == [*range(10)]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("field", ["id", "small", "ratio", "price", "other"])
def test_a_number_is_what_it_is_alone(field: str, number: str) -> None:
    """As the last value, and between others, of the shape of another one and of its own."""
    for text in (f'{{"{field}":{number}}}', f'{{"name":"x","{field}":{number},"ok":true}}'):
        one, usual = text.encode(), text.replace(number, "1").encode()
        for texts in ([one, usual], [usual, one]):
            for place, row in taken(texts).items():
                assert parsed(texts[place]) == [row]


@pytest.mark.parametrize("number", ["0", "-0", "7", "12345678", "123456789", "-90071992547409931"])
def test_usual_numbers_are_taken(number: str) -> None:
    one = b'{"id":%s,"ratio":%s,"other":%s}' % ((number.encode(),) * 3)
    texts = [one, b'{"id":1,"ratio":1,"other":1}']
    assert taken(texts) == {place: parsed(text)[0] for place, text in enumerate(texts)}


@pytest.mark.parametrize(
    ("likely", "other"),
    [
        (b'{"id":1,"name":"x"}', b'{"id":1,"name":"x"'),
        (b'{"id":1,"name":"x"}', b'{"id":1,"name":"x"}}'),
        (b'{"id":1,"name":"x"}', rb'{"id":1,"name":"\n"}'),
        (b'{"id":1,"ok":null}', b'{"id":1,"ok":nullx}'),
        (b'{"id":1,"ok":null}', b'{"id":1,"ok":truex}'),
        (b'{"id":1,"ok":true}', b'{"id":1,"ok":falsey}'),
        (b'{"small":1,"ok":true}', b'{"small":128,"ok":true}'),
        (b'{"price":1,"ok":true}', b'{"price":10000,"ok":true}'),
        (b'{"price":1,"ok":true}', b'{"price":0.125,"ok":true}'),
        (b'{"price":1,"ok":true}', b'{"price":1e2,"ok":true}'),
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
    found = taken([likely, other, likely, likely])
    assert found.keys() == {0, 2, 3}


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


def test_a_text_of_which_it_is_only_asked_whether_it_is_there() -> None:
    schema = pa.schema([SCHEMA.field("id"), only_there(SCHEMA.field("name"))])
    assert taken([b'{"id":1,"name":"x"}'], schema) == {0: {"id": 1, "name": ""}}
    assert taken([b'{"id":1,"name":null}'], schema) == {0: {"id": 1, "name": None}}
    assert taken([b'{"id":1}'], schema) == {0: {"id": 1, "name": None}}
    assert taken([b'{"id":1,"name":2}'], schema) == {}


def test_no_two_schemas_share_what_is_known() -> None:
    text = b'{"id":1,"name":"x"}'
    assert taken([text], pa.schema([("id", pa.int64())])) == {0: {"id": 1}}
    assert taken([text], pa.schema([("name", pa.string())])) == {0: {"name": "x"}}
    assert taken([text], pa.schema([("name", pa.int64())])) == {}
