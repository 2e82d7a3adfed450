"""A bridge whose remote broker has shown, by a bridge of its own, that it serves again."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from tests.unit.transports.network.bridges import TwoBrokers
from tests.unit.transports.network.dialling import Far, Place, raw_server, run


async def seconds_to_next_failure(place: Place) -> float:
    """Return the time from now until another attempt has failed; a delay began some milliseconds before now."""
    now = asyncio.get_running_loop().time
    began = now()
    await place.until_failures(len(place.failures) + 1)
    return now() - began


def test_long_delay_ends_when_the_remote_broker_serves(caplog: pytest.LogCaptureFixture) -> None:
    """The first delay passes in any case, and the next one grows as it would have."""

    async def scenario(place: Place) -> None:
        async with raw_server(b"") as port:
            pass
        life = place.dial(f"tcp://127.0.0.1:{port}")
        await place.until_failures(4)
        before_ms = life.row.next_attempt_ms
        life.remote_serves("far")
        assert before_ms - life.row.next_attempt_ms > 6_900, "8 s, of which 1 s is left"
        assert 0.9 < await seconds_to_next_failure(place) < 2
        assert place.failures[-1].endswith("in 16 s")
        assert 15.9 < await seconds_to_next_failure(place) < 17

    run(caplog, scenario)


def test_only_the_broker_of_the_bridge_ends_its_delay(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(place: Place) -> None:
        far = Far(place.far_server)
        life = place.dial(f"tcp://127.0.0.1:{far.listen()}")
        life.remote_serves("far")  # no delay has begun
        await place.until_up(life)
        place.far_server.abort()
        await place.until_failures(4)
        life.remote_serves("another")
        assert await seconds_to_next_failure(place) > 7.9
        life.remote_serves("far")
        assert await seconds_to_next_failure(place) < 2

    run(caplog, scenario)


def test_bridge_of_another_broker_is_reported_and_a_client_is_not() -> None:
    brokers = TwoBrokers()
    reported: list[str] = []
    brokers.sessions.on_bridge = reported.append
    brokers.client(brokers.far, "c")
    assert reported == []
    brokers.cut()
    brokers.connect()
    brokers.cut()
    brokers.connect(duplex=True)
    assert reported == ["near", "near"]


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("passes", range(8))
def test_stop_while_it_connects_leaves_no_connection(
    caplog: pytest.LogCaptureFixture, loop: Callable[[], asyncio.AbstractEventLoop], passes: int
) -> None:
    """In whichever pass of the loop the connector stops."""

    async def scenario(place: Place) -> None:
        async with raw_server(b"") as port:
            life = place.dial(f"tcp://127.0.0.1:{port}")
            for _ in range(passes):
                await asyncio.sleep(0)
            life.stop()
            for _ in range(10):
                await asyncio.sleep(0)
            assert not place.server.connections

    run(caplog, scenario, loop)
