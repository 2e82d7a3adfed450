"""Object names of MBeans: `DOMAIN:KEY=VALUE,KEY=VALUE…`, with wildcards for patterns.

Values have no `: , ' " ? = *`: ActiveMQ replaces them when it makes a name. The first four become `_`, so different
destinations may have the same name, and a name is looked up by what it would become.

Source: `javax.management.ObjectName`; ActiveMQ 5.17, `JMXSupport.encodeObjectNamePart`, `BrokerMBeanSupport`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Self

from pybroker.broker.domain.errors import BrokerError

DOMAIN: Final = "org.apache.activemq"

LENGTH_MAX: Final = 8192
"""Characters of a name in a request: names of destinations and clients have 1,024 at most."""

_REPLACED: Final = str.maketrans(
    {":": "_", ",": "_", "'": "_", '"': "_", "?": "&qe;", "=": "&amp;", "*": "&ast;", "\n": "\\n"}
)
_WILDCARDS: Final = re.compile(r"[*?]")
_PROPERTY: Final = re.compile(r'\s*([^=,"*?\s]+)=("(?:[^"\\]|\\.)*"|[^,"]*)(?:,|$)')


class MalformedObjectName(BrokerError):
    """A text that is no object name."""


def encoded(value: str) -> str:
    """Return a value as it is in an object name."""
    return value.translate(_REPLACED)


@dataclass(frozen=True, slots=True)
class ObjectName:
    """An object name, or a pattern of them.

    Attributes:
        text: the name as it was given.
        domain: the part before the first colon.
        keys: the values by their keys, in the order of the text.
        is_open: True if it ends with `,*`: names that it matches may have further keys.
    """

    text: str
    domain: str
    keys: Mapping[str, str]
    is_open: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the name that a text has. A colon in a value is taken, though Java refuses it.

        Raises:
            MalformedObjectName: it is none.
        """
        if len(text) > LENGTH_MAX:
            raise MalformedObjectName(f"an object name has at most {LENGTH_MAX} characters")
        domain, colon, rest = text.partition(":")
        if not colon:
            raise MalformedObjectName(f"Domain part must be specified in {text!r}")
        keys: dict[str, str] = {}
        is_open = False
        at = 0
        while at < len(rest):
            if rest[at] == "*" and rest[at + 1 : at + 2] in ("", ","):
                is_open, at = True, at + 2
                continue
            found = _PROPERTY.match(rest, at)
            if found is None:
                raise MalformedObjectName(f"a key and its value, such as type=Broker, expected at {rest[at:]!r}")
            if found[1] in keys:
                raise MalformedObjectName(f"key {found[1]!r} is there twice")
            keys[found[1]] = found[2]
            at = found.end()
        if not keys and not is_open:
            raise MalformedObjectName(f"Key properties cannot be empty in {text!r}")
        return cls(text, domain, keys, is_open)

    @property
    def is_pattern(self) -> bool:
        """True if it may match several names."""
        return self.is_open or any(map(_is_wildcard, (self.domain, *self.keys.values())))

    @property
    def properties(self) -> str:
        """The text after the domain."""
        return self.text.partition(":")[2]

    @property
    def canonical(self) -> str:
        """The name with its keys in their order."""
        keys = [f"{key}={value}" for key, value in sorted(self.keys.items())]
        return f"{self.domain}:{','.join([*keys, '*'] if self.is_open else keys)}"

    def plain(self, key: str) -> str:
        """Return a value as it is looked up: without quotes, and with what ActiveMQ replaces replaced."""
        return _plain(self.keys[key])

    def matcher(self) -> Callable[[str, Mapping[str, str]], bool]:
        """Return what decides if the name matches a domain and keys."""
        exact: dict[str, str] = {}
        patterns: dict[str, re.Pattern[str]] = {}
        for key, value in self.keys.items():
            if _is_wildcard(value):
                patterns[key] = _glob(value)
            else:
                exact[key] = _plain(value)
        domain, count, is_open = _glob(self.domain), len(self.keys), self.is_open

        def matches(name: str, keys: Mapping[str, str]) -> bool:
            if len(keys) != count if not is_open else len(keys) < count:
                return False
            for key, value in exact.items():
                if keys.get(key) != value:
                    return False
            for key, pattern in patterns.items():
                found = keys.get(key)
                if found is None or pattern.fullmatch(found) is None:
                    return False
            return domain.fullmatch(name) is not None

        return matches


def _is_wildcard(value: str) -> bool:
    return not value.startswith('"') and _WILDCARDS.search(value) is not None


def _plain(value: str) -> str:
    if value.startswith('"'):
        value = "".join(_unquoted(value[1:-1]))
    return encoded(value)


def _unquoted(text: str) -> Iterator[str]:
    characters = iter(text)
    for each in characters:
        yield next(characters, "") if each == "\\" else each


def _glob(text: str) -> re.Pattern[str]:
    """Return a pattern of JMX as a regular one.

    What follows a star is sought from the left, and never again: else many stars would take very long.
    """
    first, *parts = [_fixed(part) for part in text.split("*")]
    if not parts:
        return re.compile(first, re.DOTALL)
    middle = "".join(f"(?>.*?{part})" for part in parts[:-1] if part)
    return re.compile(f"{first}{middle}.*{parts[-1]}", re.DOTALL)


def _fixed(text: str) -> str:
    return ".".join(map(re.escape, text.split("?")))
