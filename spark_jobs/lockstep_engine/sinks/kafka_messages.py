"""Changes as messages: what is written to the topic for a row, by format.

changelog   `{row}` with `_weight` in it: one message a row of the outbox; the default
debezium    `{"before", "after", "op": "c" | "u" | "d", "ts_ms", "source"}`: a message a copy of a row;
            with a key, a row that replaces one of its key in the same step is one "u"
upsert      key → row, key → nothing when the row is gone: the view must have one row a key

The order within a step: what takes away before what brings, then by key and value. Nulls are written.
Timestamps have microseconds and are UTC.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lockstep.errors import WrongUse
from lockstep.sql.circuit import SinkTable
from lockstep_engine.deltas import STEP, WEIGHT, quoted

__all__ = ["MESSAGE_ORDER", "dealt", "key_columns", "messages"]

MESSAGE_ORDER = (STEP, "_order", "_key", "_value")
"""Sort by these within a shard."""

_JSON_OPTIONS = (
    "map('ignoreNullFields', 'false', "
    "'timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\", "
    "'timestampNTZFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS\")"
)


def dealt(placed: DataFrame, shards: int, partitions: int) -> DataFrame:
    """The same messages with `_shard int` and `_partition int` (-1: by key) in place of `_place`."""
    return placed.selectExpr(
        f"CAST(pmod(_place, {shards}) AS INT) AS _shard",
        STEP,
        "_order",
        f"CAST(IF(_key IS NULL, pmod(_place, {partitions}), -1) AS INT) AS _partition",
        "_key",
        "_value",
        "_twice",
        "_hash",
    )


def messages(
    changes: DataFrame, sink: SinkTable, incarnation: str, step_times: Mapping[int, int]
) -> DataFrame:
    """`_place bigint` (shard and partition are its remainders), `_step bigint`, `_order int`,
    `_key string`, `_value string` (null: deleted), `_twice boolean`: two rows of this key came in one
    step; `_hash bigint` of key and value.

    `changes`: the view's columns, `_weight`, `_step`. `step_times` in milliseconds since the epoch.
    Raises WrongUse for options that do not fit the view.
    """
    columns = [name for name in changes.columns if name not in (WEIGHT, STEP)]
    key = key_columns(sink, columns)
    kind = sink.options.get("format", "changelog").lower()
    rows = changes.selectExpr(
        f"{_json(key)} AS _key" if key else "CAST(NULL AS STRING) AS _key",
        f"{_json(columns)} AS _row",
        f"{_json([*columns, WEIGHT])} AS _weighted",
        WEIGHT,
        STEP,
    )
    match kind:
        case "changelog":
            written = rows.selectExpr(
                STEP,
                f"IF({WEIGHT} < 0, 0, 1) AS _order",
                "_key",
                "_weighted AS _value",
                "_row AS _content",
                "false AS _twice",
            )
        case "upsert":
            written = _upsert(rows)
        case "debezium":
            written = _debezium(rows, sink.name, incarnation, bool(key), step_times)
        case _:
            raise _wrong(sink, "format", "changelog, debezium or upsert", kind)
    return written.selectExpr(
        # A row and its taking back go the same way, so that a reader sees them in order.
        "xxhash64(coalesce(_key, _content)) AS _place",
        STEP,
        "_order",
        "_key",
        "_value",
        "_twice",
        "xxhash64(_key, _value) AS _hash",
    )


def key_columns(sink: SinkTable, columns: list[str]) -> list[str]:
    """The columns of option 'key' as the view writes them. Raises WrongUse."""
    by_name = {name.lower(): name for name in columns}
    names = [
        name.strip().lower() for name in sink.options.get("key", "").split(",") if name.strip()
    ]
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise _wrong(sink, "key", f"columns of {sink.view}: {', '.join(columns)}", unknown[0])
    if not names and sink.options.get("format", "changelog").lower() == "upsert":
        raise _wrong(sink, "key", f"one or more of {', '.join(columns)}", "no key")
    return [by_name[name] for name in names]


def _json(columns: list[str]) -> str:
    return f"to_json(struct({', '.join(quoted(c) for c in columns)}), {_JSON_OPTIONS})"


def _by_key(rows: DataFrame) -> DataFrame:
    """Per step and key: the row taken away, the row brought, and whether there are several."""
    return rows.groupBy(STEP, "_key").agg(
        F.expr(f"min(IF({WEIGHT} < 0, _row, NULL)) AS _before"),
        F.expr(f"min(IF({WEIGHT} > 0, _row, NULL)) AS _after"),
        F.expr(f"sum(greatest({WEIGHT}, 0L)) > 1 OR sum(least({WEIGHT}, 0L)) < -1 AS _twice"),
    )


def _upsert(rows: DataFrame) -> DataFrame:
    return _by_key(rows).selectExpr(
        STEP,
        "IF(_after IS NULL, 0, 1) AS _order",
        "_key",
        "_after AS _value",
        "_key AS _content",
        "_twice",
    )


def _debezium(
    rows: DataFrame, sink: str, incarnation: str, has_key: bool, step_times: Mapping[int, int]
) -> DataFrame:
    if has_key:
        changes = _by_key(rows)
    else:
        # Each copy of a row is an event of its own.
        copies = rows.selectExpr("*", f"explode(sequence(1, CAST(abs({WEIGHT}) AS INT))) AS _copy")
        changes = copies.selectExpr(
            STEP,
            "_key",
            f"IF({WEIGHT} < 0, _row, NULL) AS _before",
            f"IF({WEIGHT} > 0, _row, NULL) AS _after",
            "false AS _twice",
        )
    names = {"connector": "lockstep", "incarnation": incarnation, "sink": sink}
    about = json.dumps(names, separators=(",", ":"))
    source = f',"source":{about[:-1]},"step":'.replace("\\", "\\\\").replace("'", "\\'")
    value = (
        "concat('{\"before\":', coalesce(_before, 'null'), ',\"after\":', coalesce(_after, 'null'), "
        "',\"op\":\"', CASE WHEN _before IS NULL THEN 'c' WHEN _after IS NULL THEN 'd' ELSE 'u' END, "
        f"'\",\"ts_ms\":', {_time(step_times)}, '{source}', {STEP}, '}}}}')"
    )
    return changes.selectExpr(
        STEP,
        "IF(_after IS NULL, 0, 1) AS _order",
        "_key",
        f"{value} AS _value",
        "coalesce(_after, _before) AS _content",
        "_twice",
    )


def _time(step_times: Mapping[int, int]) -> str:
    if not step_times:
        return "'null'"
    entries = ", ".join(f"{step}L, {time}L" for step, time in sorted(step_times.items()))
    return f"coalesce(CAST(element_at(map({entries}), {STEP}) AS STRING), 'null')"


def _wrong(sink: SinkTable, option: str, expected: str, found: str) -> WrongUse:
    return WrongUse(
        f"sink {sink.name} has an option {option!r} that cannot be used",
        expected=expected,
        found=found,
        next_step=f"correct it at {sink.position} and deploy again",
    )
