"""The queries of Spark's own tests: what Spark answers is accepted, or refused for a reason on a list.

They come with Spark's test jar, with what Spark answered. A file is a script: its views and tables are
views and sources here. Not judged are queries over what a project cannot have (tables that are filled by
the script, variables, functions in SQL), and scripts under other settings than a pipeline's.

The list is `tests/golden/sql/spark_queries.txt`: by file how many queries are accepted, and the reasons
why others are not. GOLDEN_UPDATE=1 writes it anew (with -n 0).
"""

from __future__ import annotations

import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from sql_builders import project

from lockstep.adapters.jars import jar_paths
from lockstep.errors import ProjectError
from lockstep.sql.incremental import build_circuit

GOLDEN = Path(__file__).parents[1] / "golden" / "sql" / "spark_queries.txt"
OTHERS = re.compile(
    "nonansi|legacy|udf/|udaf|udtf|scripting|old-behavior|double-quoted|quoted|regex_column|"
    "collation|charvarchar|st-functions|view-schema|explain|describe|show|execute-immediate|"
    "session-var|sql-udf|sql-on-files|identifier-clause|typeCoercion|timezone|sketch|kll|keywords"
)
"""Scripts under other settings, about statements that are no queries, or of one sort many times over."""
PARTS = 8
_RECORD = re.compile(r"(.*?)\n-- !query schema\n(.*?)\n-- !query output\n(.*)", re.DOTALL)
_COMMENTS = re.compile(r"--[^\n]*\n|/\*.*?\*/", re.DOTALL)
_VIEW = re.compile(
    r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:GLOBAL\s+)?(?:TEMP(?:ORARY)?\s+)?VIEW\s+(?:IF NOT EXISTS\s+)?"
    r"(?P<name>[\w.`]+)(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_TABLE = re.compile(
    r"CREATE\s+TABLE\s+(?:IF NOT EXISTS\s+)?(?P<name>[\w.`]+)\s*"
    r"\((?P<columns>.*?)\)\s*(USING\s+\w+)?\s*",
    re.IGNORECASE | re.DOTALL,
)
_FILLED = re.compile(
    r"CREATE\s+TABLE\s+(?P<name>[\w.`]+)\s+(?:USING\s+\w+\s+)?AS\s+(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_DROP = re.compile(r"DROP\s+(?:VIEW|TABLE)\s+(?:IF\s+EXISTS\s+)?(?P<name>[\w.`]+)", re.IGNORECASE)
_QUERY = re.compile(r"\(*\s*(SELECT|WITH|VALUES|FROM|TABLE)\b", re.IGNORECASE)
_LENGTHS = re.compile(r"\b(VAR)?CHAR\s*\(\s*\d+\s*\)", re.IGNORECASE)
_NOT_JUDGED = ("there is no table or view", "there is no column 'v1'")


@cache
def scripts() -> dict[str, str]:
    """What Spark answered, by the script's name."""
    [jar] = jar_paths("queries")
    with zipfile.ZipFile(jar) as archive:
        names = [n for n in archive.namelist() if n.startswith("sql-tests/results/")]
        return {
            name.removeprefix("sql-tests/results/").removesuffix(".sql.out"): archive.read(
                name
            ).decode()
            for name in sorted(names)
            if name.endswith(".sql.out") and not OTHERS.search(name)
        }


def answered(script: str) -> Iterator[str]:
    """The statements that Spark did not refuse."""
    for block in script.split("-- !query\n")[1:]:
        record = _RECORD.match(block)
        if record is not None and not re.search(r"(Exception|Error)\b", record[3].split("\n")[0]):
            yield _COMMENTS.sub(" ", record[1] + "\n").strip().rstrip(";")


class Script:
    """The views and tables that a script has made so far."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[bool, str]] = {}
        """By name whether it is a source, and the statement."""
        self.accepted = 0
        self.refused = Counter[str]()

    def take(self, statement: str) -> None:
        if match := _DROP.match(statement):
            self._made.pop(_plain(match), None)
        elif match := _VIEW.match(statement) or _FILLED.match(statement):
            self._make(_plain(match), match["rest"])
        elif match := _TABLE.fullmatch(statement):
            columns = _LENGTHS.sub("STRING", match["columns"])
            name = _plain(match)
            options = f"OPTIONS ('table' = 'o.{name}')"
            self._try(name, True, f"CREATE TABLE {name} ({columns}) USING iceberg {options};\n")
        elif _QUERY.match(statement):
            self._judge(statement)

    def _make(self, name: str, rest: str) -> None:
        if not re.match(r"\s*(\(|AS\b)", rest, re.IGNORECASE):
            rest = f" AS {rest}"
        lists = ["", *(_names(count) for count in range(1, 7))]
        for names in lists:  # Spark makes up names, in temporary views, which are not written then
            if self._try(name, False, f"CREATE TEMPORARY VIEW {name}{names}{rest};\n"):
                return

    def _try(self, name: str, is_source: bool, statement: str) -> bool:
        before = dict(self._made)
        self._made.pop(name, None)
        self._made[name] = is_source, statement
        try:
            # a comment is enough to have it read
            self._accept(f"SELECT 1 AS one /* {name} */")
        except ProjectError:
            self._made = before
            return False
        return True

    def _judge(self, query: str) -> None:
        try:
            self._accept(query)
        except ProjectError as error:
            reason = error.message.split(": ", 1)[1]
            if not reason.startswith(_NOT_JUDGED):
                self.refused[reason] += 1
            return
        self.accepted += 1

    def _accept(self, query: str, names: str = "") -> None:
        """With a list of names where columns have none, or the same, which is another matter."""
        named = self._named_by(query)
        made = [of for name, of in self._made.items() if name in named]
        sources = "CREATE TABLE none (a INT) USING iceberg OPTIONS ('table' = 'o.none');\n"
        sources += "".join(text for is_source, text in made if is_source)
        views = "".join(text for is_source, text in made if not is_source)
        view = f"{views}CREATE MATERIALIZED VIEW asked{names} AS {query};"
        try:
            build_circuit(project(view, sources=sources))
        except ProjectError as error:
            if not names and re.search(
                "the view asked (has|')|of the view asked has", error.message
            ):
                self._accept(query, _names(1))
            elif names and "column list" in error.message and (width := _width(error)) > 1:
                self._accept(query, _names(width))
            else:
                raise

    def _named_by(self, query: str) -> set[str]:
        """The tables and views of which the query may read, or views that it reads: a word of it says
        so. The others would be read once more with each query."""
        found, texts = set[str](), [query]
        while texts:
            words = set(re.findall(r"\w+", texts.pop().lower()))
            new = (self._made.keys() & words) - found
            found |= new
            texts += [self._made[name][1] for name in new]
        return found

    @property
    def lines(self) -> list[str]:
        """Of the golden file."""
        return [
            f"  accepted {self.accepted}",
            *(f"  refused {count}: {reason}" for reason, count in sorted(self.refused.items())),
        ]


def _plain(match: re.Match[str]) -> str:
    return match["name"].split(".")[-1].strip("`").lower()


def _width(error: ProjectError) -> int:
    """How many columns the query has, where the list of names is of another length."""
    return int((error.expected or "0").split()[0])


def _names(count: int) -> str:
    return f" ({', '.join(f'column_{place}' for place in range(count))})"


def read_golden() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    text = GOLDEN.read_text("utf-8") if GOLDEN.exists() else ""
    for line in text.splitlines():
        if line.startswith(" "):
            found[list(found)[-1]].append(line)
        else:
            found[line] = []
    return found


@pytest.mark.parametrize("part", range(PARTS))
def test_what_spark_answers_is_accepted(part: int) -> None:
    expected, found = read_golden(), dict[str, list[str]]()
    for name, text in list(scripts().items())[part::PARTS]:
        script = Script()
        for statement in answered(text):
            script.take(statement)
        if script.accepted or script.refused:
            found[name] = script.lines
    if os.environ.get("GOLDEN_UPDATE"):
        sections = sorted({**expected, **found}.items())
        GOLDEN.write_text("".join("\n".join([name, *of, ""]) for name, of in sections), "utf-8")
        return
    assert found == {name: expected.get(name) for name in found}
