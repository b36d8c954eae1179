"""`spark-pipeline.yml`: the very fields of Spark Declarative Pipelines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lockstep.errors import Position, ProjectError
from lockstep.ids import MAINTENANCE_SUFFIX
from lockstep.sql.circuit import (
    MADE_SUFFIX,
    ON_ERROR,
    PARTITION_GROUPING,
    PARTITION_MAPPER,
    PUBLISH,
    PYTHON_SUFFIX,
    ProjectFiles,
)
from lockstep.sql.names import closest

__all__ = [
    "CATALOG_PREFIX",
    "OWN_SETTINGS",
    "SPEC_FILE",
    "SQL_SUFFIX",
    "Spec",
    "check_name",
    "is_dag_id",
    "parse_spec",
    "read_project_files",
    "written_configuration",
]

SQL_SUFFIX, SCHEMA_SUFFIX = ".sql", ".avsc"
SPEC_FILE = "spark-pipeline.yml"
_SPEC_FILES = (SPEC_FILE, "spark-pipeline.yaml")
_FIELDS = ("name", "storage", "catalog", "database", "schema", "libraries", "configuration")
DEFAULT_CATALOG = "lake"
DEFAULT_DATABASE = "default"


_NO_DAG_ID = re.compile(r"[^\w.-]")
LONGEST_NAME = 250 - len(MAINTENANCE_SUFFIX)
"""An id of a DAG has at most 250 characters in Airflow, and a pipeline's second one is longer."""


@dataclass(frozen=True)
class Spec:
    """The spec, checked, but for what `check_name` looks at. `include` are the glob patterns of
    `libraries`, `name_line` is where the name stands."""

    name: str
    storage: str
    catalog: str
    database: str
    include: tuple[str, ...]
    configuration: Mapping[str, str] = field(hash=False)
    name_line: int = 1

    def variables(self, installation: Mapping[str, str]) -> dict[str, str]:
        """What `${...}` in the project's files can name. What the project says itself comes first, so
        that every process reads of what is deployed the same."""
        return {**installation, **self.configuration}


def _wrong(
    message: str, expected: str, found: str, next_step: str = "", line: int = 1
) -> ProjectError:
    return ProjectError(
        message,
        position=Position(SPEC_FILE, line),
        expected=expected,
        found=found,
        next_step=next_step,
    )


