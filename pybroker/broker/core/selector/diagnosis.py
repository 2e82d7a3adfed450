"""What to tell the author of a text that is not a selector: where, what was expected, and what might have been meant.

```text
expected a value, found '=' at column 5
  a = = 5
      ^
```
"""

import re
from collections.abc import Iterable
from typing import Final

from pybroker.broker.domain.errors import InvalidSelector

EXCERPT_CHARACTERS: Final = 72
"""How much of the selector is shown: the message travels in a STOMP header, and has to fit a log's line."""

_ARITHMETIC = frozenset(("MINUS", "PLUS", "PRODUCT"))
_OPERATORS = frozenset(("AND", "BETWEEN", "EQUALITY", "IN", "IS", "LIKE", "NOT", "OR", "ORDERING"))
_VALUES = frozenset(("APPROXIMATE", "EXACT", "FALSE", "LPAR", "MINUS", "NAME", "NOT", "PLUS", "STRING", "TRUE"))
_KEYWORDS = frozenset(("AND", "BETWEEN", "ESCAPE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE"))
# Begins only where a word does: tried at each letter, a long word would take quadratic time.
_LAST_WORD = re.compile(r"(?<![A-Za-z_])([A-Za-z_]++)\s*+\Z")
_NULL = re.compile(r"null\b", re.IGNORECASE)
_PHRASES = {
    "$END": "the end",
    "AND": "AND",
    "COMMA": "','",
    "ESCAPE": "ESCAPE",
    "LPAR": "'('",
    "NULL": "NULL",
    "RPAR": "')'",
    "STRING": "a string in single quotes",
}


def refusal(text: str, position: int, complaint: str) -> InvalidSelector:
    """Return the error that shows the text with a caret under the character at `position` (from 0)."""
    shown, column = _excerpt(text, position)
    return InvalidSelector(f"{complaint} at column {position + 1}\n  {shown}\n  {' ' * column}^")


def unexpected(text: str, position: int, terminals: Iterable[str]) -> InvalidSelector:
    """Return the error for a text that goes wrong at `position`, where the grammar takes one of `terminals`."""
    guess = _guess(text, position)
    if guess is None:
        guess = position, f"expected {_wanted(frozenset(terminals))}, found {_found(text, position)}"
    return refusal(text, *guess)


def _excerpt(text: str, position: int) -> tuple[str, int]:
    """Return a part of the text on one line, and the column that `position` has in it."""
    begin = max(0, min(position - EXCERPT_CHARACTERS // 2, len(text) - EXCERPT_CHARACTERS))
    end = begin + EXCERPT_CHARACTERS
    before, after = "… " if begin else "", " …" if end < len(text) else ""
    # A control character would move the caret away from what it points at, or bring a terminal into disorder.
    printable = "".join(character if character.isprintable() else " " for character in text[begin:end])
    return before + printable + after, len(before) + position - begin


def _guess(text: str, position: int) -> tuple[int, str] | None:
    """Return where and what is most likely wrong, for mistakes that the bare grammar would explain badly."""
    before = _LAST_WORD.search(text, 0, position)
    word = before[1].upper() if before else ""
    begin = before.start() if before else position
    match text[position : position + 1]:
        case "(" if word and word not in _KEYWORDS:
            return (
                begin,
                f"expected a condition, found a call of {word}: functions are ActiveMQ's extension, not supported",
            )
        case "'" if word in ("XPATH", "XQUERY"):
            return begin, f"expected a condition, found {word}: it is ActiveMQ's extension, not supported"
        case "'" if text.count("'", position) % 2:
            return position, "expected a closing quote for the string that begins"
        case '"':
            return position, "expected single quotes around a string, found a double quote"
        case "!":
            return position, "expected <> for 'is not equal', found '!'"
        case "N" | "n" if _NULL.match(text, position):
            return position, "expected IS NULL or IS NOT NULL (nothing equals NULL), found NULL"
        case _:
            return None


def _wanted(terminals: frozenset[str]) -> str:
    """Return the expected terminals in words, one of them for all that begin a value or that join two."""
    phrases: list[str] = []
    if "NAME" in terminals:
        phrases.append("a value")
        terminals -= _VALUES
    elif "OR" in terminals:
        phrases.append("an operator")
        terminals -= _OPERATORS
    # Whatever stands here, arithmetic could go on; that is not what the author has forgotten.
    terminals -= _ARITHMETIC
    return " or ".join(phrases + sorted(_PHRASES.get(terminal, terminal) for terminal in terminals))


def _found(text: str, position: int) -> str:
    if position >= len(text):
        return "the end"
    word = re.match(r"[\w$]+|<>|<=|>=|.", text[position:], re.DOTALL)
    return repr(word[0][:EXCERPT_CHARACTERS]) if word else "the end"
