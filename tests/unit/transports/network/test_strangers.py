"""Network connectors that meet no broker, themselves, or a broker of doubtful manners: one line each, and a wait."""

import asyncio
import re
import ssl
from collections.abc import Iterable
from unittest.mock import Mock

import pytest

from pybroker.broker.domain.openwire.commands import (
    BaseCommand,
    BrokerId,
    BrokerInfo,
    ConnectionErrorCommand,
    KeepAliveInfo,
)
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.wireformat import broker_offer, encode_offer
from pybroker.broker.domain.openwire.throwables import Throwable
from pybroker.transports.network.bridge import BridgeEnd
from pybroker.transports.network.connector import BridgeState
from pybroker.transports.network.discovery import parse
from pybroker.transports.tls import server_context
from tests.unit.transports.certificates import Certificates
from tests.unit.transports.network.bridges import Near, named_broker
from tests.unit.transports.network.dialling import Far, Place, raw_server, run

STOMP = b"ERROR\nmessage:Unknown STOMP action\n\n\0"
HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
OPENWIRE = "write in the uri the port of a listener for OpenWire"


def frames(commands: Iterable[BaseCommand]) -> bytes:
    """Return what a broker sends first, and these commands."""
    wire = WireFormat(version=12)
    return b"".join((encode_offer(broker_offer()), *(wire.encode_frame(each) for each in commands)))


