"""Parses JAAS's `login.config`, in which sections name the modules that log clients in.

```text
activemq {                                                      // a section
    org.apache.activemq.jaas.PropertiesLoginModule required     /* a class and its flag */
        reload=true
        org.apache.activemq.jaas.properties.user="users.properties";
};
```

Flags are `required`, `requisite`, `sufficient` and `optional`, in any case. In a value `${name}` stands for a property
of Java, and `${/}` for a slash.

Source: `javax.security.auth.login.Configuration`, and the parser `sun.security.provider.ConfigFile` of OpenJDK.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from pybroker.broker.domain.errors import MalformedData

BYTES_MAX: Final = 1 << 20
"""The limit to a file; those in use have a few kilobytes."""

_TOKEN: Final = re.compile(
    r"""(?P<blank>\s+|//[^\r\n]*|/\*.*?\*/)
    |(?P<quoted>"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*')
    |(?P<word>[\w.$*+-]+)
    |(?P<mark>[{}=;])""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "a": "\a", "b": "\b", "v": "\v"}
_PROPERTY: Final = re.compile(r"\$\{([^{}]*)\}")


class MalformedLoginConfig(MalformedData):
    """A text that is no `login.config`. The error shows no value of an option.

    Attributes:
        line: its line, from 1.
    """

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line


class ModuleFlag(Enum):
    """The part that a module's outcome has in that of a section."""

    REQUIRED = "required"
    REQUISITE = "requisite"
    SUFFICIENT = "sufficient"
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True, kw_only=True)
class JaasModule:
    """A module of a section.

    Attributes:
        class_name: its class, with the package.
        flag: its flag.
        options: its options by name; some are passwords.
        line: its line, from 1.
    """

    class_name: str
    flag: ModuleFlag
    options: Mapping[str, str] = field(repr=False)
    line: int

    @property
    def simple_name(self) -> str:
        """The class without its package."""
        return self.class_name.rpartition(".")[2]


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def parse(data: bytes, properties: Mapping[str, str]) -> dict[str, tuple[JaasModule, ...]]:
    """Return the modules of each section by its name.

    Args:
        data: the file, in UTF-8.
        properties: Java's properties.

    Raises:
        MalformedLoginConfig: it does not parse, has a section twice, or a value has an unknown property.
    """
    if len(data) > BYTES_MAX:
        raise MalformedLoginConfig(f"the file has more than {BYTES_MAX >> 20} MiB", 1)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedLoginConfig("it is not in UTF-8", data.count(b"\n", 0, error.start) + 1) from error
    reader = _Reader(list(_tokens(text)), properties)
    found: dict[str, tuple[JaasModule, ...]] = {}
    while not reader.is_at_end:
        line = reader.line
        name = reader.text("the name of a section")
        if name in found:
            raise MalformedLoginConfig(f"the section {name} is there twice", line)
        found[name] = tuple(reader.modules())
    return found


def _tokens(text: str) -> Iterator[_Token]:
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise MalformedLoginConfig(f"{text[position]!r} is not expected here", line)
        kind = match.lastgroup
        assert kind is not None, "each alternative has a name"
        if kind != "blank":
            yield _Token(kind, match[0], line)
        line += match[0].count("\n")
        position = match.end()


class _Reader:
    """Reads tokens in order."""

    def __init__(self, tokens: list[_Token], properties: Mapping[str, str]) -> None:
        self._tokens = tokens
        self._next = 0
        self._properties = properties

    @property
    def is_at_end(self) -> bool:
        return self._next == len(self._tokens)

    @property
    def line(self) -> int:
        """The line of the next token; at the end that of the last one."""
        if not self._tokens:
            return 1
        return self._tokens[min(self._next, len(self._tokens) - 1)].line

    def modules(self) -> Iterator[JaasModule]:
        """Read a section behind its name."""
        self._mark("{")
        while not self._is_mark("}"):
            yield self._module()
        self._mark("}")
        self._mark(";")

    def _module(self) -> JaasModule:
        line = self.line
        name = self.text("the class of a module")
        flag_line, given = self.line, self.text("the flag of a module")
        try:
            flag = ModuleFlag(given.lower())
        except ValueError:
            flags = ", ".join(each.value for each in ModuleFlag)
            raise MalformedLoginConfig(f"a flag is one of {flags}", flag_line) from None
        options: dict[str, str] = {}
        while not self._is_mark(";"):
            option = self.text("the name of an option, or a semicolon")
            self._mark("=")
            value_line = self.line
            options[option] = self._expanded(self.text(f"the value of {option}"), option, value_line)
        self._mark(";")
        return JaasModule(class_name=name, flag=flag, options=options, line=line)

    def text(self, what: str) -> str:
        """Read a word or a text in quotes."""
        if self.is_at_end:
            raise MalformedLoginConfig(f"the file ends before {what}", self.line)
        token = self._tokens[self._next]
        if token.kind == "mark":
            raise MalformedLoginConfig(f"{what} is expected, and not {token.text}", token.line)
        self._next += 1
        return token.text if token.kind == "word" else _ESCAPE.sub(_unescaped, token.text[1:-1])

    def _is_mark(self, mark: str) -> bool:
        return not self.is_at_end and self._tokens[self._next][:2] == ("mark", mark)

    def _mark(self, mark: str) -> None:
        if not self._is_mark(mark):
            raise MalformedLoginConfig(f"{mark} is expected", self.line)
        self._next += 1

    def _expanded(self, value: str, option: str, line: int) -> str:
        def meaning(match: re.Match[str]) -> str:
            if match[1] == "/":
                return "/"
            if match[1] not in self._properties:
                raise MalformedLoginConfig(f"{option} has the property {match[1]!r}, which is not set", line)
            return self._properties[match[1]]

        return _PROPERTY.sub(meaning, value)


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    if escape[0] in "01234567":
        return chr(int(escape, 8))
    return _CONTROLS.get(escape, escape)
