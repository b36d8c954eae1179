"""TPC-H as a stream: rows that come and go over intervals, and the queries as they are published.

The rows are made by `tpchgen-cli`, the queries are those of Spark's own tests, from its test jar.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lockstep.adapters.jars import jar_paths

TABLES = {
    "region": "r_regionkey BIGINT, r_name STRING, r_comment STRING",
    "nation": "n_nationkey BIGINT, n_name STRING, n_regionkey BIGINT, n_comment STRING",
    "supplier": "s_suppkey BIGINT, s_name STRING, s_address STRING, s_nationkey BIGINT, "
    "s_phone STRING, s_acctbal DECIMAL(15,2), s_comment STRING",
    "customer": "c_custkey BIGINT, c_name STRING, c_address STRING, c_nationkey BIGINT, "
    "c_phone STRING, c_acctbal DECIMAL(15,2), c_mktsegment STRING, c_comment STRING",
    "part": "p_partkey BIGINT, p_name STRING, p_mfgr STRING, p_brand STRING, p_type STRING, "
    "p_size INT, p_container STRING, p_retailprice DECIMAL(15,2), p_comment STRING",
    "partsupp": "ps_partkey BIGINT, ps_suppkey BIGINT, ps_availqty INT, "
    "ps_supplycost DECIMAL(15,2), ps_comment STRING",
    "orders": "o_orderkey BIGINT, o_custkey BIGINT, o_orderstatus STRING, "
    "o_totalprice DECIMAL(15,2), o_orderdate DATE, o_orderpriority STRING, o_clerk STRING, "
    "o_shippriority INT, o_comment STRING",
    "lineitem": "l_orderkey BIGINT, l_partkey BIGINT, l_suppkey BIGINT, l_linenumber INT, "
    "l_quantity DECIMAL(15,2), l_extendedprice DECIMAL(15,2), l_discount DECIMAL(15,2), "
    "l_tax DECIMAL(15,2), l_returnflag STRING, l_linestatus STRING, l_shipdate DATE, "
    "l_commitdate DATE, l_receiptdate DATE, l_shipinstruct STRING, l_shipmode STRING, "
    "l_comment STRING",
}
QUERIES = range(1, 23)
NEVER = 1_000_000


@cache
def query(number: int) -> str:
    """The text of a query, as published."""
    (jar,) = jar_paths("queries")
    with zipfile.ZipFile(jar) as archive:
        return archive.read(f"tpch/q{number}.sql").decode("utf-8")


@dataclass(frozen=True)
class Stream:
    """A table over time: row i is there from step `comes[i]` until step `goes[i]`."""

    rows: pa.Table
    comes: np.ndarray
    goes: np.ndarray

    def there(self, step: int) -> pa.Table:
        """The rows after a step."""
        return self.rows.filter(pa.array((self.comes <= step) & (self.goes > step)))

    def changes(self, first: int, last: int) -> pa.Table:
        """The rows that come and go in the steps first..last, with `_weight` and `_step`."""
        pieces = []
        for steps, weight in ((self.comes, 1), (self.goes, -1)):
            chosen = (steps >= first) & (steps <= last)
            piece = self.rows.filter(pa.array(chosen))
            piece = piece.append_column("_weight", pa.array(np.full(len(piece), weight, np.int64)))
            pieces.append(piece.append_column("_step", pa.array(steps[chosen].astype(np.int64))))
        return pa.concat_tables(pieces)


def streams(folder: Path, scale: float, steps: int, seed: int) -> Mapping[str, Stream]:
    """All tables: nine rows in ten come with step 0, the others later; one in ten goes again.

    The lines of an order come and go on their own: what a query means does not depend on keys.
    """
    generator = Path(sys.executable).with_name("tpchgen-cli")
    subprocess.run(
        [generator, "parquet", "-s", str(scale), "--output-dir", str(folder)],
        check=True,
        capture_output=True,
    )
    random = np.random.default_rng(seed)
    found = {}
    for name in TABLES:
        table = _plain(pq.read_table(folder / f"{name}.parquet"))
        size = len(table)
        comes = np.where(random.random(size) < 0.9, 0, random.integers(1, steps, size))
        goes = np.where(random.random(size) < 0.9, NEVER, random.integers(1, steps, size))
        goes = np.where(goes > comes, goes, NEVER)
        found[name] = Stream(table, comes, goes)
    return found


def _plain(table: pa.Table) -> pa.Table:
    """Strings as Spark takes them."""
    columns = [
        pc.cast(column, pa.string()) if pa.types.is_string_view(column.type) else column
        for column in table.columns
    ]
    return pa.table(dict(zip(table.column_names, columns, strict=True)))
