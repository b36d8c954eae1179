"""Text and syntax: project files with positions, statements, and expressions that keep their words.

The law here: an expression goes to Spark in the words of the person who wrote it. sqlglot says what
the words mean (where a column is named, what is an aggregate), but its own generator is not used,
as it writes some functions in another way. So the parser below notes for each node which characters
it was read from, and `SourceText.render` copies those tokens, with some nodes replaced.

Functions are parsed as plain calls (no function table): every argument stays where it was written.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokens import Token, TokenType

from lockstep.errors import NotSupported, Position, ProjectError
from lockstep.sql.plans.terms import text_literal
from lockstep.sql.reading.pipes import PipeParser
from lockstep.sql.reading.tokens import (
    are_one_sign,
    as_queries,
    calls_of_window,
    for_grammar,
    is_one_text,
    limit_at,
    refused_at,
    whole_texts,
)
from lockstep.sql.reading.trees import (
    PLACE,
    SPAN,
    children,
    function_name,
    span_of,
)

__all__ = [
    "Replace",
    "SourceText",
    "fill_variables",
    "parse_spark",
]

Replace = Callable[[Any], str | None]
"""Gives the text that stands for a node, or None to keep the node's own words."""

_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Where the parser makes expressions: the span of a node is what the outermost of these has read.
_NOTED = (
    "_parse_column_reference",
    "_parse_column",
    "_parse_primary",
    "_parse_function",
    "_parse_lambda",
    "_parse_type",
    "_parse_unary",
    "_parse_at_time_zone",
    "_parse_factor",
    "_parse_term",
    "_parse_bitwise",
    "_parse_range",
    "_parse_comparison",
    "_parse_equality",
    "_parse_conjunction",
    "_parse_disjunction",
    "_parse_expression",
    "_parse_interval",
    "_parse_case",
    "_parse_table",
    "_parse_join",
    "_parse_lateral",
    "_parse_select",
    "_parse_set_operations",
    "_parse_order",
    "_parse_limit",
    "_parse_group",
    "_parse_cte",
)


_CALLS_WITH_GRAMMAR = {
    *("CAST", "TRY_CAST", "EXTRACT"),
    *("TRIM", "SUBSTR", "SUBSTRING", "POSITION", "OVERLAY"),
}


_OF_UNITS = {
    *("dateadd", "date_add", "timestampadd", "timeadd"),
    *("datediff", "date_diff", "timestampdiff", "timediff"),
}
_UNITS = {
    *("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFYEAR", "HOUR", "MINUTE", "SECOND"),
    *("MILLISECOND", "MICROSECOND"),
}


class _SpanParser(PipeParser):
    """Spark's grammar without a function table; nodes carry (first, last) character offsets."""

    COLON_IS_VARIANT_EXTRACT = True
    FUNCTIONS: Mapping[str, Any] = {}
    FUNCTION_PARSERS: Mapping[str, Any] = {
        name: parse
        for name, parse in SparkParser.FUNCTION_PARSERS.items()
        if name in _CALLS_WITH_GRAMMAR
    }
    NO_PAREN_FUNCTION_PARSERS: Mapping[str, Any] = {
        name: parse
        for name, parse in PipeParser.NO_PAREN_FUNCTION_PARSERS.items()
        if name in {"ANY", "CASE", "IF"}
    }

    def any_call(self, word: Any) -> Any:
        """The aggregate as a plain call."""
        return exp.Anonymous(this=word.text, expressions=self._parse_csv(self._parse_lambda))


def _noting(name: str) -> Callable[..., Any]:
    original = getattr(PipeParser, name)

    def parse(self: Any, *args: Any, **kwargs: Any) -> Any:
        first = self._curr
        node = original(self, *args, **kwargs)
        if isinstance(node, exp.Expr) and self._index > 0 and first:
            before = args[0].meta.get(SPAN) if args and isinstance(args[0], exp.Expr) else None
            start = before[0] if before else first.start
            end = self._tokens[self._index - 1].end
            if start <= end:
                node.meta[SPAN] = (start, end)
        return node

    return parse


