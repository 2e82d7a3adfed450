"""Which protocol a peer speaks, told from its first bytes, on a port that takes several.

```text
OpenWire   00 00 00 nn  01 'ActiveMQ'      size and type of a WireFormatInfo, its magic
STOMP      gap 'CONNECT' | 'STOMP'         gap: line ends and blanks, which a STOMP decoder skips too
```

An OpenWire size begins with a NUL, or its first frame would be of 16 MB; so one byte tells which of the two it may be.
"""

import enum
import logging
from collections.abc import Mapping

from pybroker.transports.connection import MakeSession, ReplaceableLink
from pybroker.transports.session import Session

_log = logging.getLogger(__name__)


class Spoken(enum.Enum):
    """What the first bytes tell."""

    OPENWIRE = "OpenWire"
    STOMP = "STOMP"
    UNKNOWN = "neither OpenWire nor STOMP"
    UNDECIDED = "too few bytes to tell"


_SIZE_BYTES = 4
_MAGIC = b"\x01ActiveMQ"
_COMMANDS = (b"CONNECT", b"STOMP")
_GAP = b"\r\n\t "
_TLS_HANDSHAKE = b"\x16\x03"
_SHOWN_BYTES = 16


def detect(head: bytes) -> Spoken:
    """Tell what a conversation that begins like this is in."""
    if head[:1] == b"\0":
        magic = head[_SIZE_BYTES : _SIZE_BYTES + len(_MAGIC)]
        return _compare(magic, (_MAGIC,), Spoken.OPENWIRE)
    return _compare(head.lstrip(_GAP)[: max(map(len, _COMMANDS))], _COMMANDS, Spoken.STOMP)


def _compare(head: bytes, openings: tuple[bytes, ...], spoken: Spoken) -> Spoken:
    if head.startswith(openings):
        return spoken
    return Spoken.UNDECIDED if any(opening.startswith(head) for opening in openings) else Spoken.UNKNOWN


class Detector(Session):
    """The session of a peer whose protocol is not known yet; hands the connection over as soon as it is."""

    def __init__(self, link: ReplaceableLink, sessions: Mapping[Spoken, MakeSession], *, seconds: float) -> None:
        """Wait for the first bytes.

        Args:
            link: moves the bytes.
            sessions: makes the session for each protocol that is spoken here.
            seconds: how long the peer may take.
        """
        self._link = link
        self._sessions = sessions
        self._seconds = seconds
        self._head = b""
        link.wake_at(link.time() + seconds)

    def receive(self, chunk: bytes) -> None:
        """Look at the first bytes. Kept are those of an opening that is not complete, no more than a dozen."""
        head = self._head + chunk if self._head else chunk
        spoken = detect(head)
        if spoken is Spoken.UNDECIDED:
            self._head = _without_gap(head)
            return
        make_session = self._sessions.get(spoken)
        if make_session is None:
            self._close(_complaint(spoken, head))
            return
        session = make_session(self._link)
        self._link.become(session)
        session.receive(head)

    def written(self) -> None:
        """Learn nothing: nothing was written."""

    def handed_over(self) -> None:
        """Learn nothing: nothing was written."""

    def pause_writing(self) -> None:
        """Learn nothing: nothing was written."""

    def on_timer(self) -> None:
        """Give up a peer that has not said enough."""
        self._close(f"within {self._seconds:g} seconds it has not said which protocol it speaks")

    def lost(self) -> None:
        """Learn that the peer left, as health checks do at once."""

    def _close(self, complaint: str) -> None:
        _log.info("%s closed: %s", self._link.peer, complaint)
        self._link.wake_at(None)
        self._link.close()


def _without_gap(head: bytes) -> bytes:
    """Cut a gap down to one byte, which tells that there was one."""
    opening = head.lstrip(_GAP)
    return head if len(opening) == len(head) else head[:1] + opening


def _complaint(spoken: Spoken, head: bytes) -> str:
    if spoken is not Spoken.UNKNOWN:
        return f"it speaks {spoken.value}, which this port does not take"
    if head.startswith(_TLS_HANDSHAKE):
        return "it speaks TLS: that has a port of its own (auto_ssl)"
    return f"it speaks {spoken.value}, but begins with {head[:_SHOWN_BYTES]!r}"
