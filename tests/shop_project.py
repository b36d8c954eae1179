"""A project folder `shop` with one file of SQL, and an installation that deploys it without a broker."""

from __future__ import annotations

from pathlib import Path

from lockstep.adapters.settings import Settings

__all__ = ["SPEC", "installed", "written"]

SPEC = """
name: shop
storage: file:///tmp/unused
catalog: lake
database: shop
libraries:
  - glob: {include: sql/**}
"""


def installed(home: Path) -> Settings:
    """An installation of which nothing is there yet but its home."""
    home.mkdir()
    return Settings.load({"LOCKSTEP_HOME": str(home), "LOCKSTEP_KAFKA": "b"})


def written(folder: Path, sql: str) -> str:
    """The folder, with that SQL in place of what it had."""
    (folder / "sql").mkdir(exist_ok=True)
    (folder / "spark-pipeline.yml").write_text(SPEC, encoding="utf-8")
    (folder / "sql" / "shop.sql").write_text(sql, encoding="utf-8")
    return str(folder)
