"""Bodies that take long to render are rendered in a thread: in order, one at a time, and when the peer reads."""

import inspect
import sys
import weakref
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.errors import ResourceLimit
from pybroker.broker.domain.message import BodilessMessage, Message
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, to_message, view
from pybroker.broker.domain.openwire.values import encode_map
from pybroker.broker.domain.stomp.frames import StompLimits, Version
from pybroker.transports.stomp.destinations import DestinationNames
from pybroker.transports.stomp.mapping import INLINE_BYTES_MAX, MessageWriter, SlowBody
from pybroker.transports.stomp.subscriptions import StompSubscription

PRODUCER = ProducerId("ID:java-1-2-0:1", 1, 1)
LONG = INLINE_BYTES_MAX + 1


class Thread:
    """Keeps the work until a test does it."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def __call__(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        self.jobs.append((work, done))

    def finish(self) -> None:
        work, done = self.jobs.pop(0)
        work()
        done()


def message(
    number: int,
    content: bytes,
    *,
    kind: MessageType = MessageType.TEXT,
    compressed: bool = False,
    properties: dict[str, Any] | None = None,
) -> Message:
    return to_message(
        OpenWireMessage(
            type=kind,
            message_id=OpenWireMessageId(None, PRODUCER, number),
            producer_id=PRODUCER,
            destination=queue("q"),
            persistent=True,
            content=content,
            compressed=compressed,
            marshalled_properties=encode_map(properties) if properties else None,
        )
    )


def inflating(number: int, size: int = LONG, kind: MessageType = MessageType.TEXT) -> Message:
    """Return a small message that inflates to a body of that size."""
    if kind is MessageType.BYTES:
        return message(number, size.to_bytes(4) + zlib.compress(b"b" * size), kind=kind, compressed=True)
    return message(number, zlib.compress(encode_text("t" * size)), kind=kind, compressed=True)


@pytest.fixture
def thread() -> Thread:
    return Thread()


def subscribed(connect: Any, thread: Thread, mode: str = "auto") -> Any:
    peer = connect("1.1")
    peer.session._client._in_thread = thread
    peer.send(f"SUBSCRIBE\nid:1\ndestination:/queue/q\nack:{mode}\n\n^")
    return peer


def ids(frames: list[str]) -> list[str]:
    """Return the last digit of each message id."""
    return [line[-1] for frame in frames for line in frame.splitlines() if line.startswith("message-id:")]


@pytest.mark.parametrize("kind", [MessageType.TEXT, MessageType.BYTES])
def test_later_messages_wait_for_a_body_that_is_inflated(
    connect: Any, broker: Any, thread: Thread, kind: MessageType
) -> None:
    peer = subscribed(connect, thread)
    for each in (message(1, encode_text("a")), inflating(2, kind=kind), message(3, encode_text("b"))):
        broker.route(each)
    assert ids(peer.receive()) == ["1"]
    assert len(thread.jobs) == 1
    peer.session.written()
    assert [each[-1] for each in broker.acknowledged] == ["1"], "what is rendered has not left"
    thread.finish()
    frames = peer.receive()
    assert ids(frames) == ["2", "3"]
    assert len(frames[0]) > LONG
    peer.session.written()
    assert [each[-1] for each in broker.acknowledged] == ["1", "2", "3"]


def test_one_body_at_a_time_is_rendered(connect: Any, broker: Any, thread: Thread) -> None:
    peer = subscribed(connect, thread, "client")
    for number in range(1, 4):
        broker.route(inflating(number))
    for number in range(1, 4):
        assert len(thread.jobs) == 1
        thread.finish()
        assert ids(peer.receive()) == [str(number)]
    assert thread.jobs == []


def test_no_body_is_rendered_for_a_peer_that_does_not_read(connect: Any, broker: Any, thread: Thread) -> None:
    peer = subscribed(connect, thread)
    peer.session.pause_writing()
    broker.route(inflating(1))
    assert thread.jobs == [], "the core may not even deliver it"
    peer.session.written()
    thread.finish()
    assert ids(peer.receive()) == ["1"]


def test_a_long_text_is_rendered_in_a_thread(connect: Any, broker: Any, thread: Thread) -> None:
    peer = subscribed(connect, thread)
    broker.route(message(1, encode_text("\U0001f600" * (INLINE_BYTES_MAX // 6 + 1))))
    assert peer.receive() == []
    thread.finish()
    assert "\U0001f600" * 1000 in peer.receive()[0]


def test_a_body_that_leaves_memory_meanwhile_is_rendered(connect: Any, broker: Any, thread: Thread) -> None:
    """The core takes it for sent, once what came after it is."""
    peer = subscribed(connect, thread, "client")
    broker.route(message(1, encode_text("x" * (INLINE_BYTES_MAX + 1))))
    (held,) = [each for consumer in broker.all_consumers() for each in consumer.outstanding]
    held.message = BodilessMessage(held.message, -1)
    thread.finish()
    (frame,) = peer.receive()
    assert ids([frame]) == ["1"]
    assert "x" * (INLINE_BYTES_MAX + 1) in frame


def test_long_properties_are_decoded_in_a_thread(connect: Any, broker: Any, thread: Thread) -> None:
    peer = subscribed(connect, thread)
    broker.route(message(1, encode_text("a"), properties={"p": "\U0001f600" * INLINE_BYTES_MAX}))
    assert peer.receive() == []
    thread.finish()
    assert "\np:\U0001f600\U0001f600" in peer.receive()[0]


@pytest.mark.parametrize("mode", ["auto", "client"])
def test_a_body_that_inflates_beyond_the_frame_limit_is_rejected(
    connect: Any, broker: Any, thread: Thread, mode: str
) -> None:
    peer = subscribed(connect, thread, mode)
    limit = StompLimits().body_bytes
    broker.route(
        message(1, (limit + 1).to_bytes(4) + zlib.compress(b"b" * 100), kind=MessageType.BYTES, compressed=True)
    )
    broker.route(message(2, (LONG).to_bytes(4) + zlib.compress(b"cut"), kind=MessageType.BYTES, compressed=True))
    broker.route(message(3, encode_text("good")))
    while thread.jobs:
        thread.finish()
    first, *others = peer.receive()
    assert "cannot be rendered" in first
    assert ids(others)[-1:] == ["3"]
    peer.session.written()
    assert [message_id[-1] for message_id, _ in broker.rejected] == ["1", "2"]
    assert not peer.link.closed


def test_a_subscription_that_ends_meanwhile_gets_nothing(connect: Any, broker: Any, thread: Thread) -> None:
    peer = subscribed(connect, thread)
    broker.route(inflating(1))
    broker.route(message(2, encode_text("b")))
    peer.send("UNSUBSCRIBE\nid:1\n\n^")
    thread.finish()
    assert peer.receive() == []
    assert len(broker.queues[queue("q")]) == 2
    peer.send("SUBSCRIBE\nid:2\ndestination:/queue/q\nack:auto\n\n^")
    thread.finish()
    assert ids(peer.receive()) == ["1", "2"]


def test_a_connection_that_ends_meanwhile_gets_nothing(connect: Any, broker: Any, thread: Thread) -> None:
    peer = subscribed(connect, thread)
    broker.route(inflating(1))
    peer.session.lost()
    thread.finish()
    assert len(broker.queues[queue("q")]) == 1


@pytest.mark.parametrize("ending", ["lost", "DISCONNECT"])
def test_an_end_delivers_no_long_body_within_another(
    connect: Any, broker: Any, thread: Thread, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """The end of the rendering resumes delivery, and each further body was delivered within the call for the last."""
    depths: list[int] = []
    deliver = StompSubscription._deliver_auto

    def measured(subscription: StompSubscription, delivery: Delivery, /) -> None:
        depths.append(len(inspect.stack(0)))
        deliver(subscription, delivery)

    monkeypatch.setattr(StompSubscription, "_deliver_auto", measured)
    peer = subscribed(connect, thread)
    small = inflating(1)
    for _ in range(30):
        broker.route(small)
    if ending == "lost":
        peer.session.lost()
    else:
        peer.send("DISCONNECT\n\n^")
    assert max(depths) - min(depths) < 30
    assert len(broker.queues[queue("q")]) == 30


TEXT = "\U0001f600" * (INLINE_BYTES_MAX // 4 + 1)


def sending(connect: Any, thread: Thread) -> Any:
    peer = connect("1.1")
    peer.link.in_thread = thread
    return peer


@pytest.mark.parametrize("headers", ["", "amq-msg-type:text\ncontent-length:{}\n"])
def test_a_long_text_that_is_sent_is_encoded_in_a_thread(
    connect: Any, broker: Any, thread: Thread, headers: str
) -> None:
    peer = sending(connect, thread)
    body = TEXT.encode()
    head = "SEND\ndestination:/queue/q\n" + headers.format(len(body)) + "\n"
    chunk = head.encode() + body + b"\0" + b"SEND\ndestination:/queue/q\n\nsecond\0"
    assert peer.session.receive(chunk)
    assert peer.link.reading_since is None, "the peer is not read meanwhile"
    assert peer.session.proceed(), "nothing goes on before it is encoded"
    assert broker.received == []
    thread.finish()
    assert peer.link.reading_since is not None
    assert not peer.session.proceed()
    assert [view(each).text() for each in broker.received] == [TEXT, "second"]
    assert thread.jobs == []


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ("", b"a" * LONG),
        ("", ("a\0ä" * LONG).encode().replace(b"\0", b"")),
        (f"content-length:{4 * LONG}\n", "\U0001f600".encode() * LONG),
        (f"amq-msg-type:bytes\ncontent-length:{4 * LONG}\n", "\U0001f600".encode() * LONG),
        (f"amq-msg-type:text\ncontent-length:{3 * LONG}\n", b"\0ab" * LONG),
        ("type:t\nJMSXGroupID:g\na:b\n", "ä".encode() * LONG),
    ],
)
def test_a_long_body_is_built_in_a_thread_as_a_short_one_is(
    connect: Any, broker: Any, thread: Thread, headers: str, body: bytes
) -> None:
    peer = sending(connect, thread)
    short = headers.replace(f"content-length:{len(body)}", f"content-length:{len(body) // LONG}")
    for lines, part in ((headers, body), (short, body[: len(body) // LONG])):
        waits = peer.session.receive(f"SEND\ndestination:/queue/q\n{lines}\n".encode() + part + b"\0")
        assert waits is (part is body)
        if waits:
            assert broker.received == []
            thread.finish()
            assert not peer.session.proceed()
    large, small = map(view, broker.received)
    assert thread.jobs == []
    assert large.type is small.type
    assert (large.jms_type, large.group_id) == (small.jms_type, small.group_id)
    assert dict(large.properties) == {
        **small.properties,
        **({"content-length": str(len(body))} if "amq" in headers else {}),
    }
    assert (large.text_utf8() if large.type is MessageType.TEXT else large.content) == body
    assert broker.received[0].payload_size == large.payload_size


def test_a_send_that_is_refused_is_not_built(connect: Any, broker: Any, thread: Thread) -> None:
    peer = sending(connect, thread)
    for headers in ("destination:/queue/q\npriority:x", "destination:", "destination:/queue/q\ntransaction:no"):
        assert not peer.session.receive(f"SEND\n{headers}\n\n".encode() + b"a" * LONG + b"\0")
    peer.session.receive(b"SEND\ndestination:/queue/q\namq-msg-type:text\n\n" + b"\xff" * LONG + b"\0")
    thread.finish()
    assert not peer.session.proceed()
    errors = [frame.partition("\n")[0] for frame in peer.receive()]
    assert errors == ["ERROR"] * 4
    assert broker.received == []
    assert thread.jobs == []


@pytest.mark.parametrize("ending", ["lost", "give_up"])
def test_a_connection_that_ends_keeps_no_long_body(connect: Any, broker: Any, thread: Thread, ending: str) -> None:
    """Many such bodies could wait for the thread, and for the garbage collection of their sessions."""
    chunk = b"SEND\ndestination:/queue/q\n\n" + b"a" * LONG + b"\0" + b"SEND\ndestination:/queue/q\n\nnext\0"
    peer = sending(connect, thread)
    peer.session.receive(chunk)
    large = peer.session._large
    body = large.body
    assert sys.getrefcount(body) > 2
    if ending == "lost":
        peer.session.lost()
    else:
        peer.session.give_up(ResourceLimit("frames take too much memory"))
    assert sys.getrefcount(body) <= 2, "this test's own"
    thread.finish()
    assert large.is_done
    assert not peer.session.proceed()
    assert broker.received == []


@pytest.mark.parametrize("transformation", ["", "transformation:jms-json\n"])
@pytest.mark.parametrize("kind", [MessageType.TEXT, MessageType.BYTES, MessageType.MAP])
def test_a_long_message_is_rendered_as_a_short_one_is(
    connect: Any, broker: Any, thread: Thread, kind: MessageType, transformation: str
) -> None:
    peer = connect("1.1")
    peer.session._client._in_thread = thread
    peer.send(f"SUBSCRIBE\nid:1\ndestination:/queue/q\n{transformation}\n^")
    frames = []
    for number, count in ((1, 1), (2, LONG)):
        content = {
            MessageType.TEXT: encode_text("a\0ä" * count),
            MessageType.BYTES: b"a\0b" * count,
            MessageType.MAP: encode_map({"k": "v"}),
        }[kind]
        properties = {"p": "x" * (count if kind is MessageType.MAP else 1)}
        broker.route(message(number, content, kind=kind, properties=properties))
        if count > 1:
            thread.finish()
        frames += peer.receive()
    heads, bodies = zip(*[frame.split("\n\n", 1) for frame in frames], strict=True)
    short, long = ({line.partition(":")[0] for line in head.splitlines()} for head in heads)
    assert short == long
    if kind is not MessageType.MAP:
        assert bodies[1].removesuffix("\0\n") == bodies[0].removesuffix("\0\n") * LONG


def test_a_text_that_is_no_utf8_is_sent_as_it_is(connect: Any, broker: Any, thread: Thread) -> None:
    peer = subscribed(connect, thread)
    broker.route(message(1, b"\x00\x00\x00\x07" + b"a" * LONG))
    thread.finish()
    assert peer.receive()[0].endswith("\n\n" + "a" * LONG)


def test_memory_of_a_frame_is_reserved_until_its_message_is_built(connect: Any, broker: Any, thread: Thread) -> None:
    peer = sending(connect, thread)
    data = b"SEND\ndestination:/queue/q\n\n" + b"a" * LONG + b"\0"
    assert not peer.session.receive(data[:-10])
    reserved = peer.link.reserved
    assert reserved >= LONG
    assert peer.session.receive(data[-10:])
    assert peer.link.reserved == reserved
    thread.finish()
    assert not peer.session.proceed()
    assert peer.link.reserved == 0
    assert len(broker.received) == 1


def test_a_long_text_that_is_no_utf8_becomes_bytes(connect: Any, broker: Any, thread: Thread) -> None:
    peer = sending(connect, thread)
    body = TEXT.encode() + b"\xff"
    assert peer.session.receive(b"SEND\ndestination:/queue/q\n\n" + body + b"\0")
    thread.finish()
    assert not peer.session.proceed()
    [sent] = broker.received
    assert view(sent).type is MessageType.BYTES
    assert view(sent).content == body


def test_a_connection_that_ends_while_a_text_is_encoded_sends_nothing(
    connect: Any, broker: Any, thread: Thread
) -> None:
    peer = sending(connect, thread)
    peer.session.receive(b"SEND\ndestination:/queue/q\n\n" + TEXT.encode() + b"\0")
    peer.session.lost()
    thread.finish()
    assert not peer.session.proceed()
    assert broker.received == []


@pytest.mark.parametrize("is_slow", [False, True])
def test_receipts_behind_a_body_come_before_that_of_disconnect(
    connect: Any, broker: Any, thread: Thread, *, is_slow: bool
) -> None:
    peer = subscribed(connect, thread)
    broker.route(inflating(1))
    broker.disk_is_slow = is_slow
    frames = peer.send(
        "SEND\ndestination:/queue/a\npersistent:true\nreceipt:1\n\n^",
        "DISCONNECT\nreceipt:2\n\n^",
    )  # fmt: skip
    if is_slow:
        broker.sync()
        frames = peer.receive()
    assert frames == ["RECEIPT\nreceipt-id:1\n\n", "RECEIPT\nreceipt-id:2\n\n"]
    thread.finish()
    assert peer.receive() == []


def test_a_compressed_text_is_rendered_as_it_is_without(connect: Any, broker: Any, thread: Thread) -> None:
    peer = subscribed(connect, thread)
    text = "a\0\U0001f600ä" * (LONG // 4)
    broker.route(message(1, encode_text(text)))
    broker.route(message(2, zlib.compress(encode_text(text)), compressed=True))
    frames = []
    for _ in range(2):
        thread.finish()
        frames += peer.receive()
    plain, compressed = (frame.split("\n\n", 1) for frame in frames)
    assert compressed[1] == plain[1]
    assert ids([compressed[0], plain[0]]) == ["2", "1"]
    assert len(compressed[0]) == len(plain[0])


def test_a_compressed_text_that_is_no_utf8_is_sent_as_it_is(connect: Any, broker: Any, thread: Thread) -> None:
    peer = subscribed(connect, thread)
    broker.route(message(1, zlib.compress(b"\x00\x00\x00\x07" + b"a" * LONG), compressed=True))
    thread.finish()
    assert peer.receive()[0].endswith("\n\n" + "a" * LONG)


def test_long_properties_are_escaped_as_short_ones_are(connect: Any, broker: Any, thread: Thread) -> None:
    peer = subscribed(connect, thread)
    value = "a:\n\\\0\U0001f600ä"
    short = {"first": 1, "n:a\nme": value, "last": value}
    long = {"first": 1, "n:a\nme": value * (LONG // 8), "last": value}
    broker.route(message(1, encode_text("x"), properties=short))
    broker.route(message(2, encode_text("x"), properties=long))
    thread.finish()
    first, second = (frame.partition("\nn_a_me:")[2].partition("\n") for frame in peer.receive())
    assert second[0] == first[0] * (LONG // 8)
    assert second[2] == first[2]


def test_frame_head_of_long_properties_is_in_pieces() -> None:
    """The thread keeps the interpreter for a piece at a time, and the loop's thread joins none of them."""
    names = DestinationNames(None, temporaries_max=0)  # type: ignore[arg-type]
    writer = MessageWriter(names, Version.V1_2, subscription_id="1", transformation=None)
    properties = {"p": "\U0001f600" * INLINE_BYTES_MAX, "q": "a:" * INLINE_BYTES_MAX}
    slow = SlowBody(writer, message(1, encode_text("x"), properties=properties))
    slow.render()
    lines = slow.rendered().lines
    assert len(lines) > 40
    assert max(map(len, lines)) < 1 << 19


