"""STOMP frames of every command, with headers that are right, odd, repeated or impossible, and their mutations."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from benchmarks.fuzz.values import NAMES, QUEUE, TEXTS, TOPIC
from pybroker.broker.domain.stomp.frames import Command

_COMMANDS: Final = tuple(each.value for each in Command)
_USUAL: Final = ("SEND",) * 8 + ("SUBSCRIBE",) * 4 + ("ACK", "NACK", "BEGIN", "COMMIT", "ABORT", "UNSUBSCRIBE") * 2
_DESTINATIONS: Final = (
    f"/queue/{QUEUE}", f"/queue/{QUEUE}", f"/queue/{QUEUE}", f"/topic/{TOPIC}", "/temp-queue/a", "/temp-topic/b",
    "/remote-temp-queue/ID:x:1", "/remote-temp-topic/", "/queue/", "/topic/>", "/queue/FUZZ.>", "/dsub/x", "queue",
    *(f"/queue/{name}" for name in NAMES), *(f"/topic/{name}" for name in NAMES),
)  # fmt: skip
_HEADERS: Final[dict[str, tuple[str, ...]]] = {
    "receipt": ("r", "r", "", "r\\nx", "é"),
    "transaction": ("t", "t", "u", ""),
    "id": ("1", "1", "2", "", "x" * 500),
    "ack": ("auto", "client", "client-individual", "", "x", "ID\\cx"),
    "subscription": ("1", "2", ""),
    "message-id": ("ID\\cx\\c1", "", "1", "ID:fuzz:-1:1:1"),
    "content-length": ("0", "1", "5", "-1", "+5", " 5", "5e3", "9223372036854775808", "0x1", "", "1" * 50, "99999"),
    "selector": ("a = 1", "a =", "a LIKE 'x%'", "((((", "xpath '//a'", "JMSPriority > 3"),
    "priority": ("4", "9", "-1", "10", "x", "99999999999999999999"),
    "expires": ("0", "1", "-1", "x", "9223372036854775807", "99999999999999999999"),
    "timestamp": ("0", "-1", "x", "9" * 30),
    "persistent": ("true", "false", "x"),
    "reply-to": ("/queue/R", "/temp-queue/a", "/temp-topic/z", "R", "", "/remote-temp-queue/x"),
    "correlation-id": ("c", "c\\c\\n\\\\", "\\t", "\\"),
    "type": ("t", ""),
    "transformation": ("jms-xml", "jms-json", "jms-map-json", "jms-object-xml", "jms-advisory-json", "x", ""),
    "amq-msg-type": ("text", "bytes", "x"),
    "browser": ("true", "x"),
    "activemq.prefetchSize": ("0", "1", "10", "-1", "x", "99999999999"),
    "activemq.subscriptionName": ("s", "s", ""),
    "activemq.exclusive": ("true", "x"),
    "activemq.maximumPendingMessageLimit": ("1", "-1", "x"),
    "activemq.priority": ("0", "127", "128", "x"),
    "no-local": ("true",),
    "JMSXGroupID": ("g", "g", ""),
    "JMSXGroupSeq": ("1", "-1", "0", "x"),
    "AMQ_SCHEDULED_DELAY": ("1", "60000", "-1", "x", "9" * 30),
    "AMQ_SCHEDULED_PERIOD": ("1000", "0", "-1", "x"),
    "AMQ_SCHEDULED_REPEAT": ("1", "1001", "-1", "x"),
    "AMQ_SCHEDULED_CRON": ("* * * * *", "*/0 * * * *", "60 * * * *", "x", "0-59/7,1 * * * *"),
    "AMQ_SCHEDULER_ACTION": ("BROWSE", "REMOVE", "REMOVEALL", "x"),
    "heart-beat": ("0,0", "1,1", "-1,0", "x", "0", "99999999999,1", "1,1,1"),
    "accept-version": ("1.2", "1.0,1.1,1.2", "2.0", "", "1.1"),
    "client-id": ("c", "", "x" * 1_025),
    "a": ("1", "x", "", "\\n\\c\\r\\\\", "é\U0001f600"),
}
_BODIES: Final = (
    b"",
    b"hello",
    b"a\0b",
    b"\xff\xfe\x80",
    b"<map/>",
    b'{"map": []}',
    b"<list><int>x</int></list>",
    b"x" * 2_000,
)
_BYTES: Final = (
    b"\xff\xfe",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\0",
    b"\r",
    b"\r\n",
    b"\n\n",
    b":",
    b"\\",
    b"\\x",
    b"\\n",
    b"\t",
    b" ",
)
_REPEATS: Final = (2, 10, 100, 1_200)
_LONG_MAX: Final = 60_000


def frame(dice: Random) -> bytes:
    """Return a frame that decodes; what it asks for is sensible, or not."""
    command = dice.choice(_USUAL) if dice.random() < 0.9 else dice.choice((*_COMMANDS, "MESSAGE", "send", "X", ""))
    headers: list[tuple[str, str]] = []
    if command in ("SEND", "SUBSCRIBE", "UNSUBSCRIBE") and dice.random() < 0.95:
        headers.append(("destination", dice.choice(_DESTINATIONS)))
    if command in ("BEGIN", "COMMIT", "ABORT") and dice.random() < 0.9:
        headers.append(("transaction", dice.choice(_HEADERS["transaction"])))
    if command in ("SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK") and dice.random() < 0.9:
        headers.append(("id", dice.choice(_HEADERS["id"])))
    for name in dice.sample(tuple(_HEADERS), dice.choice((0, 1, 2, 3, 6))):
        headers.append((name, dice.choice(_HEADERS[name])))
    body = dice.choice(_BODIES) if command == "SEND" else b""
    if b"\0" in body and not any(name == "content-length" for name, _ in headers):
        headers.append(("content-length", str(len(body))))
    lines = "".join(f"{name}:{value}\n" for name, value in headers)
    return f"{command}\n{lines}\n".encode(errors="replace") + body + b"\0"


def mutated(data: bytes, dice: Random, others: Sequence[bytes]) -> bytes:
    """Return a frame with one to four mutations; `others` are frames to take pieces from."""
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        dice.choice(_MUTATIONS)(changed, dice, others)
        if len(changed) > _LONG_MAX:
            del changed[_LONG_MAX:]
    return bytes(changed)


def _at(data: bytearray, dice: Random) -> int:
    return dice.randrange(len(data)) if data else 0


def _line(data: bytearray, dice: Random) -> tuple[int, int]:
    """Return the offsets of one of its lines."""
    at = _at(data, dice)
    begin = data.rfind(b"\n", 0, at) + 1
    end = data.find(b"\n", at)
    return begin, len(data) if end < 0 else end + 1


def _flip(data: bytearray, dice: Random, others: Sequence[bytes]) -> None:
    if data:
        data[_at(data, dice)] ^= 1 << dice.randrange(8)


def _insert(data: bytearray, dice: Random, others: Sequence[bytes]) -> None:
    at = _at(data, dice)
    data[at:at] = dice.choice((*_BYTES, dice.randbytes(dice.randint(1, 6))))


def _drop_line(data: bytearray, dice: Random, others: Sequence[bytes]) -> None:
    begin, end = _line(data, dice)
    del data[begin:end]


def _repeat_line(data: bytearray, dice: Random, others: Sequence[bytes]) -> None:
    begin, end = _line(data, dice)
    data[begin:begin] = data[begin:end] * dice.choice(_REPEATS)


def _header(data: bytearray, dice: Random, others: Sequence[bytes]) -> None:
    """Insert a header line, perhaps one that is there already, or an impossible text in it."""
    name = dice.choice(tuple(_HEADERS))
    value = dice.choice(_HEADERS[name]) if dice.random() < 0.7 else dice.choice(TEXTS) or ""
    begin, _ = _line(data, dice)
    data[begin:begin] = f"{name}:{value}\n".encode(errors="replace")


def _long_line(data: bytearray, dice: Random, others: Sequence[bytes]) -> None:
    at = _at(data, dice)
    data[at:at] = dice.choice((b"x", b"\\n", b"\\", b":", b"\xc3\xa9")) * dice.choice((100, 5_000, 10_300))


def _truncate(data: bytearray, dice: Random, others: Sequence[bytes]) -> None:
    del data[_at(data, dice) + 1 :]


def _line_ends(data: bytearray, dice: Random, others: Sequence[bytes]) -> None:
    data[:] = data.replace(b"\n", dice.choice((b"\r\n", b"\r", b"\n\r", b"\0")))


def _splice(data: bytearray, dice: Random, others: Sequence[bytes]) -> None:
    """Continue with the rest of another frame."""
    other = dice.choice(others)
    data[_at(data, dice) :] = other[dice.randrange(len(other) + 1) :]


_MUTATIONS: Final[tuple[Callable[[bytearray, Random, Sequence[bytes]], None], ...]] = (
    _flip, _flip, _insert, _insert, _drop_line, _repeat_line, _header, _header, _long_line, _truncate, _line_ends,
    _splice,
)  # fmt: skip
