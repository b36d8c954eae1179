"""Avro schemas: names in full, paths, and which declared column fits which type."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lockstep.sql.sources.avro_schema import (
    AvroSchema,
    UnreadableSchemaError,
    fits_column,
    read_avro_schema,
)


def schema(*fields: tuple[str, Any], **more: Any) -> AvroSchema:
    named = [{"name": name, "type": type_} for name, type_ in fields]
    return read_avro_schema(json.dumps({"type": "record", "name": "R", "fields": named, **more}))


COLOR = {"type": "enum", "name": "Color", "symbols": ["red"]}
NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"]}, {"name": "n", "type": "int"}],
}


def test_names_are_written_out_in_full() -> None:
    found = schema(
        ("a", COLOR),
        ("b", {"type": {**COLOR, "name": "other.space.Thing"}}),
        ("c", ["null", "Color"]),
        ("d", "other.space.Thing"),
        namespace="shop",
    )
    assert list(found.names) == ["shop.R", "shop.Color", "other.space.Thing"]
    assert [one["type"] for one in found.root["fields"]][2:] == [
        ["null", "shop.Color"],
        "other.space.Thing",
    ]
    assert found.at(("c",)) == (found.names["shop.Color"], True)


def test_a_path_goes_through_records_and_nulls() -> None:
    inner = {"type": "record", "name": "In", "fields": [{"name": "x", "type": "long"}]}
    found = schema(("a", ["null", inner]), ("b", "string"))
    assert found.at(("a", "x")) == ({"type": "long"}, True)
    assert found.at(("b",)) == ({"type": "string"}, False)
    assert found.at(("a", "y")) is None
    assert found.at(("b", "x")) is None


def test_fields_that_hold_themselves_are_left_out() -> None:
    found = schema(("tree", NODE), ("a", {"type": "array", "items": "Node"}), ("n", "int"))
    assert [one["name"] for one in found.without_recursion()["fields"]] == ["n"]
    itself = schema(("next", ["null", "R"]), ("n", COLOR), ("m", "Color"))
    assert itself.without_recursion()["fields"] == [
        {"name": "n", "type": {"type": "enum", "name": "Color", "symbols": ["red"]}},
        {"name": "m", "type": "Color"},
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x", "it is no JSON"),
        ('"string"', "it is no record"),
        ('{"type": "enum", "name": "E", "symbols": []}', "it is no record"),
        ('{"type": "record", "fields": []}', "a type record has no name"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a"}]}', "is no field"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": 3}]}', "3 is no type"),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "Nope"}]}',
            "the type 'Nope' is not defined",
        ),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "map"}}]}',
            "a type map has no 'values'",
        ),
    ],
)
def test_what_is_no_schema(text: str, says: str) -> None:
    with pytest.raises(UnreadableSchemaError) as caught:
        read_avro_schema(text)
    assert says in str(caught.value)


def decimal(precision: int, scale: int) -> dict[str, object]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


@pytest.mark.parametrize(
    ("type_", "fitting", "not_fitting"),
    [
        ("int", ["TINYINT", "INT", "BIGINT", "DOUBLE"], ["FLOAT", "STRING", "DATE"]),
        ("long", ["BIGINT"], ["INT", "DOUBLE", "TIMESTAMP"]),
        ("double", ["DOUBLE"], ["FLOAT", "DECIMAL(10, 2)"]),
        (["string", "null"], ["STRING"], ["BINARY"]),
        (["string", "int"], [], ["STRING", "INT"]),
        ("null", [], ["STRING"]),
        (COLOR, ["STRING"], ["INT"]),
        ({"type": "int", "logicalType": "date"}, ["DATE"], ["INT", "TIMESTAMP"]),
        ({"type": "long", "logicalType": "timestamp-micros"}, ["TIMESTAMP"], ["TIMESTAMP_NTZ"]),
        (decimal(6, 2), ["DECIMAL(6, 2)", "DECIMAL(8, 4)"], ["DECIMAL(6, 3)", "BINARY"]),
        ({"type": "array", "items": ["null", "int"]}, ["ARRAY<BIGINT>"], ["ARRAY<DATE>", "INT"]),
        ({"type": "map", "values": "int"}, ["MAP<STRING, INT>"], ["MAP<INT, INT>"]),
    ],
)
def test_what_fits(type_: Any, fitting: list[str], not_fitting: list[str]) -> None:
    found = schema(("a", type_))
    [field] = found.root["fields"]
    for declared in (*fitting, *not_fitting):
        assert fits_column(found, field["type"], declared) is (declared in fitting), declared
