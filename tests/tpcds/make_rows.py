"""Rows of TPC-DS, a Parquet file for each table: `make_rows.py PACKAGES FOLDER`.

PACKAGES is where DuckDB lies with the extension that makes them. It is not the DuckDB of the project,
as the extension is for one version. Tables whose size does not follow the scale are cut down to what a
small scale reads of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

SCALE = 0.01
KEPT = {
    "date_dim": "d_year BETWEEN 1997 AND 2004",
    "time_dim": "t_time_sk % 20 = 0",
    "household_demographics": "hd_demo_sk % 4 = 0",
    "customer_demographics": "cd_demo_sk IN (SELECT c_current_cdemo_sk FROM customer UNION "
    "SELECT ss_cdemo_sk FROM store_sales WHERE ss_ticket_number % 10 = 0)",
    "catalog_page": "cp_catalog_page_sk IN (SELECT cs_catalog_page_sk FROM catalog_sales)",
    "inventory": "inv_item_sk % 3 = 0",
    "store_sales": "ss_ticket_number % 2 = 0",
}
"""Conditions on the rows of large tables."""


def main(packages: str, folder: str) -> None:
    sys.path.insert(0, packages)
    import duckdb

    [extension] = Path(packages).glob("**/tpcds.duckdb_extension")
    Path(folder).mkdir(parents=True, exist_ok=True)
    with duckdb.connect() as connection:
        connection.load_extension(str(extension))
        connection.execute(f"CALL dsdgen(sf = {SCALE})")
        for (table,) in connection.execute("SHOW TABLES").fetchall():
            file = Path(folder) / f"{table}.parquet"
            rows = f"SELECT * FROM {table} WHERE {KEPT.get(table, 'true')}"
            connection.execute(f"COPY ({rows}) TO '{file}' (FORMAT parquet)")


if __name__ == "__main__":
    main(*sys.argv[1:])