def rendered(each: Message, version: Version = Version.V1_2) -> SlowBody:
    """Return the body of a message, rendered for another subscription."""
    names = DestinationNames(None, temporaries_max=0)  # type: ignore[arg-type]
    slow = SlowBody(MessageWriter(names, version, subscription_id="1", transformation=None), each)
    slow.render()
    return slow


def test_a_long_text_to_a_topic_is_rendered_once_for_all_subscribers() -> None:
    each = message(1, encode_text("😀" * LONG))
    each.destination = topic("t")
    first, second, other = rendered(each), rendered(each), rendered(each, Version.V1_1)
    assert first.rendered() is second.rendered()
    assert other.rendered() is not first.rendered(), "its headers have other escapes"
    made = weakref.ref(first.rendered())
    del first
    assert made() is not None
    del second
    assert made() is None, "a message that waits for others does not keep it"
    assert rendered(each).rendered().pieces == other.rendered().pieces


def test_a_long_text_to_a_queue_is_rendered_for_its_consumer_alone() -> None:
    each = message(1, encode_text("😀" * LONG))
    assert rendered(each).rendered() is not rendered(each).rendered()
    assert each.decoded is None


def test_a_long_message_that_does_not_decode_is_rejected(connect: Any, broker: Any, thread: Thread) -> None:
    peer = subscribed(connect, thread)
    long = message(1, encode_text("a" * LONG))
    broken = long.data[:-1]
    long.data = broken
    broker.route(long)
    broker.route(message(2, encode_text("good")))
    while thread.jobs:
        thread.finish()
    first, *others = peer.receive()
    assert "cannot be rendered" in first
    assert ids(others) == ["2"]


def test_a_long_message_has_headers_overridden_as_a_short_one(connect: Any, broker: Any, thread: Thread) -> None:
    peer = subscribed(connect, thread)
    properties = {"a": "1", "priority": "high", "content-length": "7", "subscription": "no", "z": "2"}
    for number, text in ((1, "a\0"), (2, "a\0" * LONG)):
        broker.route(message(number, encode_text(text), properties=properties))
    thread.finish()
    short, long = (frame.partition("\n\n") for frame in peer.receive())
    assert sorted(long[0].splitlines()) == sorted(
        short[0].replace("length:2", f"length:{2 * LONG}").replace("c1\\c1\\c1\\c1", "c1\\c1\\c1\\c2").splitlines()
    )
    assert long[2].startswith("a\0a")