@pytest.mark.parametrize("closes", [True, False])
@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (STOMP, f"it speaks STOMP: {OPENWIRE}"),
        (HTTP, f"it is an HTTP server: {OPENWIRE}"),
        (b"AMQP\x00\x01\x00\x00", f"it speaks AMQP: {OPENWIRE}"),
        (
            b"\x15\x03\x01\x00\x02\x02\x46",
            "it answers with TLS: write ssl:// in the uri, or the port of a listener without TLS",
        ),
        (b"\x20\x02\x00\x01", f"it speaks MQTT: {OPENWIRE}"),
        (bytes(range(200, 256)) * 9, f"it does not speak OpenWire: {OPENWIRE}"),
        (b"\x00\x00\x00\x05hello", f"it does not speak OpenWire: {OPENWIRE}"),
        (frames([])[:-9] + bytes(9), f"it does not speak OpenWire: {OPENWIRE}"),
    ],
)
def test_other_protocol_is_named_and_retried_ever_later(
    answer: bytes, hint: str, closes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(place: Place) -> None:
        async with raw_server(answer, closes=closes) as port:
            life = place.dial(f"static:(tcp://127.0.0.1:{port})?maxReconnectDelay=10000")
            lines = await place.until_failures(6)
            assert life.row.failures_in_a_row >= 6
        assert [line.rpartition(" in ")[2] for line in lines] == ["1 s", "2 s", "4 s", "8 s", "10 s", "10 s"]
        reasons = {line.rpartition("; the next")[0] for line in lines}
        if "does not speak" in hint:  # then the line begins with what is wrong with the bytes
            assert {each.endswith(f": {hint}") for each in reasons} == {True}
        else:
            assert {each.rpartition("WireFormatInfo: ")[2] for each in reasons} == {hint}
        assert len(place.lines) == len(place.failures), "nothing else is logged"

    run(caplog, scenario)


def test_tls_port_behind_tcp_names_ssl(caplog: pytest.LogCaptureFixture, certificates: Certificates) -> None:
    context: ssl.SSLContext = server_context(certificates.both)

    async def scenario(place: Place) -> None:
        port = Far(place.far_server).listen(context)
        place.dial(f"tcp://127.0.0.1:{port}")
        (line,) = await place.until_failures(1)
        assert "before its WireFormatInfo: it may want TLS, then write ssl:// in the uri" in line

    run(caplog, scenario, asyncio.new_event_loop)


@pytest.mark.parametrize("answer", [b"", frames([])], ids=["nothing", "wire-format"])
def test_silent_server_is_given_up_within_30_s(answer: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(place: Place) -> None:
        loop = asyncio.get_running_loop()
        async with raw_server(answer) as port:
            began = loop.time()
            life = place.dial(f"static:(tcp://127.0.0.1:{port})")
            (line,) = await place.until_failures(1)
            assert 29.9 < loop.time() - began < 31.5
            assert life.row.state == BridgeState.WAITING.value
        assert line.startswith("no BrokerInfo came within 30 seconds: is it a broker?")

    run(caplog, scenario)


def test_silent_server_is_dialled_ever_later(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(place: Place) -> None:
        async with raw_server(b"") as port:
            life = place.dial(f"static:(tcp://127.0.0.1:{port})")
            lines = await place.until_failures(3)
            assert life.row.failures_in_a_row == 3
        assert [line.rpartition(" in ")[2] for line in lines] == ["1 s", "2 s", "4 s"]

    run(caplog, scenario)


def test_login_without_an_answer_is_given_up() -> None:
    """The broker behind the port hangs after its BrokerInfo, while something else keeps the connection alive."""
    near = Near(named_broker("near"))
    session, link = near.bridge()
    session.receive(frames([BrokerInfo(broker_id=BrokerId("far"), broker_name="far")]))
    while session.end is None:
        assert link.wakes_at is not None
        assert link.wakes_at <= 30
        link.now = link.wakes_at
        session.receive(WireFormat(version=12).encode_frame(KeepAliveInfo()))
        session.on_timer()
    assert link.now == 30
    assert (session.end, session.reason) == (BridgeEnd.LOST, "the login was not answered within 30 seconds")


def test_refused_port_is_one_line_for_each_attempt(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(place: Place) -> None:
        async with raw_server(b"") as port:
            pass
        place.dial(f"tcp://127.0.0.1:{port}")
        lines = await place.until_failures(7)
        refused = "connection refused: does a broker listen there?"  # the line begins with the address
        assert lines == [f"{refused}; the next attempt is in {each} s" for each in (1, 2, 4, 8, 16, 30, 30)]

    run(caplog, scenario)


def test_impossible_host_name_is_one_line_for_each_attempt(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(place: Place) -> None:
        place.dial("static:(tcp://far..example:61616)")
        assert len(set(line.rpartition("; the next")[0] for line in await place.until_failures(2))) == 1
        assert "far..example cannot be a host name" in place.lines[0]
        assert len(place.lines) == 2

    run(caplog, scenario)


def test_unexpected_error_of_an_attempt_is_logged_and_retried(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(place: Place) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("pybroker.transports.network.connector.connect", Mock(side_effect=KeyError("defect")))
            life = place.dial(f"static:(tcp://127.0.0.1:{Far(place.far_server).listen()})")
            assert await place.until_failures(1) == ["KeyError: 'defect'; the next attempt is in 1 s"]
        assert [bool(each.exc_info) for each in caplog.records] == [True, False]
        await place.until_up(life)

    run(caplog, scenario)


def test_masterslave_names_each_address_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(place: Place) -> None:
        async with raw_server(b"") as first, raw_server(b"") as second:
            pass
        place.dial(f"masterslave:(tcp://127.0.0.1:{first},tcp://127.0.0.1:{second})")
        (line,) = await place.until_failures(1)
        assert line.count("connection refused") == 2
        assert f":{first}: " in line
        assert f":{second}: " in line

    run(caplog, scenario)


def test_broker_that_closes_is_not_called_a_client(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(place: Place) -> None:
        far = Far(place.far_server)
        life = place.dial(f"tcp://127.0.0.1:{far.listen()}")
        await place.until_up(life)
        for connection in list(place.far_server.connections):
            connection.close()
        (line,) = await place.until_failures(1)
        assert line.startswith("the remote broker closed the connection; the next")
        assert "client" not in line

    run(caplog, scenario)


def test_bridge_to_itself_ends_for_good(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(place: Place) -> None:
        far = Far(place.server)
        far.broker = place.broker
        life = place.dial(f"tcp://127.0.0.1:{far.listen()}")
        await place.until(lambda: life.row.state == BridgeState.ENDED.value)
        (line,) = place.lines
        assert line.endswith("ends: the address is that of this broker itself")

    run(caplog, scenario)


def test_address_that_comes_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"tcp://h:1 comes twice"):
        parse("static:(tcp://h:1,tcp://g:1,tcp://h:1)")


def test_two_bridges_of_one_name_to_one_broker_wait_ever_longer(caplog: pytest.LogCaptureFixture) -> None:
    """The addresses differ, and the broker is the same."""

    async def scenario(place: Place) -> None:
        port = Far(place.far_server).listen()
        loop = asyncio.get_running_loop()
        place.dial_all(f"static:(tcp://127.0.0.1:{port},tcp://localhost:{port})")
        began = loop.time()
        await place.until_failures(12)
        assert loop.time() - began > 60, "delays grow"
        assert len(place.lines) < 30

    run(caplog, scenario)


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        (BrokerInfo(broker_name="far"), "the remote broker does not say its id and its name"),
        (BrokerInfo(broker_id=BrokerId("x")), "the remote broker does not say its id and its name"),
        (
            BrokerInfo(broker_id=BrokerId("x"), broker_name="f" * 60_000),
            "has 60000 characters, where 255",
        ),
        (
            BrokerInfo(broker_id=BrokerId("x" * 300), broker_name="far"),
            "the id of the remote broker has 300",
        ),
        (BrokerInfo(broker_id=BrokerId("x"), broker_name="f\nar"), "the name of the remote broker has 4 characters"),
        (ConnectionErrorCommand(exception=Throwable(class_name="x.Y", message="no\nway " + "!" * 9000)), "no way !!!"),
        (ConnectionErrorCommand(), "no reason was given"),
    ],
)
def test_strange_introduction_is_one_line(info: BaseCommand, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(place: Place) -> None:
        async with raw_server(frames([info])) as port:
            place.dial(f"tcp://127.0.0.1:{port}")
            lines = await place.until_failures(2)
        for line in lines:
            assert reason in line
            assert re.fullmatch(r"[^\n]{10,600}", line)
        assert len(place.lines) == len(place.failures)

    run(caplog, scenario)


def test_garbage_after_the_introduction_ends_the_bridge() -> None:
    near = Near(named_broker("near"))
    session, link = near.bridge()
    session.receive(frames([BrokerInfo(broker_id=BrokerId("x"), broker_name="far")]))
    assert session.is_connected
    session.receive(b"\xff" * 100)
    assert session.end is BridgeEnd.LOST
    assert link.closed
    assert "a frame of -1 bytes" in session.reason
