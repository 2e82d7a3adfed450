"""STOMP: chunks do not matter, prefixes wait, nonsense raises only what is documented, escapes round-trip."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.domain.errors import ProtocolError
from pybroker.broker.domain.stomp.codec import FrameDecoder, encode_frame
from pybroker.broker.domain.stomp.frames import Command, Frame, StompLimits, Version
from pybroker.store.memory import MemoryStore
from pybroker.transports.stomp.session import StompSession

SMALL = StompLimits(command_bytes=20, header_line_bytes=40, header_count=5, head_bytes=100, body_bytes=50)

versions = st.sampled_from(Version)
text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n:"), min_size=1)
bodies = st.binary(max_size=200)


@st.composite
def client_frames(draw: st.DrawFn) -> bytes:
    """A frame as a tolerant client would write it."""
    end = draw(st.sampled_from([b"\n", b"\r\n"]))
    body = draw(bodies)
    lines = [draw(st.sampled_from(Command)).encode()]
    lines += [f"{name}:{value}".encode() for name, value in draw(st.dictionaries(names, names, max_size=4)).items()]
    if draw(st.booleans()) or b"\0" in body:
        lines.insert(1, b"content-length:%d" % len(body))
    return draw(st.sampled_from([b"", b"\n", b"\r\n\0"])) + end.join([*lines, b"", b""]) + body + b"\0"


def decode(decoder: FrameDecoder, chunks: list[bytes]) -> list[Frame]:
    return [frame for chunk in chunks for frame in decoder.feed(chunk)]


def decoder_for(version: Version, limits: StompLimits | None = None) -> FrameDecoder:
    decoder = FrameDecoder(limits or StompLimits())
    decoder.version = version
    return decoder


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[begin:end] for begin, end in pairwise(edges)]


@given(st.lists(client_frames(), min_size=1, max_size=5), versions, st.lists(st.integers(min_value=0), max_size=10))
def test_chunks_do_not_matter(frames: list[bytes], version: Version, places: list[int]) -> None:
    data = b"".join(frames)
    whole = decode(decoder_for(version), [data])
    assert len(whole) == len(frames)
    assert decode(decoder_for(version), [data[at : at + 1] for at in range(len(data))]) == whole
    assert decode(decoder_for(version), cut(data, places)) == whole


@given(client_frames(), versions)
def test_every_prefix_waits(data: bytes, version: Version) -> None:
    for end in range(len(data)):
        assert decode(decoder_for(version), [data[:end]]) == []


@given(names, st.dictionaries(names, text, max_size=4), bodies, st.sampled_from([Version.V1_1, Version.V1_2]))
def test_what_is_encoded_is_decoded_again(name: str, headers: dict[str, str], body: bytes, version: Version) -> None:
    if version is Version.V1_1:  # which has no escape for a carriage return, and does not need one
        headers = {key: value.removesuffix("\r") for key, value in headers.items()}
    headers["content-length"] = str(len(body))
    data = encode_frame("MESSAGE", headers, body, version)
    assert decode(decoder_for(version), [data]) == [Frame("MESSAGE", headers, body)]


def decode_until_broken(decoder: FrameDecoder, chunks: list[bytes]) -> tuple[list[Frame], str]:
    """Return the frames before the first broken one, and the error of that one."""
    frames: list[Frame] = []
    try:
        for chunk in chunks:
            for frame in decoder.feed(chunk):
                frames.append(frame)
    except ProtocolError as error:
        return frames, str(error)
    return frames, ""


@given(st.lists(st.binary(max_size=60), max_size=5), versions)
def test_random_bytes_raise_only_protocol_errors(chunks: list[bytes], version: Version) -> None:
    decode_until_broken(decoder_for(version, SMALL), chunks)


fragments = st.sampled_from([b"SEND\n", b"a:b\n", b"\n", b"\r\n", b"\0", b"content-length:3\n", b"abc"])


@given(st.lists(fragments, max_size=30), st.lists(st.integers(min_value=0), max_size=10))
def test_chunks_do_not_matter_for_broken_frames_either(parts: list[bytes], places: list[int]) -> None:
    data = b"".join(parts)
    frames, error = decode_until_broken(decoder_for(Version.V1_2, SMALL), [data])
    others, other_error = decode_until_broken(decoder_for(Version.V1_2, SMALL), cut(data, places))
    assert (others, bool(other_error)) == (frames, bool(error))


# ---------------------------------------------------------------- the session


class Link:
    """Takes everything; notices what must not happen."""

    peer = "127.0.0.1:1"
    ending = ""

    def __init__(self) -> None:
        self.closed = False
        self.output = bytearray()
        self.certificate: str | None = None
        self.reading_since = 0.0
        self.is_input_waiting = False

    def write(self, data: bytes | memoryview) -> None:
        assert not self.closed
        self.output += data

    def close(self) -> None:
        self.closed = True

    def time(self) -> float:
        return 0.0

    def wake_at(self, when: float | None) -> None:
        """No time passes."""

    def pause_reading(self) -> None:
        """Always read."""

    def resume_reading(self) -> None:
        """Always read."""

    def hold_input(self) -> None:
        """Not called: all work is done at once."""

    def give_up(self, error: Exception) -> None:
        """Fail."""
        raise error

    def release_input(self) -> None:
        """Not called, as above."""

    def in_thread(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Do it at once."""
        work()
        done()

    def write_pieces(self, pieces: Sequence[bytes]) -> None:
        for piece in pieces:
            self.write(piece)

    def reserve_frame(self, size: int, received: int) -> None:
        """Do nothing: this link has all memory."""

    def release_frame(self) -> None:
        """Do nothing, as above."""

    def is_slice_over(self) -> bool:
        return False