for _name in _NOTED:
    setattr(_SpanParser, _name, _noting(_name))


def _note_units(tree: Any) -> None:
    """`timestampadd(HOUR, 1, ts)`: its first word is no column."""
    for call in list(tree.find_all(exp.Anonymous)):
        if len(call.expressions) != 3 or function_name(call) not in _OF_UNITS:
            continue
        unit = call.expressions[0]
        is_word = isinstance(unit, exp.Column) and not unit.args.get("table")
        if is_word and unit.name.upper() in _UNITS:
            word = exp.Var(this=unit.name)
            word.meta[SPAN] = span_of(unit)
            unit.replace(word)


def parse_spark(sql: str) -> Any:
    """One query with all of sqlglot's knowledge of Spark's functions, to translate it.

    Raises ParseError.
    """
    tokens = calls_of_window(whole_texts(sql, Spark().tokenize(sql)))
    tree = PipeParser(dialect=Spark()).parse(as_queries(tokens), sql)[0]
    if any(PLACE in number.meta for number in tree.find_all(exp.Literal)):
        raise ParseError("a number behind |> AGGREGATE names a column of the rows before it")
    for star in tree.find_all(exp.Star):
        if assigned := star.args.pop("assigned", None):
            star.set("replace", assigned)
    return tree


@dataclass(frozen=True)
class _Shift:
    start: int
    end: int
    original: int


def fill_variables(
    text: str, variables: Mapping[str, str], file: str
) -> tuple[str, tuple[_Shift, ...]]:
    """Replace each `${name}`; raises ProjectError on a name that is not set.

    The second value maps offsets of the new text back to offsets of `text`.
    """
    pieces: list[str] = []
    shifts: list[_Shift] = []
    length = last = 0
    for match in _VARIABLE.finditer(text):
        name = match.group(1).strip()
        if name not in variables:
            raise ProjectError(
                f"the variable {name!r} is not set",
                position=position_in(text, match.start(), file),
                expected=f"one of {', '.join(sorted(variables)) or '(none is set)'}",
                found=match.group(0),
                next_step=f"add `{name}: ...` below `configuration:` in spark-pipeline.yml",
            )
        before = text[last : match.start()]
        pieces += [before, variables[name]]
        length += len(before) + len(variables[name])
        last = match.end()
        shifts.append(_Shift(length - len(variables[name]), length, match.start()))
    pieces.append(text[last:])
    return "".join(pieces), tuple(shifts)


def position_in(text: str, offset: int, file: str) -> Position:
    """The position of a character of `text`."""
    offset = max(0, min(offset, len(text)))
    line_start = text.rfind("\n", 0, offset) + 1
    return Position(file, text.count("\n", 0, offset) + 1, offset - line_start + 1)


