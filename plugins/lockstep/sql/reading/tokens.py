"""Spark's words as tokens that sqlglot's grammar reads: what only Spark writes is told apart before it.

Tokens that are made here stand where those stood that they are made from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from sqlglot.dialects.spark import Spark
from sqlglot.tokens import Token, TokenType

__all__ = [
    "SAMPLE",
    "are_one_sign",
    "as_queries",
    "calls_of_window",
    "for_grammar",
    "is_one_text",
    "is_plain_name",
    "limit_at",
    "refused_at",
    "whole_texts",
]

PROGRAM = (
    "a program that rows go through (TRANSFORM, MAP, REDUCE)",
    "write a Python function, and declare that it is deterministic",
)
SAMPLE = ("TABLESAMPLE", "filter on a hash: `WHERE pmod(xxhash64(id), 100) < 5`")
"""What is refused, and what to write instead."""
_LIMIT = ("MAX", "RECURSION", "LEVEL")
_SIGNS = (TokenType.LT, TokenType.GT)
_WITH_TYPES = {"ARRAY", "MAP", "STRUCT"}
_OF_SETS = {TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT}
_BEHIND_SETS = {TokenType.ALL, TokenType.DISTINCT, *_OF_SETS}
_NAME_AS_TEXT = [TokenType.L_PAREN, TokenType.STRING, TokenType.R_PAREN]
_ADDED = ([TokenType.DASH], [TokenType.PLUS])
_UNIT = re.compile(
    "(year|month|week|day|hour|minute|second|millisecond|microsecond|nanosecond)s?", re.IGNORECASE
)
_NAMES = {TokenType.VAR, TokenType.IDENTIFIER}


@lru_cache(maxsize=1024)
def is_plain_name(name: str) -> bool:
    """Whether it can stand without backticks: a word of which the grammar knows nothing."""
    return name.isidentifier() and Spark().tokenize(name)[0].token_type is TokenType.VAR


def for_grammar(tokens: Sequence[Token]) -> list[Token]:
    """The tokens of a query as the grammar knows it, for those who copy words: `>>>` is another
    operator in there, and so are the signs of an interval's later parts."""
    return as_queries(_without_signs_of_parts(_without_third_signs(tokens)))


def as_queries(tokens: Sequence[Token]) -> list[Token]:
    """The tokens without what the grammar does not know, and with SELECT where Spark needs none."""
    tokens = list(_with_names(tokens))
    limits = [at for at in range(len(tokens)) if limit_at(tokens, at)]
    known = [t for at, t in enumerate(tokens) if not any(0 <= at - limit < 4 for limit in limits)]
    return list(_as_selects(known))


def _with_names(tokens: Sequence[Token]) -> Iterator[Token]:
    """`IDENTIFIER('a.b')` as the name that it says, `a.b`, in the place of the call."""
    skipped = -1
    for at, token in enumerate(tokens):
        if at <= skipped:
            continue
        kinds = [one.token_type for one in tokens[at + 1 : at + 4]]
        if token.text.upper() != "IDENTIFIER" or kinds != _NAME_AS_TEXT:
            yield token
            continue
        skipped = at + 3
        place = (token.line, token.col, token.start, tokens[skipped].end)
        for number, part in enumerate(tokens[at + 2].text.split(".")):
            if number:
                yield Token(TokenType.DOT, ".", *place)
            yield Token(TokenType.IDENTIFIER, part.strip("`"), *place)


def limit_at(tokens: Sequence[Token], at: int) -> bool:
    """Whether `MAX RECURSION LEVEL n` stands there, which sqlglot does not know."""
    words = tokens[at : at + 4]
    return len(words) == 4 and tuple(word.text.upper() for word in words[:3]) == _LIMIT


def whole_texts(sql: str, tokens: Sequence[Token]) -> list[Token]:
    """The tokens with `'it''s'` as one, which sqlglot reads as two texts beside one another."""
    whole: list[Token] = []
    for token in tokens:
        if whole and is_one_text(whole[-1], token):
            first = whole.pop()
            text = first.text + sql[token.start] + token.text
            place = (first.line, first.col, first.start, token.end)
            whole.append(Token(TokenType.STRING, text, *place))
        else:
            whole.append(token)
    return whole


def is_one_text(before: Token | None, token: Token) -> bool:
    """The second half of `'it''s'`: a space before it would leave out the quote."""
    texts = before is not None and before.token_type is token.token_type is TokenType.STRING
    return before is not None and texts and token.start == before.end + 1


def refused_at(tokens: Sequence[Token]) -> tuple[Token, str, str] | None:
    """What a query has that Spark's grammar knows and sqlglot's does not, and that no view can have: the
    first token of it, what it is, and what to write instead."""
    for token, after in pairwise(tokens):
        if token.token_type is TokenType.USING and after.token_type is TokenType.STRING:
            return after, *PROGRAM
        if token.token_type is TokenType.TABLE_SAMPLE:
            return token, *SAMPLE
    return None