def new_session() -> tuple[StompSession, Link]:
    link = Link()
    broker = BrokerCore("b", store=MemoryStore(), clock=lambda: 1)
    session = StompSession(broker=broker, link=link, connection_id="ID:c", limits=StompLimits(), clock=lambda: 1)
    return session, link


header_lines = st.sampled_from(
    [
        "id:1", "id:2", "destination:/queue/a", "destination:/topic/t", "destination:/temp-queue/x", "destination:",
        "destination:/queue/>", "ack:client", "ack:client-individual", "ack:auto", "transaction:t", "receipt:r",
        "persistent:true", "priority:x", "priority:7", "expires:0", "browser:true", "selector:a = 1", "selector:a =",
        "activemq.subscriptionName:n", "activemq.prefetchSize:1", "subscription:1", "message-id:ID:c:-1:1:1",
        "id:ID\\cc\\c1\\c1", "id:ID\\cc\\c1\\c2", "content-length:1", "amq-msg-type:text", "amq-msg-type:x",
        "reply-to:/temp-queue/y", "reply-to:z", "JMSReplyTo:", "transformation:jms-xml", "client-id:", "ack:x",
    ]
)  # fmt: skip


@st.composite
def plausible_frames(draw: st.DrawFn) -> str:
    command = draw(st.sampled_from(Command))
    lines = draw(st.lists(header_lines, max_size=6, unique_by=lambda line: line.partition(":")[0]))
    return "\n".join([command, *lines, "", ""]) + "x\0"


steps = st.one_of(
    plausible_frames().map(lambda frame: ("receive", frame.encode())),
    st.binary(max_size=30).map(lambda data: ("receive", data)),
    st.sampled_from([("written", None), ("pause_writing", None), ("on_timer", None)]),
)


@given(st.sampled_from(Version), st.lists(steps, max_size=30))
def test_session_raises_nothing_whatever_the_peer_does(
    version: Version, things: list[tuple[str, bytes | None]]
) -> None:
    session, link = new_session()
    session.receive(f"CONNECT\naccept-version:{version.value}\nheart-beat:10,10\n\n\0".encode())
    for name, argument in things:
        if link.closed and name == "receive":
            break
        method = getattr(session, name)
        (method if argument is None else partial(method, argument))()
    session.lost()
    assert decode(decoder_for(version), [bytes(link.output)])[0].command == "CONNECTED"
