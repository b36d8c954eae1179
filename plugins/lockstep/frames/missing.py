"""fillna, dropna and replace: they ask for a column's type, which is known where it was declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lockstep.frames.frame import Column, Frame, new_key
from lockstep.frames.literals import literal_text
from lockstep.frames.translation import Kind, Translator

__all__ = ["MISSING_KINDS"]

_FLOATING = ("FLOAT", "DOUBLE", "REAL")
_NUMBERS = (
    *("TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG", *_FLOATING),
    *("DECIMAL", "NUMERIC", "DEC"),
)


def _kind(type_: str) -> str:
    name = type_.partition("(")[0].strip().upper()
    return "NUMBER" if name in _NUMBERS else name


def _literal_kind(literal: Any) -> str:
    kind = literal.WhichOneof("literal_type")
    return {"string": "STRING", "boolean": "BOOLEAN", "null": ""}.get(kind, "NUMBER")


def _chosen(translator: Translator, frame: Frame, names: Sequence[str], what: str) -> list[Column]:
    """The columns that are named, or all. Raises NotSupported where a type is not known."""
    over = translator.over(frame)
    found = [over.column([name])[0] for name in names] or list(frame.shown)
    for one in found:
        if not one.type:
            raise translator.context.refuse(
                f"{what} of the computed column {one.name!r}, whose type is not known here,",
                f'cast it: F.col("{one.name}").cast("double"); or write F.coalesce, F.when',
            )
    return found


def _computed(frame: Frame, texts: Mapping[int, str]) -> Frame:
    columns = tuple(
        replace(one, text=texts[one.key], key=new_key(), computed=True) if one.key in texts else one
        for one in frame.shown
    )
    return frame.restore(columns)


def filled(translator: Translator, relation: Any) -> Frame:
    frame = translator.plain(translator.frame(relation.input))
    columns = _chosen(translator, frame, relation.cols, "fillna")
    values = list(relation.values)
    texts = {}
    for one, value in zip(
        columns, values * len(columns) if len(values) == 1 else values, strict=False
    ):
        if _kind(one.type) == _literal_kind(value):
            text = literal_text(value)
            given = text if _kind(one.type) != "NUMBER" else f"CAST({text} AS {one.type})"
            own = one.text
            if one.type in _FLOATING:
                own = f"nanvl({own}, CAST(NULL AS {one.type}))"
            texts[one.key] = f"coalesce({own}, {given})"
    return _computed(frame, texts)


def dropped(translator: Translator, relation: Any) -> Frame:
    frame = translator.plain(translator.frame(relation.input))
    columns = _chosen(translator, frame, relation.cols, "dropna")
    tests = [
        f"{one.text} IS NOT NULL" + (f" AND NOT isnan({one.text})" if one.type in _FLOATING else "")
        for one in columns
    ]
    least = relation.min_non_nulls if relation.HasField("min_non_nulls") else len(tests)
    if least == len(tests):
        where = tuple(tests)
    else:
        counted = " + ".join(f"CASE WHEN {one} THEN 1 ELSE 0 END" for one in tests)
        where = (f"{counted} >= {least}",)
    return replace(frame, where=(*frame.where, *where))


def replaced(translator: Translator, relation: Any) -> Frame:
    frame = translator.plain(translator.frame(relation.input))
    texts = {}
    for one in _chosen(translator, frame, relation.cols, "replace"):

        def typed(literal: Any, type_: str = one.type) -> str:
            return f"CAST({literal_text(literal)} AS {type_})"

        whens = [
            f"WHEN {typed(pair.old_value)} THEN {typed(pair.new_value)}"
            for pair in relation.replacements
            if _literal_kind(pair.old_value) == _kind(one.type)
        ]
        if whens:
            texts[one.key] = f"CASE {one.text} {' '.join(whens)} ELSE {one.text} END"
    return _computed(frame, texts)


MISSING_KINDS: Mapping[str, Kind] = {"fill_na": filled, "drop_na": dropped, "replace": replaced}
