"""A module is read in one go, and a function at one glance: fewer than 500 lines, and than 70."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("benchmarks", "dags", "examples", "plugins", "spark_jobs", "tests")
# A list of views, one a function, which is read by what failed.
LISTS = {ROOT / "tests/frames/corpus/transformations/views.py"}
MODULE_LINES, FUNCTION_LINES = 500, 70


def modules() -> list[Path]:
    return [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]


def functions(module: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield f"{module.relative_to(ROOT)}:{node.name}", node.end_lineno - node.lineno + 1


def test_modules_are_short() -> None:
    lines = {file: len(file.read_text().splitlines()) for file in modules() if file not in LISTS}
    assert len(lines) > 300, "the folders are where they were"
    assert {str(file): count for file, count in lines.items() if count >= MODULE_LINES} == {}


def test_functions_are_short() -> None:
    long = {name: n for file in modules() for name, n in functions(file) if n >= FUNCTION_LINES}
    assert long == {}
