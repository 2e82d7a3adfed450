"""The loop over packets: order, slices, packets that come again, errors, and its end."""

from collections.abc import Iterator

import pytest

from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.errors import BrokerError
from pybroker.transports.fair_queue import FRAMES_PER_CLOCK
from pybroker.transports.frame_memory import UNRESERVED_BYTES
from pybroker.transports.packet_loop import PacketLoop
from tests.unit.transports.openwire.conversation import FakeLink


class Letters:
    """A decoder that makes a packet of each letter; `!` is malformed."""

    def __init__(self) -> None:
        self.received = self.unfinished = 0

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Yield the letters."""
        for each in chunk.decode():
            if each == "!":
                raise BrokerError("no letter")
            yield each

    def clear(self) -> None:
        """Forget what is unfinished."""
        self.received = self.unfinished = 0


class Slices(FakeLink):
    """A link whose slice ends when the test wants, and that counts reserved memory."""

    def __init__(self) -> None:
        super().__init__()
        self.is_over = False
        self.reserved = 0

    def is_slice_over(self) -> bool:
        """Return True if others should go first."""
        return self.is_over

    def reserve_frame(self, size: int, received: int) -> None:
        """Reserve."""
        del received
        self.reserved = size

    def release_frame(self) -> None:
        """Release."""
        self.reserved = 0


class Rig:
    """A loop whose packets are noted."""

    def __init__(self) -> None:
        self.link = Slices()
        self.decoder = Letters()
        self.obeyed: list[str] = []
        self.errors: list[str] = []
        self.later = ""
        self.loop: PacketLoop[str] = PacketLoop(self.link, self.decoder, self.obey, self.fail)

    def obey(self, packet: str) -> bool:
        """Note a packet; `h` holds, `e` ends and raises an error; one of `later` must come again."""
        if packet in self.later:
            return True
        self.obeyed.append(packet)
        if packet == "h":
            self.loop.is_deaf = True
        elif packet == "e":
            self.loop.end()
            raise BrokerError("ended")
        return False

    def fail(self, error: BrokerError) -> None:
        """Note an error."""
        self.errors.append(str(error))


@pytest.fixture
def rig() -> Rig:
    EFFORT.is_large = False  # other tests leave it set
    return Rig()


def test_packets_are_carried_out_in_order(rig: Rig) -> None:
    assert not rig.loop.receive(b"abc")
    assert rig.obeyed == ["a", "b", "c"]


def test_packets_wait_when_the_slice_is_over(rig: Rig) -> None:
    rig.link.is_over = True
    count = 2 * FRAMES_PER_CLOCK + 1
    assert rig.loop.receive(b"a" * count)
    assert len(rig.obeyed) == FRAMES_PER_CLOCK
    assert rig.loop.proceed()
    assert not rig.loop.proceed()
    assert len(rig.obeyed) == count


def test_a_packet_comes_again_before_the_others(rig: Rig) -> None:
    rig.later = "b"
    assert rig.loop.receive(b"abc")
    assert rig.loop.proceed()
    rig.later = ""
    assert not rig.loop.proceed()
    assert rig.obeyed == ["a", "b", "c"]


def test_a_held_session_gets_the_others_when_it_is_released(rig: Rig) -> None:
    assert not rig.loop.receive(b"ahb")
    assert not rig.loop.proceed()
    rig.loop.is_deaf = False
    assert not rig.loop.proceed()
    assert rig.obeyed == ["a", "h", "b"]


def test_packets_before_a_malformed_one_are_carried_out(rig: Rig) -> None:
    assert not rig.loop.receive(b"ab!c")
    assert (rig.obeyed, rig.errors) == (["a", "b"], ["no letter"])


def test_an_error_behind_the_end_is_told(rig: Rig) -> None:
    assert not rig.loop.receive(b"aeb")
    assert (rig.obeyed, rig.errors) == (["a", "e"], ["ended"])
    assert not rig.loop.receive(b"c")
    assert rig.obeyed == ["a", "e"]


def test_memory_of_a_large_packet_is_released_when_it_is_carried_out(rig: Rig) -> None:
    rig.decoder.received, rig.decoder.unfinished = UNRESERVED_BYTES + 1, 10 * UNRESERVED_BYTES
    rig.loop.receive(b"a")
    assert rig.link.reserved == 10 * UNRESERVED_BYTES
    rig.decoder.clear()
    rig.later = "b"
    assert rig.loop.receive(b"b")
    assert rig.link.reserved == 10 * UNRESERVED_BYTES
    rig.later = ""
    assert not rig.loop.proceed()
    assert rig.link.reserved == 0
