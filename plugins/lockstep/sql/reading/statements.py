"""Statements of a SQL file: where each begins and ends, and what its header says.

Spark's statements for pipelines go beyond what sqlglot reads (sinks have no statement in Spark at
all), so headers are read here, token by token; the query after AS goes to the parser.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot.tokens import Token, TokenType

from lockstep.errors import NotSupported, Position, ProjectError
from lockstep.sql.circuit import (
    MADE_SUFFIX,
    PythonFunction,
    SinkTable,
    SourceColumn,
    SourceTable,
)
from lockstep.sql.reading.column_types import (
    SIMPLE_TYPES,
    NotReadableError,
    UnknownTypeError,
    read_type,
)
from lockstep.sql.reading.syntax import SourceText

__all__ = ["Statement", "ViewStatement", "read_statements", "refuse_underscore"]

_FORMS = (
    "CREATE TABLE, CREATE [TEMPORARY] VIEW, CREATE MATERIALIZED VIEW, CREATE AUDIT or CREATE SINK"
)
_WORD_TYPES_OUT = {TokenType.STRING, TokenType.NUMBER, TokenType.IDENTIFIER}


@dataclass(frozen=True)
class ViewStatement:
    """CREATE VIEW or CREATE AUDIT, its query parsed but not yet resolved. `columns` is () without a
    column list.

    `final_at` is where TBLPROPERTIES ('emit' = 'final') stands, None where it does not. `says_both`: it
    is TEMPORARY and MATERIALIZED. `comment` is None without a COMMENT, `column_comments` has those of
    the column list by name.
    """

    name: str
    published: bool
    columns: tuple[str, ...]
    query: Any
    source: SourceText
    sql: str
    position: Position
    final_at: Position | None = None
    audit: bool = False
    says_both: bool = False
    comment: str | None = None
    column_comments: Mapping[str, str] = field(default_factory=dict)


Statement = SourceTable | SinkTable | ViewStatement | PythonFunction


def refuse_underscore(name: str, owner: str, position: Position, next_step: str) -> None:
    """Raise ProjectError for a column whose name may be one of the engine's own (`_weight`, `_v0`).

    All of them begin with an underscore, and new ones may come: none is left to projects.
    """
    if name.startswith("_"):
        raise ProjectError(
            f"the column {name!r} of {owner} begins with an underscore",
            position=position,
            expected="a name without it: columns with _ are Lockstep's own",
            found=name,
            next_step=next_step,
        )


def read_statements(source: SourceText) -> Iterator[Statement]:
    """All statements of a file, in order. Raises ProjectError, NotSupported."""
    start = 0
    tokens = source.tokens
    for at, token in enumerate(tokens):
        if token.token_type is TokenType.SEMICOLON:
            if at > start:
                yield _Reader(source, tokens[start:at]).statement()
            start = at + 1
    if start < len(tokens):
        yield _Reader(source, tokens[start:]).statement()


class _Reader:
    """Reads one statement from its tokens."""

    def __init__(self, source: SourceText, tokens: Sequence[Token]) -> None:
        self.source = source
        self.tokens = tokens
        self.at = 0

    def _peek(self, ahead: int = 0) -> str:
        """The word or sign at the reader, in capitals; '' at the end and for quoted text."""
        place = self.at + ahead
        if place >= len(self.tokens) or self.tokens[place].token_type in _WORD_TYPES_OUT:
            return ""
        return self.source.words(self.tokens[place]).upper()

    def _here(self) -> Position:
        if self.at < len(self.tokens):
            return self.source.position(self.tokens[self.at].start)
        return self.source.position(self.tokens[-1].end + 1)

    def _found(self) -> str:
        if self.at < len(self.tokens):
            return self.source.words(self.tokens[self.at])
        return "the end of the statement"

    def _wrong(self, message: str, expected: str, next_step: str = "") -> ProjectError:
        return ProjectError(
            message,
            position=self._here(),
            expected=expected,
            found=self._found(),
            next_step=next_step,
        )

    def _accept(self, *words: str) -> bool:
        if all(self._peek(ahead) == word for ahead, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def _expect(self, word: str, inside: str) -> None:
        if not self._accept(word):
            raise self._wrong(f"{inside} can't be read", f"{word} here")

    def _name(self, what: str) -> str:
        if self.at < len(self.tokens):
            token = self.tokens[self.at]
            words = self.source.words(token)
            if token.token_type is TokenType.IDENTIFIER:
                self.at += 1
                return str(token.text)
            if words.replace("_", "a").isalnum() and not words[0].isdigit():
                self.at += 1
                return words
        raise self._wrong(f"{what} has no name", "a name")

    def _object_name(self, what: str) -> str:
        name = self._name(what)
        if self._peek() == ".":
            raise NotSupported(
                f"{what} can't have a qualified name",
                position=self._here(),
                found=f"{name}.…",
                next_step="write the name alone; catalog and database stand in spark-pipeline.yml",
            )
        return name

    def statement(self) -> Statement:
        position = self._here()
        if not self._accept("CREATE"):
            raise NotSupported(
                "this statement is not supported in a project",
                position=position,
                expected=_FORMS,
                found=self._found(),
                next_step="keep only declarations in the project's files",
            )
        self._accept("OR", "REFRESH") or self._accept("OR", "REPLACE")
        temporary = self._accept("TEMPORARY") or self._accept("TEMP")
        if self._accept("MATERIALIZED", "VIEW"):
            return replace(self._view(position, published=True), says_both=temporary)
        if self._accept("VIEW"):
            return self._view(position, published=not temporary)
        if not temporary and self._accept("TABLE"):
            return self._table(position)
        if not temporary and self._accept("AUDIT"):
            return replace(self._view(position, published=True), audit=True)
        if not temporary and self._accept("SINK"):
            return self._sink(position)
        if position.file.endswith(MADE_SUFFIX) and self._accept("FUNCTION"):
            return self._function(position)
        words = " ".join(filter(None, ("CREATE", self._peek(), self._peek(1))))
        raise NotSupported(
            f"{words} is not supported",
            position=position,
            expected=_FORMS,
            found=words,
            next_step="write an input as CREATE TABLE ... USING kafka or iceberg, and what is computed "
            "from it as CREATE MATERIALIZED VIEW",
        )

    def _skip_if_not_exists(self) -> None:
        self._accept("IF", "NOT", "EXISTS")

    def _comment(self) -> str | None:
        return self._string("COMMENT") if self._accept("COMMENT") else None

    def _string(self, what: str) -> str:
        if self.at < len(self.tokens) and self.tokens[self.at].token_type is TokenType.STRING:
            self.at += 1
            return str(self.tokens[self.at - 1].text)
        raise self._wrong(f"{what} can't be read", "a text in quotes")

    def _view(self, position: Position, published: bool) -> ViewStatement:
        self._skip_if_not_exists()
        name = self._object_name("a view")
        columns: list[str] = []
        comments: dict[str, str] = {}
        if self._accept("("):
            while True:
                here = self._here()
                columns.append(self._name("a column"))
                bare = columns[-1].lstrip("_") or "name"
                refuse_underscore(columns[-1], f"the view {name}", here, f"write {bare} instead")
                said = self._comment()
                if said is not None:
                    comments[columns[-1]] = said
                if not self._accept(","):
                    break
            self._expect(")", f"the column list of {name}")
        comment = self._comment()
        final_at = self._emit(name)
        if not self._accept("AS"):
            raise self._wrong(
                f"the view {name} has no query",
                "AS SELECT ...",
                "leave out clauses about storage; Lockstep makes the tables",
            )
        rest = self.tokens[self.at :]
        query = self.source.parse(rest, f"the query of {name}")
        sql = self.source.text[rest[0].start : rest[-1].end + 1]
        return ViewStatement(
            name,
            published,
            tuple(columns),
            query,
            self.source,
            sql,
            position,
            final_at,
            comment=comment,
            column_comments=comments,
        )

    def _emit(self, name: str) -> Position | None:
        """TBLPROPERTIES ('emit' = 'final'): Spark has no clause for it, but this for what it lacks."""
        if not self._accept("TBLPROPERTIES"):
            return None
        position = self._here()
        self._expect("(", f"the properties of {name}")
        properties = self._pairs(name)
        for key, value in properties.items():
            if key != "emit" or value.lower() not in ("final", "changes"):
                raise NotSupported(
                    f"{name} has a property that is not supported",
                    position=position,
                    expected="'emit' = 'final' (windows once, when they are over) or 'changes'",
                    found=f"'{key}' = '{value}'",
                    next_step="leave it out; Lockstep makes the tables",
                )
        return position if properties.get("emit", "").lower() == "final" else None

    def _table(self, position: Position) -> SourceTable:
        self._skip_if_not_exists()
        name = self._object_name("a table")
        if not self._accept("("):
            raise self._wrong(f"the source {name} declares no columns", "(column TYPE, ...)")
        columns: list[SourceColumn] = []
        while True:
            columns.append(self._column(name, {column.key for column in columns}))
            if not self._accept(","):
                break
        self._expect(")", f"the columns of {name}")
        self._comment()
        provider = self._provider(name, ("kafka", "iceberg"))
        options = self._options(name)
        self._end(name)
        return SourceTable(name, tuple(columns), provider, options, position)

    def _column(self, table: str, known: set[str]) -> SourceColumn:
        position = self._here()
        name = self._name(f"a column of {table}")
        if name.lower() in known:
            raise ProjectError(
                f"the column {name!r} of {table} is declared twice",
                position=position,
                expected="a name of its own",
                found=name,
            )
        refuse_underscore(
            name,
            table,
            position,
            "leave it out; or call it without the underscore here, and where its values come from",
        )
        type_text = self._type(table, name)
        nullable = not self._accept("NOT", "NULL")
        self._comment()
        if self._peek() not in (",", ")"):
            raise NotSupported(
                f"{self._peek() or self._found()} is not supported on the column {name!r}",
                position=self._here(),
                expected="NOT NULL, COMMENT '...', or the next column",
                found=self._found(),
            )
        return SourceColumn(name, type_text, nullable)

    def _type(self, table: str, name: str) -> str:
        at = self._here()
        start = self.tokens[self.at].start if self.at < len(self.tokens) else len(self.source.text)
        try:
            text, end = read_type(self.source.text, start)
        except UnknownTypeError as error:
            raise ProjectError(
                f"the column {name!r} of {table} has no type that Spark knows",
                position=at,
                expected=f"one of {', '.join(SIMPLE_TYPES)}",
                found=str(error),
            ) from None
        except NotReadableError as error:
            raise NotSupported(
                f"the type {error} is not supported for the column {name!r} of {table}",
                position=at,
                expected=f"one of {', '.join(SIMPLE_TYPES)}",
                found=str(error),
                next_step="declare it as STRING and cast it in a view",
            ) from None
        while self.at < len(self.tokens) and self.tokens[self.at].start < end:
            self.at += 1
        return text

    def _provider(self, name: str, supported: tuple[str, ...]) -> str:
        if not self._accept("USING"):
            raise self._wrong(f"{name} has no provider", "USING kafka OPTIONS (...)")
        provider = self._peek().lower()
        if provider not in supported:
            raise NotSupported(
                f"{name} uses a provider that is not supported",
                position=self._here(),
                expected=f"USING {' or '.join(supported)}",
                found=f"USING {self._found()}",
                next_step=f"bring the rows to where {' or '.join(supported)} reaches them",
            )
        self.at += 1
        return provider

    def _options(self, name: str) -> dict[str, str]:
        self._expect("OPTIONS", f"the declaration of {name}")
        self._expect("(", f"the options of {name}")
        return self._pairs(name)

    def _pairs(self, name: str) -> dict[str, str]:
        """`key = value, ...)`: what follows the parenthesis of OPTIONS and of TBLPROPERTIES."""
        options: dict[str, str] = {}
        while not self._accept(")"):
            position = self._here()
            key = self._option_key(name)
            if key in options:
                raise ProjectError(
                    f"the option {key!r} of {name} is given twice",
                    position=position,
                    expected="each option once",
                    found=key,
                )
            self._accept("=")
            options[key] = self._option_value(name, key)
            if not self._accept(",") and self._peek() != ")":
                raise self._wrong(f"the options of {name} can't be read", ", or )")
        return options

    def _option_key(self, name: str) -> str:
        if self.at < len(self.tokens) and self.tokens[self.at].token_type is TokenType.STRING:
            return self._string("an option").lower()
        parts = [self._name(f"an option of {name}")]
        while self._accept("."):
            parts.append(self._name(f"an option of {name}"))
        return ".".join(parts).lower()

    def _option_value(self, name: str, key: str) -> str:
        if self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token.token_type is TokenType.STRING:
                return self._string(key)
            words = self.source.words(token)
            if token.token_type is TokenType.NUMBER or words.lower() in ("true", "false"):
                self.at += 1
                return words.lower()
        raise self._wrong(
            f"the option {key!r} of {name} has no value",
            "a text in quotes, a number, true or false",
        )

    def _sink(self, position: Position) -> SinkTable:
        self._skip_if_not_exists()
        name = self._object_name("a sink")
        self._expect("FROM", f"the sink {name}")
        view = self._object_name("the view of a sink")
        provider = self._provider(name, ("kafka",))
        options = self._options(name)
        self._end(name)
        return SinkTable(name, view, provider, options, position)

    def _function(self, position: Position) -> PythonFunction:
        """Nobody writes these: they stand in what is made from Python files."""
        name = self._object_name("a function")
        self._provider(name, ("python",))
        options = self._options(name)
        self._end(name)
        returns, kind, python, command = map(
            options.__getitem__, ("returns", "kind", "python", "command")
        )
        return PythonFunction(name, returns, int(kind), python, command, position)

    def _end(self, name: str) -> None:
        if self.at < len(self.tokens):
            raise self._wrong(
                f"the declaration of {name} goes on after its end", "; or the end of the file"
            )
