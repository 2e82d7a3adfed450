"""Names and last statements of a member's database sessions, which publish its state. Pure.

```text
application_name   pybroker NAME             the session of the lock: a standby, or the holder
                   pybroker NAME store       of the store
                   pybroker NAME serves      of the presence of a master
                   pybroker NAME unable      of the presence of a standby that could not serve
last statement     SELECT 1 -- pybroker NAME serves SINCE [management=URL] ADDRESS ADDRESS .
                                                                SINCE: milliseconds of the epoch
                   SELECT 1 -- pybroker NAME unable OBSTACLE .
```

The server keeps 63 bytes of an `application_name`, and by default 1,024 of a session's last statement. So the end of a
long name is replaced by a digest, and addresses are in the statement alone, where a full stop shows that none was cut.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

SERVES = "serves"
"""Purpose of the session by which a master publishes itself."""
UNABLE = "unable"
"""Purpose of the session by which a standby publishes that it could not serve."""

_PROGRAM = "pybroker"
_MANAGEMENT = "management="
_NAME_BYTES_MAX = 47
"""Limit of a member's name: 63 bytes, less the program, the longest purpose and the spaces between."""
_DIGEST_LENGTH = 8
_OBSTACLE_LENGTH_MAX = 700
"""Limit of an obstacle in ASCII: it fits into the 1,024 bytes, beside a name of 100."""


def short(member: str) -> str:
    """Return a member's name in sessions: a long name ends in a digest, so that names stay distinct."""
    encoded = member.encode()
    if len(encoded) <= _NAME_BYTES_MAX:
        return member
    begin = encoded[: _NAME_BYTES_MAX - _DIGEST_LENGTH - 1].decode(errors="ignore")
    return f"{begin}~{sha256(encoded).hexdigest()[:_DIGEST_LENGTH]}"


def session_name(member: str, purpose: str = "") -> str:
    """Return the `application_name` of a member's session."""
    return " ".join(each for each in (_PROGRAM, short(member), purpose) if each)


def read_session_name(application: str) -> tuple[str, str]:
    """Return the member, perhaps shortened, and the purpose; two empty texts when it is no pybroker's session."""
    program, _, rest = application.partition(" ")
    member, _, purpose = rest.partition(" ")
    return (member, purpose.partition(" ")[0]) if program == _PROGRAM else ("", "")


class Notice(NamedTuple):
    """The state that a master publishes.

    Attributes:
        member: its full name.
        since_ms: the time at which it became master, by its own clock.
        addresses: its listeners.
        management: the address of its management, such as `https://a.example.org:8161`; empty: it has none.
    """

    member: str
    since_ms: int
    addresses: tuple[str, ...]
    management: str = ""


def notice(member: str, since_ms: int, addresses: Sequence[str], management: str = "") -> str:
    """Return a statement without effect that contains a master's addresses, and the time since which it serves."""
    found = [*([_MANAGEMENT + management] if management else []), *addresses]
    return f"SELECT 1 -- {_PROGRAM} {member} {SERVES} {since_ms} {' '.join([*found, '.'])}"


def obstacle_notice(member: str, obstacle: str) -> str:
    """Return a statement without effect that contains the reason why a standby could not serve.

    The text is a comment, so no line end may be in it.
    """
    plain = "".join(each if " " <= each <= "~" else "?" for each in obstacle[:_OBSTACLE_LENGTH_MAX])
    return f"SELECT 1 -- {_PROGRAM} {member} {UNABLE} {plain} ."


def read_obstacle(statement: str | None) -> str:
    """Return the obstacle in a standby's last statement; empty when the statement is another or not shown."""
    words = (statement or "").split(" ", 6)
    is_one = len(words) == 7 and words[3] == _PROGRAM and words[5] == UNABLE
    return words[6].removesuffix(" .") if is_one else ""


def read_notice(statement: str | None) -> Notice | None:
    """Return a master's notice, with the addresses that are complete; None: not a notice, or hidden."""
    words = (statement or "").split(" ")
    if len(words) < 8 or words[3] != _PROGRAM or words[5] != SERVES or not words[6].isdecimal():
        return None
    found = words[7:-1]
    management = found.pop(0).removeprefix(_MANAGEMENT) if found and found[0].startswith(_MANAGEMENT) else ""
    return Notice(words[4], int(words[6]), tuple(found), management)
