"""Splits the text of a selector into tokens; blanks and comments are none.

Comments and literals are read as ActiveMQ 5.17 reads them: `057` is octal, `0x1F` hexadecimal; `7.`, `.5` and `7E3` are
approximate. Two minus signs begin a comment only if their line ends, so that `1--2` is 1 - (-2).
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

END: Final = "$END"
"""The kind of the token behind the text."""

UNKNOWN: Final = "UNKNOWN"
"""The kind of a token that begins none: the rest of the text, which is not split."""

_KEYWORDS: Final = frozenset(("AND", "BETWEEN", "ESCAPE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE"))
_KEYWORD_CHARACTERS_MAX: Final = max(map(len, _KEYWORDS))

# A name is wider than a Java identifier outside ASCII; the parser looks at those characters one by one.
_TOKEN: Final = re.compile(
    r"""
      (?P<BLANK> [ \t\n\r\f]+ | /\*.*?\*/ )
    | (?P<NAME> (?:[A-Za-z_$]|[^\x00-\x7f]) (?:[A-Za-z0-9_$]|[^\x00-\x7f])*+ )
    | (?P<APPROXIMATE> (?:
          [0-9]++\.[0-9]*+(?:[eE][+-]?[0-9]+)? | \.[0-9]++(?:[eE][+-]?[0-9]+)? | [0-9]++[eE][+-]?[0-9]+
      ) [fFdD]? )
    | (?P<EXACT> (?:0[xX][0-9a-fA-F]+|[0-9]++) [lL]? )
    | (?P<STRING> '[^']*+(?:''[^']*+)*+' )
    | (?P<EQUALITY> = | <> )
    | (?P<ORDERING> [<>]=? )
    | (?P<LPAR> \( )
    | (?P<RPAR> \) )
    | (?P<COMMA> , )
    | (?P<PLUS> \+ )
    | (?P<MINUS> - )
    | (?P<PRODUCT> [*/%] )
    """,
    re.VERBOSE | re.DOTALL,
)

_LINE_END: Final = re.compile(r"[\r\n]")


class Token(NamedTuple):
    """A piece of a selector.

    Attributes:
        kind: a keyword, the name of a group of `_TOKEN`, `END` or `UNKNOWN`.
        text: as it was written.
        position: characters before it.
    """

    kind: str
    text: str
    position: int


def tokenize(text: str) -> Iterator[Token]:
    """Yield the tokens of a text. The last one is `END`, or `UNKNOWN` where no token begins."""
    match_token = _TOKEN.match
    position = line_end = 0
    while (match := match_token(text, position)) is not None:
        kind = match.lastgroup
        assert kind is not None, "every alternative has a name"
        start, position = position, match.end()
        written = match[0]
        if kind == "BLANK":
            continue
        if kind == "NAME":
            if len(written) <= _KEYWORD_CHARACTERS_MAX and (word := written.upper()) in _KEYWORDS:
                kind = word
        elif kind == "MINUS" and text.startswith("-", position):
            # Searched once for each line: thousands of minus signs must not each search for its end.
            line_end = _find_line_end(text, position) if line_end < position else line_end
            if line_end < len(text):
                position = line_end
                continue
        yield Token(kind, written, start)
    yield Token(END if position == len(text) else UNKNOWN, text[position:], position)


def _find_line_end(text: str, position: int) -> int:
    found = _LINE_END.search(text, position)
    return len(text) if found is None else found.start()
