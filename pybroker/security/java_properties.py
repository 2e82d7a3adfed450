r"""Java's properties files, in which ActiveMQ keeps users and groups.

```text
# a comment, as is a line that begins with !
name=value          name : value          name value          a\=b\:c = d
long = continued on \
       the next line, whose leading blanks are dropped
```

Blanks before a value are dropped, those behind it stay. `\t`, `\n`, `\f`, `\r` and `\uXXXX` are characters; any other
character behind a backslash stands for itself. The last one of equal names counts. Files are ISO-8859-1.

Source: `java.util.Properties.load`; security.md, section 5.
"""

import re
from collections.abc import Iterator

from pybroker.broker.domain.errors import MalformedData

_BLANKS = " \t\f"
_CONTROLS = {"t": "\t", "n": "\n", "f": "\f", "r": "\r"}
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.|$)", re.DOTALL)
_LINE_END = re.compile(r"\r\n|\r|\n")
_NAME = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")


class MalformedProperties(MalformedData):
    """A line that does not parse.

    Attributes:
        line: its number, from 1.
    """

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def parse(data: bytes) -> dict[str, tuple[str, int]]:
    r"""Return each name's value, and the number of the line it begins on.

    Raises:
        MalformedProperties: a `\u` without four hexadecimal digits.
    """
    found: dict[str, tuple[str, int]] = {}
    for number, line in _logical_lines(data.decode("iso-8859-1")):
        if not line:  # of a continuation that has nothing
            continue
        name = _NAME.match(line)
        assert name is not None, "the pattern matches nothing too"
        separator = _SEPARATOR.match(line, name.end())
        assert separator is not None, "the pattern matches nothing too"
        found[_unescaped(name[0], number)] = (_unescaped(line[separator.end() :], number), number)
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines that are neither blank nor comments, each with its continuations, and the number of its first one."""
    begun, pieces = 0, list[str]()
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_BLANKS)
        if not pieces:
            if not line or line[0] in "#!":
                continue
            begun = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pieces.append(line[:-1])
        else:
            yield begun, "".join((*pieces, line))
            pieces = []
    if pieces:
        yield begun, "".join(pieces)


def _unescaped(text: str, line: int) -> str:
    def meaning(match: re.Match[str]) -> str:
        escape = match[1]
        if escape.startswith("u"):
            if len(escape) < 5:
                raise MalformedProperties(r"\u is followed by four hexadecimal digits", line)
            return chr(int(escape[1:], 16))
        return _CONTROLS.get(escape, escape)

    characters = _ESCAPE.sub(meaning, text)
    return characters.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # two escapes may be one character
