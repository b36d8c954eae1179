"""The README's session: each command is run, and prints the lines that stand below it.

Attempt ids and seconds differ from run to run, and are not compared.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from lockstep.sql.project import parse_project, read_project_files

README = Path(__file__).parents[2] / "README.md"
BIN = Path(sys.executable).parent
DIFFERS = re.compile(r"attempt [0-9a-f]{12}|\(\d+\.\d s\)")


def session() -> list[tuple[str, list[str]]]:
    """Each command of the console blocks, with the lines that are shown below it."""
    told: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", README.read_text("utf-8"), re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                told.append((line[2:], []))
            else:
                told[-1][1].append(line)
    return told


def run(command: str, folder: Path, variables: dict[str, str]) -> list[str]:
    """The lines that a command prints on either stream, in order."""
    words = command.split()
    done = subprocess.run(
        [str(BIN / words[0]), *words[1:]],
        cwd=folder,
        env={**os.environ, **variables, "PYTHONWARNINGS": "ignore"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout.splitlines()


@pytest.mark.spark
@pytest.mark.kafka
def test_session_prints_what_the_readme_shows(
    tmp_path: Path, spark_server: Any, broker: Any
) -> None:
    variables = {
        "LOCKSTEP_HOME": str(tmp_path / "home"),
        "LOCKSTEP_KAFKA": broker.bootstrap,
        "LOCKSTEP_SPARK_REMOTE": spark_server.remote,
    }
    # The session shows a fixed topic and counts its records, so no other test may use that name.
    topics = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30).topics
    assert "orders" not in topics, "another test made the topic of the README's session"
    run("lockstep init shop", tmp_path, variables)
    commands = session()
    assert len(commands) == 5
    for command, expected in commands:
        found = [DIFFERS.sub("…", line) for line in run(command, tmp_path, variables)]
        assert found == [DIFFERS.sub("…", line) for line in expected], command


def test_query_in_the_readme_is_that_of_the_project(tmp_path: Path) -> None:
    run("lockstep init shop", tmp_path, {"LOCKSTEP_HOME": str(tmp_path / "home")})
    project = parse_project(
        read_project_files(tmp_path / "shop"), {"lockstep.kafka": "127.0.0.1:9"}
    )
    (shown,) = re.findall(r"```sql\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    written = "".join(path.read_text() for path in (tmp_path / "shop").glob("**/*.sql"))
    assert shown in written
    assert [view.name for view in project.views] == ["totals"]


def test_files_that_the_readme_links_to_are_there() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README.read_text("utf-8"))
    assert links
    assert [link for link in links if not (README.parent / link).exists()] == []
