"""docs/decisions/README.md names each page, in order, by its title."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"


def test_every_decision_is_named_by_its_title() -> None:
    index = (FOLDER / "README.md").read_text("utf-8")
    titles = {
        page.name: re.sub(r"^# (\d+\. )?", "", page.read_text("utf-8").splitlines()[0])
        for page in sorted(FOLDER.glob("[0-9]*.md"))
    }
    named = re.findall(r"^- \[\d{4}\]\((\S+)\) (.*)$", index, re.MULTILINE)
    assert named == list(titles.items())
