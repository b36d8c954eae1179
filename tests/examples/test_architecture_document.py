"""The tests that docs/architecture.md names are there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from lockstep.control.step_log import STEP_LOG_COLUMNS

ROOT = Path(__file__).parents[2]

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def test_the_tests_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 6
    defined = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)\(", file.read_text("utf-8"), re.MULTILINE)
    }
    assert named - defined == set()


def test_the_layers_are_those_that_are_checked() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    layers = [set(layer.split(" | ")) for layer in contracts["contracts"][0]["layers"]]
    (shown,) = re.findall(r"## Layers\n.*?```\n(.*?)```", PAGE, re.DOTALL)
    name = r"lockstep(?:\.\w+|_engine)"
    lines = re.findall(rf"^{name}(?: \| {name})*", shown, re.MULTILINE)
    assert [set(line.split(" | ")) for line in lines] == layers


def test_the_tables_of_the_step_log_are_shown_with_their_columns() -> None:
    for table, columns in STEP_LOG_COLUMNS.items():
        assert f"| `{table}` | `{columns}`" in PAGE


def test_the_words_are_explained_by_classes_that_exist() -> None:
    (section,) = re.findall(r"## Words\n(.*?)\n## ", PAGE, re.DOTALL)
    named = set(re.findall(r"\| `(\w+)` \|$", section, re.MULTILINE))
    assert len(named) > 10
    code = "".join(
        file.read_text("utf-8")
        for folder in ("plugins", "spark_jobs")
        for file in (ROOT / folder).rglob("*.py")
    )
    defined = set(re.findall(r"^(?:class )?(\w+)(?: = |\b.*:$)", code, re.MULTILINE))
    assert named - defined == set()
