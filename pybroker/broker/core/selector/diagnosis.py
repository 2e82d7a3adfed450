"""Error messages for invalid selectors: the position of the error, what was expected there, and the likely mistake.

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
"""Characters of the selector in a message, which must fit in a STOMP header and in a line of the log."""

_ARITHMETIC = frozenset(("MINUS", "PLUS", "PRODUCT"))
_OPERATORS = frozenset(("AND", "BETWEEN", "EQUALITY", "IN", "IS", "LIKE", "NOT", "OR", "ORDERING"))
_VALUES = frozenset(("APPROXIMATE", "EXACT", "FALSE", "LPAR", "MINUS", "NAME", "NOT", "PLUS", "STRING", "TRUE"))
_KEYWORDS = frozenset(("AND", "BETWEEN", "ESCAPE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE"))
# The look-behind restricts matches to the start of a word: tried at each letter, a long word takes quadratic time.
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


def refusal(text: str, position: int, problem: str) -> InvalidSelector:
    """Return the error that shows the text with a caret under the character at `position` (from 0)."""
    shown, column = _excerpt(text, position)
    return InvalidSelector(f"{problem} at column {position + 1}\n  {shown}\n  {' ' * column}^")


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
    # A control character would move the caret to a wrong place, or confuse a terminal.
    printable = "".join(character if character.isprintable() else " " for character in text[begin:end])
    return before + printable + after, len(before) + position - begin


def _guess(text: str, position: int) -> tuple[int, str] | None:
    """Return position and message for a common mistake that the grammar alone would not explain; None for others."""
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
    """Return the expected terminals in words, with one word for all that begin a value, and one for all operators."""
    phrases: list[str] = []
    if "NAME" in terminals:
        phrases.append("a value")
        terminals -= _VALUES
    elif "OR" in terminals:
        phrases.append("an operator")
        terminals -= _OPERATORS
    # An arithmetic operator is possible nearly everywhere, and rarely the mistake.
    terminals -= _ARITHMETIC
    return " or ".join(phrases + sorted(_PHRASES.get(terminal, terminal) for terminal in terminals))


def _found(text: str, position: int) -> str:
    if position >= len(text):
        return "the end"
    word = re.match(r"[\w$]+|<>|<=|>=|.", text[position:], re.DOTALL)
    return repr(word[0][:EXCERPT_CHARACTERS]) if word else "the end"
