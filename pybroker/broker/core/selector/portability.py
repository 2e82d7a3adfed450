"""Selectors that are valid here, and that ActiveMQ refuses.

An ActiveMQ whose store has a durable subscription with such a selector does not start. Of the differences in `selector`
these are those of the language:

| selector | in ActiveMQ |
| --- | --- |
| `größe = 1` | names have letters of ASCII alone |
| `xpath = 1` | XPATH and XQUERY are no names |
| `1.5f`, `0x1FL`, `017L` | literals without Java's suffixes, but for a decimal `1L` |
| `NOT 5 = i`, `NOT -i = 5`, `NOT (i + 1) = 6` | NOT stands before a condition or a name |
| `NOT i > 5`, `NOT i BETWEEN 1 AND 2`, `NOT s IN ('a')` | `(NOT i) > 5`: a condition is no value |

Source: ActiveMQ 5.17, `SelectorParser.jj`, `ComparisonExpression`; the same from 5.15 to 6.3.
"""

import re
from collections.abc import Sequence
from typing import Final

from pybroker.broker.core.selector.lexer import END, Token, tokenize

_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_RESERVED: Final = frozenset(("XPATH", "XQUERY"))
_EXACT: Final = re.compile(r"[1-9][0-9]*[lL]?|0[xX][0-9a-fA-F]+|0[0-9]*")
_SUFFIXES: Final = "fFdD"
_PREFIXES: Final = ("convert_string_expressions:", "hyphenated_props:")
_LITERALS: Final = frozenset(("STRING", "EXACT", "APPROXIMATE"))
_VALUES: Final = _LITERALS | {"MINUS"}
_TESTS_OF_VALUES: Final = frozenset(("ORDERING", "BETWEEN", "IN"))
_CONDITIONS: Final = frozenset(("EQUALITY", "ORDERING", "LIKE", "IN", "IS", "BETWEEN", "AND", "OR", "NOT"))
_INFIXES: Final = frozenset(("IN", "LIKE", "BETWEEN", "NULL"))
"""The keywords behind a NOT that stands between operands, or in IS NOT NULL."""


def is_refused_by_activemq(text: str) -> bool:
    """Return True if ActiveMQ refuses a selector that is valid here; of one that is not, the result means nothing."""
    for prefix in _PREFIXES:
        text = text.removeprefix(prefix)
    tokens = list(tokenize(text))
    return any(
        _is_strange(token, tokens[index + 1]) or (token.kind == "NOT" and _is_strange_not(tokens, index + 1))
        for index, token in enumerate(tokens[:-1])
    )


def _is_strange(token: Token, following: Token) -> bool:
    """Return True for a name or a literal that ActiveMQ does not read."""
    match token.kind:
        case "NAME":
            is_reserved = token.text.upper() in _RESERVED and following.kind != "STRING"
            return is_reserved or _NAME.fullmatch(token.text) is None
        case "EXACT":
            return _EXACT.fullmatch(token.text) is None
        case "APPROXIMATE":
            return token.text[-1] in _SUFFIXES
        case _:
            return False


def _is_strange_not(tokens: Sequence[Token], start: int) -> bool:
    """Return True if ActiveMQ does not read a NOT with what follows it from `start` on."""
    first = tokens[start].kind
    if first in _INFIXES or first == "NOT":
        return False  # of several NOTs the last one is looked at
    if first == "PLUS":  # which ActiveMQ leaves out
        return _is_strange_not(tokens, start + 1)
    if first in _VALUES:
        return True
    end = _end_of_group(tokens, start) if first == "LPAR" else start + 1
    kinds = {token.kind for token in tokens[start:end]}
    if first == "LPAR" and not kinds & _CONDITIONS and kinds & (_VALUES | {"PLUS", "PRODUCT"}):
        return True
    behind = tokens[end].kind
    return (tokens[end + 1].kind if behind == "NOT" else behind) in _TESTS_OF_VALUES


def _end_of_group(tokens: Sequence[Token], start: int) -> int:
    """Return the index behind the parenthesis that closes the one at `start`, or of the end."""
    depth = 0
    for index in range(start, len(tokens)):
        kind = tokens[index].kind
        depth += (kind == "LPAR") - (kind == "RPAR")
        if not depth:
            return index + 1
        if kind == END:
            break
    return len(tokens) - 1
