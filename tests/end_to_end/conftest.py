"""What the tests of pipelines over tables share: a database for the tables, another for the pipeline."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from followed_shop import Shop, settings_of


@pytest.fixture
def shop(spark: Any, spark_server: Any, database: str, tmp_path: Path) -> Shop:
    """Without a table, and nothing deployed."""
    settings = settings_of(spark_server, tmp_path / "home")
    return Shop(spark, settings, database, tmp_path / "project")
