"""The commands and statements of docs/operating.md are such that Lockstep takes."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from sql_builders import SPEC

from lockstep.adapters.embedded.parts import PORTS
from lockstep.adapters.settings import Settings
from lockstep.airflow.tasks import Ask
from lockstep.cli.main import cli
from lockstep.sql.circuit import ProjectFiles
from lockstep.sql.project import parse_project

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operating.md").read_text("utf-8")
COMMANDS = re.findall(r"^\$ (lockstep .*)$", PAGE, re.MULTILINE)
IN_TABLE = re.findall(r"\| `(lockstep [a-z]+[^`]*)` \|", PAGE)
ORDERS = """
CREATE TABLE orders (id BIGINT, amount INT) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = 'b', subscribe = 'orders');
CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n FROM orders;
"""


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_is_one(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path)
    _, name, *arguments = line.split()
    command = cli.commands[name]
    if isinstance(command, click.Group):
        command = command.commands[arguments.pop(0)]
    context = command.make_context(name, arguments, parent=click.Context(cli, obj={}))
    assert context.args == []


@pytest.mark.parametrize("line", IN_TABLE)
def test_a_command_of_the_table_has_its_options(line: str) -> None:
    _, name, *arguments = line.split()
    options = {option for parameter in cli.commands[name].params for option in parameter.opts}
    assert {argument for argument in arguments if argument.startswith("--")} <= options


def test_the_commands_that_take_a_folder_are_those_that_are_named() -> None:
    (said,) = re.findall(r"The commands (.*?), and\n`doctor --rebuild`, take the folder", PAGE)
    takes = {
        name: parameter.metavar
        for name, command in cli.commands.items()
        for parameter in command.params[:1]
        if isinstance(parameter, click.Argument)
    }
    folder = [name for name, metavar in takes.items() if metavar == "DIR"]
    assert sorted(re.findall(r"`(\w+)`", said)) == sorted(folder)
    assert set(takes.values()) == {"DIR", "PIPELINE|DIR"}


def test_what_dies_of_the_stack_is_started_by_a_person() -> None:
    [row] = re.findall(r"^\| a part of the stack of `lockstep up` died.*$", PAGE, re.MULTILINE)
    assert row.endswith("| `lockstep up` |")


def test_the_page_has_commands() -> None:
    assert len(COMMANDS) > 12
    assert len(IN_TABLE) > 4


def test_the_statements_parse() -> None:
    statements = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    files = ProjectFiles(SPEC, (("sql/a.sql", ORDERS), ("sql/b.sql", "".join(statements))))
    assert [view.name for view in parse_project(files, {}).views if view.audit] == ["no_loss"]


def test_what_airflow_can_be_asked_is_all_there_is() -> None:
    (said,) = re.findall(r"parameter `ask`: (.*?)\.\n", PAGE)
    assert re.findall(r"`(\w+)`", said) == [ask.value for ask in Ask]


def test_every_setting_is_explained_with_its_default() -> None:
    shown = dict(re.findall(r"^\| `(LOCKSTEP_\w+)` \| ([^|]*)\|", PAGE, re.MULTILINE))
    known = vars(Settings.load({"LOCKSTEP_HOME": "/HOME"}))
    for name, default in known.items():
        if name != "home":
            written = default.replace("/HOME", "HOME")
            assert shown[f"LOCKSTEP_{name.upper()}"].strip(" `") == written, name
    ports = {f"LOCKSTEP_{name.upper()}_PORT": str(port.default) for name, port in PORTS.items()}
    assert dict(re.findall(r"`(LOCKSTEP_\w+_PORT)`\s\((\d+)\)", PAGE)) == ports


def test_every_variable_that_is_read_is_on_the_page() -> None:
    code = "".join(file.read_text("utf-8") for file in (ROOT / "plugins").rglob("*.py"))
    read = set(re.findall(r"\bLOCKSTEP_[A-Z][A-Z_]*[A-Z]\b", code))
    assert {name for name in read if f"`{name}`" not in PAGE} == set()