class SourceText:
    """One SQL file (or one expression): its text with variables filled in, its tokens, positions."""

    def __init__(self, file: str, text: str, variables: Mapping[str, str] | None = None) -> None:
        self.file = file
        self.original = text
        self.text, self._shifts = (
            fill_variables(text, variables or {}, file) if variables is not None else (text, ())
        )

    def position(self, offset: int) -> Position:
        """The position in the file as written (before variables were filled in)."""
        original = offset
        for shift in self._shifts:
            if offset < shift.start:
                break
            if offset < shift.end:
                original = shift.original
                break
            closing = self.original.index("}", shift.original) + 1
            original = closing + (offset - shift.end)
        return position_in(self.original, original, self.file)

    def position_of(self, node: Any) -> Position:
        """Where a node begins; the file's first character if that is not known."""
        while node is not None:
            span = span_of(node)
            if span:
                return self.position(span[0])
            node = node.parent
        return Position(self.file)

    @cached_property
    def tokens(self) -> list[Token]:
        """All tokens; comments are not among them. Raises ProjectError."""
        try:
            tokens = list(Spark().tokenize(self.text))
        except TokenError as error:
            raise ProjectError(
                "the text can't be read as SQL",
                position=Position(self.file),
                expected="quotes, backticks and comments that are closed",
                found=str(error).splitlines()[0],
            ) from None
        return calls_of_window(tokens)

    @cached_property
    def _starts(self) -> list[int]:
        return [token.start for token in self.tokens]

    def words(self, token: Token) -> str:
        """A token exactly as written."""
        return self.text[token.start : token.end + 1]

    def words_of(self, node: Any) -> str:
        """What a node was read from, on one line; '' if that is not known."""
        span = span_of(node)
        return " ".join(self.text[span[0] : span[1] + 1].split()) if span else ""

    def tokens_between(self, first: int, last: int) -> Sequence[Token]:
        """The tokens that begin within the characters first..last."""
        return self.tokens[bisect_left(self._starts, first) : bisect_right(self._starts, last)]

    def path_of(self, node: Any) -> str:
        """`:a.b[0]` of `v:a.b[0]`, where names in backticks would look like columns. Notes how far the
        node reaches, which the parser does not know where a cast follows."""
        head = span_of(node.this)
        assert head, "what was read has words"
        end, is_open = head[1], True
        for token in self.tokens_between(end + 1, len(self.text)):
            if token.token_type in _PATH_SIGNS:
                is_open = token.token_type in _OPENS_NAME
            elif not is_open:
                break
            else:
                is_open = False
            end = token.end
        node.meta[SPAN] = (head[0], end)
        path = self.text[head[1] + 1 : end + 1].strip()
        return re.sub(r"\.?`([^`]*)`", lambda name: f"[{text_literal(name[1])}]", path)

    def recursion_limit(self, cte: Any) -> Token | None:
        """The number in `name (columns) MAX RECURSION LEVEL number AS (...)`."""
        head, body = span_of(cte), span_of(cte.this)
        tokens = self.tokens_between(head[0], body[0]) if head and body else ()
        found = (at for at in range(len(tokens)) if limit_at(tokens, at))
        return next((tokens[at + 3] for at in found), None)

    def parse(self, tokens: Sequence[Token], what: str) -> Any:
        """Parse tokens of this text as one query or expression. Raises ProjectError."""
        at = self.position(tokens[0].start) if tokens else Position(self.file)
        if not tokens:
            raise ProjectError(
                f"{what} is empty", position=at, expected="a SELECT", found="nothing"
            )
        try:
            found = [
                tree
                for tree in _SpanParser(dialect=Spark()).parse(for_grammar(tokens), self.text)
                if tree
            ]
        except ParseError as error:
            raise self._syntax_error(error, tokens, what) from None
        except (AssertionError, AttributeError, TypeError, ValueError) as error:
            # The grammar's own errors, where something is missing that it takes for granted.
            raise self._syntax_error(ParseError(str(error)), tokens, what) from error
        if len(found) != 1:
            raise ProjectError(
                f"{what} can't be read",
                position=at,
                expected="one SELECT",
                found=self.words(tokens[0]),
            )
        _note_units(found[0])
        return found[0]

    def _syntax_error(self, error: ParseError, tokens: Sequence[Token], what: str) -> ProjectError:
        detail = error.errors[0] if error.errors else {}
        description = str(detail.get("description") or "it is not valid SQL").rstrip(".")
        highlight = str(detail.get("highlight") or "")
        near = next(
            (
                token
                for token in tokens
                if token.line == detail.get("line") and token.col == detail.get("col")
            ),
            tokens[-1],
        )
        refused = refused_at(tokens)
        if refused is not None:
            at, found, instead = refused
            return NotSupported(
                f"{found} is not supported in a view that is kept up to date",
                position=self.position(at.start),
                found=self.words(at),
                next_step=instead,
            )
        return ProjectError(
            f"{what} can't be read: {description[:1].lower()}{description[1:]}",
            position=self.position(near.start),
            expected="a query in Spark SQL",
            found=highlight or self.words(near),
            next_step="check it with `spark-pipelines dry-run`",
        )

    def render(self, node: Any, replace: Replace) -> str:
        """The words of `node` in one spacing; nodes for which `replace` gives text are replaced.

        A replaced node's own sub-nodes are not visited.
        """
        replaced: dict[int, tuple[int, str]] = {}

        def visit(part: Any) -> None:
            text = replace(part)
            if text is None:
                for child in children(part):
                    visit(child)
                return
            span = span_of(part)
            if span is None:
                raise ProjectError(
                    "an expression can't be followed word by word",
                    position=self.position_of(part),
                    found=part.sql("spark"),
                    next_step="write it in a simpler form",
                )
            replaced[span[0]] = (span[1], text)

        span = span_of(node)
        assert span is not None, f"no words known for {node!r}"
        visit(node)
        return self._join(span, replaced)

    def _join(self, span: tuple[int, int], replaced: Mapping[int, tuple[int, str]]) -> str:
        pieces: list[str] = []
        tight = True  # nothing, or something that binds the next word to itself, stands before
        done = span[0] - 1
        before: Token | None = None
        for token in self.tokens_between(*span):
            if token.start <= done:
                continue
            done, words = replaced.get(token.start, (token.end, None))
            if words is None:
                words = _spelling(self.words(token), token, before, self._follows(token))
            # two signs in a row need the space: `--` begins a comment
            signs = before is not None and before.token_type is token.token_type is TokenType.DASH
            is_one = is_one_text(before, token) or are_one_sign(before, token)
            if signs or not (tight or self._clings(token, before) or is_one):
                pieces.append(" ")
            pieces.append(words)
            tight = _binds(token, before)
            before = token
        return "".join(pieces)

    def _clings(self, token: Token, before: Token | None) -> bool:
        """True where no space stands before `token`."""
        if token.token_type in _CLOSING:
            return True
        if token.token_type not in _OPENING or before is None:
            return False
        word = self.words(before)
        name_like = before.token_type in _VALUES or _PLAIN_NAME.fullmatch(word) is not None
        return name_like and (word.lower() not in _OPERATOR_WORDS or word.lower() in _CALLED_WORDS)

    def _follows(self, token: Token) -> Token | None:
        at = bisect_right(self._starts, token.start)
        return self.tokens[at] if at < len(self.tokens) else None


