"""Relations without input: tables, spark.sql, local rows, ranges."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from lockstep.frames.expressions import name_parts
from lockstep.frames.frame import Column, Frame, new_key, quoted
from lockstep.frames.literals import ddl_text, value_text
from lockstep.frames.translation import Kind, Translator
from lockstep.sql.names import closest, fresh_names

__all__ = ["LEAF_KINDS"]

ROWS = 1000
"""More local rows than these are data, which belongs into a table."""


def read(translator: Translator, relation: Any) -> Frame:
    context = translator.context
    if relation.is_streaming:
        raise context.refuse(
            "readStream", 'write spark.read.table("name"): a view follows its tables by itself'
        )
    if relation.WhichOneof("read_type") != "named_table":
        raise context.refuse(
            f"spark.read of {relation.data_source.format or 'files'}",
            "declare it in a SQL file of the project: CREATE TABLE ... USING kafka or iceberg",
        )
    if relation.named_table.options:
        raise context.refuse(
            "spark.read with options", "declare them where the table is: CREATE TABLE ... OPTIONS"
        )
    written = relation.named_table.unparsed_identifier
    table = context.tables(name_parts(written))
    if table is None:
        raise context.error(
            f"there is no table or view {written!r}",
            expected=f"one of {', '.join(closest(written, context.known))}",
            found=written,
            next_step="declare a source with CREATE TABLE in a SQL file, or correct the name",
        )
    alias = context.alias(table.name[-1])
    columns = tuple(
        Column(name, f"{quoted(alias)}.{quoted(name)}", new_key(), type_.upper(), table.name)
        for name, type_ in table.columns
    )
    name = quoted(table.name[-1])
    return Frame(name if alias == table.name[-1] else f"{name} AS {quoted(alias)}", columns)


def query(translator: Translator, relation: Any) -> Frame:
    return _query(translator, relation, "")


def _query(translator: Translator, relation: Any, before: str) -> Frame:
    context = translator.context
    if any((relation.args, relation.pos_args, relation.named_arguments, relation.pos_arguments)):
        raise context.refuse(
            "spark.sql with arguments", "write the values into the text, or as F.lit in a filter"
        )
    text = f"{before}{relation.query}"
    alias = context.alias("q")
    text, names = context.queries(text, context.position)
    inside = fresh_names(name.lower().lstrip("_") or "column" for name in names)
    renamed = f"{alias} ({', '.join(map(quoted, inside))})"
    columns = tuple(
        Column(name, f"{alias}.{quoted(own)}", new_key())
        for name, own in zip(names, inside, strict=True)
    )
    # a comment may end the text
    return Frame(f"({text}\n) AS {renamed}", columns)


def with_relations(translator: Translator, relation: Any) -> Frame:
    """DataFrames that are read by expressions (subqueries) or, by name, by spark.sql."""
    context = translator.context
    for one in relation.references:
        context.references[one.common.plan_id] = one
    if relation.root.WhichOneof("rel_type") != "sql":
        return translator.frame(relation.root)
    text, named = relation.root.sql.query, []
    for one in relation.references:
        # pyspark's own name for it is another one in each process
        name = context.alias("frame")
        text = text.replace(one.subquery_alias.alias, name)
        named.append(f"{name} AS ({translator.query(one.subquery_alias.input)})")
    if not named:
        return translator.frame(relation.root)
    inner = f"SELECT * FROM ({text}\n) AS {context.alias('q')}"
    return _query(translator, _with_text(relation.root.sql, inner), f"WITH {', '.join(named)} ")


def _with_text(relation: Any, text: str) -> Any:
    found = type(relation)()
    found.CopyFrom(relation)
    found.query = text
    return found


def local_rows(translator: Translator, relation: Any) -> Frame:
    table = pa.ipc.open_stream(relation.data).read_all() if relation.data else None
    if table is not None and table.num_rows > ROWS:
        raise translator.context.refuse(
            f"createDataFrame of {table.num_rows} rows", "put them into a table, and declare it"
        )
    if relation.schema:
        schema = StructType.fromJson(json.loads(relation.schema))
    else:
        assert table is not None
        schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=False)
    alias = translator.context.alias("q")
    names = fresh_names(one.name.lower().lstrip("_") or "column" for one in schema.fields)
    columns = tuple(
        Column(field.name, f"{alias}.{quoted(name)}", new_key(), ddl_text(field.dataType))
        for field, name in zip(schema.fields, names, strict=True)
    )
    rows = [] if table is None else list(zip(*(c.to_pylist() for c in table.columns), strict=True))
    types = [field.dataType for field in schema.fields]
    # no rows are one that is not there
    texts = [
        ", ".join(value_text(value, type_) for value, type_ in zip(row, types, strict=True))
        for row in rows or [(None,) * len(types)]
    ]
    values = ", ".join(f"({one})" for one in texts)
    listed = f"{alias} ({', '.join(map(quoted, names))})"
    frame = Frame(f"(VALUES {values}) AS {listed}", columns)
    return frame if rows else replace(frame, where=("false",))


def numbers(translator: Translator, relation: Any) -> Frame:
    alias = translator.context.alias("q")
    last = relation.end - (1 if relation.step > 0 else -1)
    steps = f"explode(sequence({relation.start}L, {last}L, {relation.step}L))"
    column = Column("id", f"{alias}.`id`", new_key(), "BIGINT")
    frame = Frame(f"{steps} AS {alias} (`id`)", (column,))
    empty = (last - relation.start) * relation.step < 0
    return replace(frame, where=("false",)) if empty else frame


LEAF_KINDS: Mapping[str, Kind] = {
    "read": read,
    "sql": query,
    "with_relations": with_relations,
    "local_relation": local_rows,
    "range": numbers,
}
