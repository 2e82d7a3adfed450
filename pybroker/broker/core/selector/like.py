"""LIKE patterns: `_` stands for one character, `%` for any number of them, everything else for itself.

A pattern is compiled to a regular expression without backtracking, so that no pattern takes minutes: the text after a
`%` is searched from left to right, and its first match is final (an atomic group). This finds every match, because the
text between two `%` has a fixed length, so a later match would only leave less text for the rest.
"""

import re
from collections.abc import Callable

_ANY_NUMBER = "%"
_ANY_ONE = "_"


def matcher(pattern: str, escape: str = "") -> Callable[[str], re.Match[str] | None]:
    """Return a function that matches a whole string with the pattern.

    Args:
        pattern: the text between the quotes, with `''` already made `'`.
        escape: one character that takes the special meaning from a following `_`, `%` or itself, or none. Before
            any other character it stands for itself, as in ActiveMQ.
    """
    first, *others = _pieces(pattern, escape)
    if not others:
        return re.compile(first, re.DOTALL).fullmatch
    *middle, last = others
    # The last piece ends the text: `.*` runs to the end and gives back that piece's length.
    searched = "".join(f"(?>.*?{piece})" for piece in middle if piece)
    return re.compile(f"{first}{searched}.*{last}", re.DOTALL).fullmatch


def _pieces(pattern: str, escape: str) -> list[str]:
    """Return the regular expressions of the texts between the `%`: one more than there are `%`."""
    pieces = [""]
    characters = iter(range(len(pattern)))
    for index in characters:
        character = pattern[index]
        following = pattern[index + 1 : index + 2]
        if character == escape and following and following in (_ANY_ONE, _ANY_NUMBER, escape):
            pieces[-1] += re.escape(following)
            next(characters)
        elif character == _ANY_NUMBER:
            pieces.append("")
        else:
            pieces[-1] += "." if character == _ANY_ONE else re.escape(character)
    return pieces
