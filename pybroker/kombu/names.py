"""The names of AMQP's queues, exchanges and routing keys as names of destinations.

A destination's name has levels, separated by `.`; `,` `?` `*` and `>` have meanings of their own, and a broker removes
blanks around a name. So the text of a level is percent-encoded as in URIs, and a level that would be empty is `%`:

```text
`orders.new`     orders.new          of a queue: its levels stay, so that policies and consoles find it
`50%, or more?`  50%25%2C or more%3F
`a..b`           a.%.b
`host.pidbox`    host%2Epidbox       one level: of an exchange, or of a queue within the name of a binding
```

Different names have different encodings. The module does no I/O.
"""

import re
from typing import Final
from urllib.parse import unquote

_EMPTY_LEVEL: Final = "%"
"""The encoding of an empty level; every other `%` is before two hexadecimal digits."""

_SPECIAL: Final = re.compile(r"[%,?*>\x00-\x1f\x7f]|^\s|\s$")
_SPECIAL_OR_DOT: Final = re.compile(r"[%,?*>.\x00-\x1f\x7f]|^\s|\s$")


def encode_name(name: str) -> str:
    """Return the destination's name for a queue or routing key: its dots separate levels."""
    return ".".join(_encode(level, _SPECIAL) for level in name.split("."))


def encode_level(name: str) -> str:
    """Return a name as one level: also its dots are encoded."""
    return _encode(name, _SPECIAL_OR_DOT)


def decode_name(name: str) -> str:
    """Return the name whose encoding by `encode_name` or `encode_level` this is; any other name unchanged."""
    return ".".join("" if level == _EMPTY_LEVEL else unquote(level) for level in name.split("."))


def _encode(level: str, special: re.Pattern[str]) -> str:
    if not level:
        return _EMPTY_LEVEL
    return special.sub(lambda found: "".join(f"%{byte:02X}" for byte in found.group().encode()), level)