def are_one_sign(before: Token | None, token: Token) -> bool:
    """The second half of `<<` or `>>`, or the third of `>>>`: with a space between they are none."""
    signs = before is not None and before.token_type is token.token_type in _SIGNS
    return before is not None and signs and token.start == before.end + 1


def calls_of_window(tokens: list[Token]) -> list[Token]:
    """`window(ts, ...)` is a call and `window` a column; only WINDOW name AS is a clause. And
    MATCH_CONDITION is one, which Spark has not."""
    for at, token in enumerate(tokens):
        clause = at + 2 < len(tokens) and tokens[at + 2].token_type is TokenType.ALIAS
        if token.token_type is TokenType.WINDOW and not clause:
            token.token_type = TokenType.VAR
        if token.text.upper() == "MATCH_CONDITION" and token.token_type is TokenType.VAR:
            token.token_type = TokenType.MATCH_CONDITION
    return tokens


def _without_third_signs(tokens: Sequence[Token]) -> list[Token]:
    """`a >>> b` as `a >> b`, which stands in the same place of the grammar."""
    kept, depth = list[Token](), 0
    for at, token in enumerate(tokens):
        of_type = at > 0 and tokens[at - 1].text.upper() in _WITH_TYPES
        depth += token.token_type is TokenType.LT and (of_type or depth > 0)
        signs = [*kept[-2:], token]
        if depth == 0 and len(signs) == 3 and all(map(are_one_sign, signs, signs[1:])):
            continue
        depth -= token.token_type is TokenType.GT and depth > 0
        kept.append(token)
    return kept


def _without_signs_of_parts(tokens: Sequence[Token]) -> list[Token]:
    """`INTERVAL 1 DAY -2 HOURS` without the sign of the second part, which would be a minus."""
    signs = set[int]()
    for at, token in enumerate(tokens):
        if token.token_type is not TokenType.INTERVAL:
            continue
        place = at + 1
        while True:
            is_signed = [one.token_type for one in tokens[place : place + 1]] in _ADDED
            number, unit = [*tokens[place + is_signed :][:2], token, token][:2]
            if number.token_type is not TokenType.NUMBER or not _UNIT.fullmatch(unit.text):
                break
            if is_signed and place > at + 1:
                signs.add(place)
            place += 2 + is_signed
    return [token for at, token in enumerate(tokens) if at not in signs]


def _as_selects(tokens: Sequence[Token]) -> Iterator[Token]:
    """`TABLE t` as a query, and VALUES before `|>`, as SELECT * FROM them; in parentheses behind UNION,
    which the grammar asks for behind `|>`."""
    closing = -1
    for at, token in enumerate(tokens):
        is_query = _is_query_at(tokens, at)
        follows = tokens[at + 1].token_type if at + 1 < len(tokens) else None
        is_table = token.token_type is TokenType.TABLE and follows in _NAMES
        is_piped = token.token_type is TokenType.VALUES and _is_piped(tokens[at:])
        place = (token.line, token.col, token.start, token.end)
        if is_query and (is_table or is_piped):
            if is_table and at > 0 and tokens[at - 1].token_type in _BEHIND_SETS:
                closing = _end_of_name(tokens, at + 1)
                yield Token(TokenType.L_PAREN, "(", *place)
            yield Token(TokenType.SELECT, "SELECT", *place)
            yield Token(TokenType.STAR, "*", *place)
            yield Token(TokenType.FROM, "FROM", *place)
        if not (is_query and is_table):
            yield token
        if at == closing:
            yield Token(TokenType.R_PAREN, ")", *place)


def _is_query_at(tokens: Sequence[Token], at: int) -> bool:
    """Whether a query can begin there: first, in parentheses that are no call's, behind those of WITH,
    or behind a set operator."""
    if at == 0:
        return True
    before, earlier = tokens[at - 1], tokens[at - 2] if at > 1 else None
    kind = earlier.token_type if earlier is not None else None
    match before.token_type:
        case TokenType.L_PAREN:
            return kind not in _NAMES
        case TokenType.R_PAREN:
            return tokens[0].token_type is TokenType.WITH
        case TokenType.ALL | TokenType.DISTINCT:
            return kind in _OF_SETS
        case _:
            return before.token_type in _OF_SETS


def _end_of_name(tokens: Sequence[Token], at: int) -> int:
    """Where `a.b.c` ends that begins there."""
    while at + 1 < len(tokens) and tokens[at + 1].token_type is TokenType.DOT:
        at += 2
    return at


def _is_piped(tokens: Sequence[Token]) -> bool:
    """Whether `|>` follows, before what the tokens stand in ends."""
    depth = 0
    for token in tokens:
        depth += token.token_type is TokenType.L_PAREN
        depth -= token.token_type is TokenType.R_PAREN
        if depth < 0:
            return False
        if depth == 0 and token.token_type is TokenType.PIPE_GT:
            return True
    return False