_OPENS_NAME = {TokenType.COLON, TokenType.DOT, TokenType.L_BRACKET}
_PATH_SIGNS = _OPENS_NAME | {TokenType.R_BRACKET}
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.DOT}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.COMMA, TokenType.DOT}
_VALUES = {
    TokenType.R_PAREN,
    TokenType.R_BRACKET,
    TokenType.NUMBER,
    TokenType.STRING,
    TokenType.VAR,
    TokenType.IDENTIFIER,
}
_OPERATOR_WORDS = frozenset(
    (
        "and",
        "or",
        "not",
        "is",
        "null",
        "in",
        "between",
        "like",
        "ilike",
        "rlike",
        "case",
        "when",
        "then",
        "else",
        "end",
        "as",
        "distinct",
        "div",
        "true",
        "false",
        "interval",
        "escape",
        "filter",
        "where",
        "cast",
        "from",
    )
)
_CALLED_WORDS = frozenset({"cast", "filter"})


def _spelling(words: str, token: Token, before: Token | None, after: Token | None) -> str:
    """One spelling for what Spark reads alike: operator words in capitals, functions in small."""
    if before is not None and before.token_type is TokenType.DOT:
        return words
    if token.token_type in (TokenType.IDENTIFIER, TokenType.STRING):
        return words
    if words.lower() in _OPERATOR_WORDS:
        return words.upper()
    if after is not None and after.token_type is TokenType.L_PAREN and _PLAIN_NAME.fullmatch(words):
        return words.lower()
    return words


def _binds(token: Token, before: Token | None) -> bool:
    if token.token_type in _OPENING:
        return True
    sign = token.token_type in (TokenType.DASH, TokenType.PLUS, TokenType.TILDE)
    return sign and (before is None or before.token_type not in _VALUES)