def parse_spec(text: str) -> Spec:
    """Check the spec's text. Raises ProjectError."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        at = Position(SPEC_FILE, mark.line + 1, mark.column + 1) if mark else Position(SPEC_FILE)
        raise ProjectError(
            "the spec is not valid YAML",
            position=at,
            expected="fields as `name: value`",
            found=str(error.problem),
        ) from None
    if not isinstance(data, dict):
        raise _wrong(
            "the spec has no fields", f"the fields {', '.join(_FIELDS)}", type(data).__name__
        )
    lines = {str(key.value): key.start_mark.line + 1 for key, _ in node.value} if node else {}
    for key in data:
        if key not in _FIELDS:
            raise _wrong(
                f"the spec has an unknown field {key!r}",
                f"one of {', '.join(_FIELDS)}",
                str(key),
                "settings of Lockstep stand below `configuration:`",
                lines.get(str(key), 1),
            )
    for key in ("name", "storage"):
        if not isinstance(data.get(key), str) or not data[key]:
            raise _wrong(
                f"the spec's field {key!r} is missing or is no text",
                f"{key}: <text>",
                repr(data.get(key)),
                line=lines.get(key, 1),
            )
    for key in ("catalog", "database", "schema"):
        if data.get(key) is not None and not isinstance(data[key], str):
            raise _wrong(
                f"the spec's field {key!r} is no text",
                f"{key}: <text>",
                repr(data[key]),
                line=lines[key],
            )
    return Spec(
        name=data["name"],
        storage=data["storage"],
        catalog=data.get("catalog") or DEFAULT_CATALOG,
        database=data.get("database") or data.get("schema") or DEFAULT_DATABASE,
        include=_include(data, lines.get("libraries", 1)),
        configuration=_configuration(written_configuration(text), lines.get("configuration", 1)),
        name_line=lines.get("name", 1),
    )


def is_dag_id(name: str) -> bool:
    """Whether Airflow can have a pipeline's two DAGs, and no other pipeline's stands in their place."""
    is_plain = bool(name) and not _NO_DAG_ID.search(name)
    return is_plain and len(name) <= LONGEST_NAME and not name.endswith(MAINTENANCE_SUFFIX)


def check_name(name: str, line: int = 1) -> None:
    """Raise ProjectError for a name that is no `is_dag_id`. That is asked before a pipeline is recorded
    for the first time: what was recorded when nobody asked has to be read all the same."""
    if is_dag_id(name):
        return
    signs = sorted(set(_NO_DAG_ID.findall(name)))
    found = ", ".join(map(repr, signs)) or f"{len(name)} characters"
    if not signs and name.endswith(MAINTENANCE_SUFFIX):
        found = (
            f"{MAINTENANCE_SUFFIX} at its end, as the DAG that maintains another pipeline has it"
        )
    raise _wrong(
        f"the name {name!r} cannot be that of a DAG in Airflow",
        f"up to {LONGEST_NAME} letters, digits, dots, dashes and underscores, without "
        f"{MAINTENANCE_SUFFIX} at their end",
        found,
        f"write another `name:` in {SPEC_FILE}, as shop",
        line,
    )


def _include(data: dict[str, Any], line: int) -> tuple[str, ...]:
    libraries = data.get("libraries") or []
    patterns: list[str] = []
    for entry in libraries if isinstance(libraries, list) else [libraries]:
        try:
            pattern = entry["glob"]["include"]
        except (KeyError, TypeError):
            pattern = None
        if not isinstance(pattern, str):
            raise _wrong(
                "the spec's field 'libraries' can't be read",
                "- glob: {include: transformations/**}",
                repr(entry),
                line=line,
            )
        prefix = pattern.removesuffix("/**")
        if any(sign in prefix for sign in "*?["):
            raise _wrong(
                f"the glob {pattern!r} is not one that Spark takes",
                "a file, or a folder that ends in /**",
                pattern,
                "name the folder: transformations/**",
                line,
            )
        patterns.append(pattern)
    if not patterns:
        raise _wrong(
            "the spec names no files",
            "libraries: [{glob: {include: transformations/**}}]",
            "no libraries",
            line=line,
        )
    return tuple(patterns)


OWN_PREFIX = "lockstep."
CATALOG_PREFIX = "lockstep.catalog."
"""The rest of such a key is a property of the catalog."""
OWN_SETTINGS = frozenset(
    (
        *("lockstep.interval", "lockstep.cron", "lockstep.step", "lockstep.steps_per_interval"),
        *("lockstep.rows_per_step", "lockstep.rows_per_interval", "lockstep.retain_versions"),
        *("lockstep.retain_changes", "lockstep.retain_views"),
        *("lockstep.engine", "lockstep.spark_connection", "lockstep.kafka", ON_ERROR, PUBLISH),
        *(PARTITION_MAPPER, PARTITION_GROUPING),
        *("lockstep.autoscale", "lockstep.autoscale.least_workers"),
        *("lockstep.autoscale.most_workers", "lockstep.autoscale.bytes_per_shard"),
    )
)
_CHOICES = {
    ON_ERROR: {
        "table": "rows for which an expression fails go to a table",
        "fail": "they stop the interval",
    },
    PUBLISH: {
        "interval": "all steps of an interval at its end",
        "step": "one after another",
    },
    "lockstep.autoscale": {
        "off": "nobody looks",
        "propose": "maintenance says what it would change",
        "apply": "it does",
    },
    PARTITION_GROUPING: {
        "partition": "the same number of all topics by one task",
        "source-partition": "each by a task of its own",
        "all": "all by one task",
    },
}
_MAPPER = re.compile(r"modulo|[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def written_configuration(spec: str) -> Any:
    """`configuration:` of a spec's text with its values as they stand there: `off` and `10` are no texts
    in YAML, and what it makes of them (False, a number) is not what was written.

    Raises yaml.YAMLError, AttributeError for what is no spec."""
    configuration = yaml.safe_load(spec).get("configuration") or {}
    root = yaml.compose(spec, Loader=yaml.SafeLoader)
    assert root is not None
    written = {
        key.value: value.value
        for name, block in root.value
        if name.value == "configuration" and isinstance(block, yaml.MappingNode)
        for key, value in block.value
        if isinstance(value, yaml.ScalarNode) and not value.tag.endswith(":null")
    }
    if not isinstance(configuration, dict):
        return configuration
    return {key: written.get(key, value) for key, value in configuration.items()}


def _configuration(configuration: Any, line: int) -> dict[str, str]:
    if not isinstance(configuration, dict):
        raise _wrong(
            "the spec's field 'configuration' has no keys",
            'key: "value"',
            repr(configuration),
            line=line,
        )
    for key, value in configuration.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise _wrong(
                f"the configuration of {key!r} is no text",
                "a text, a number, or true or false",
                f"{value!r} ({type(value).__name__})",
                f'write it in quotes: {key}: "{value}"',
                line,
            )
        if key.startswith(OWN_PREFIX) and not (
            key in OWN_SETTINGS or key.startswith(CATALOG_PREFIX)
        ):
            raise _wrong(
                f"the spec has an unknown setting {key!r}",
                f"one of {', '.join(closest(key, sorted(OWN_SETTINGS)))}",
                key,
                f"settings that are your own begin with something else than {OWN_PREFIX}",
                line,
            )
    for key, meanings in _CHOICES.items():
        found = configuration.get(key)
        if found is not None and found not in meanings:
            expected = " or ".join(f"{choice} ({means})" for choice, means in meanings.items())
            raise _wrong(f"the configuration of {key!r} can't be read", expected, found, line=line)
    mapper = configuration.get(PARTITION_MAPPER, "modulo")
    if not _MAPPER.fullmatch(mapper):
        raise _wrong(
            f"the configuration of {PARTITION_MAPPER!r} can't be read",
            "modulo (hash(key) % count, as Kafka's producers do it) or package.module:function",
            mapper,
            line=line,
        )
    return configuration


def read_project_files(folder: Path) -> ProjectFiles:
    """Read a project folder as text: the spec, every file that its libraries name, and schemas.

    Raises ProjectError where there is no spec, or a named file can't be read.
    """
    found = [folder / name for name in _SPEC_FILES if (folder / name).is_file()]
    if len(found) != 1:
        raise ProjectError(
            "the folder is no project" if not found else "the folder has two specs",
            position=Position(SPEC_FILE),
            expected=f"{SPEC_FILE} in {folder}",
            found=", ".join(sorted(p.name for p in folder.iterdir()))
            if folder.is_dir()
            else "no such folder",
            next_step="lockstep init DIR" if not found else f"remove {found[1].name}",
        )
    text = _text(found[0], found[0].name)
    paths: set[Path] = set()
    for pattern in parse_spec(text).include:
        matches = [folder / pattern]
        if pattern.endswith("/**"):
            matches = sorted((folder / pattern.removesuffix("/**")).rglob("*"))
        matches = [path for path in matches if path.is_file() and not path.name.startswith(".")]
        if not matches:
            raise _wrong(
                f"no file matches {pattern!r}",
                "at least one .sql or .py file",
                "nothing",
                f"write one below {folder}",
            )
        paths.update(matches)
    files = []
    for path in sorted(paths):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".pyc" or "__pycache__" in path.parts:
            continue
        if path.suffix == SCHEMA_SUFFIX:
            continue
        if path.suffix not in (SQL_SUFFIX, PYTHON_SUFFIX) or name.endswith(MADE_SUFFIX):
            raise ProjectError(
                "only SQL and Python files are read",
                position=Position(name),
                expected=f"files that end in .sql or .py (not in {MADE_SUFFIX})",
                found=path.name,
                next_step="write the view in SQL or Python, or move the file out of the library's "
                "folder",
            )
        files.append((name, _text(path, name)))
    files += [(name, _text(path, name)) for name, path in _schema_files(folder)]
    return ProjectFiles(spec=text, files=tuple(sorted(files)), folder=str(folder))


def _schema_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Avro schemas, wherever they lie: sources name them. Spark takes none in a library's folder."""
    for path in sorted(folder.rglob(f"*{SCHEMA_SUFFIX}")):
        name = path.relative_to(folder)
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            yield name.as_posix(), path


def _text(path: Path, name: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ProjectError(
            "the file is no text",
            position=Position(name),
            expected="UTF-8",
            found=f"the byte {error.object[error.start]:#04x} at offset {error.start}",
            next_step="save it as UTF-8",
        ) from None
