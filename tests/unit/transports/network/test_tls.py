"""Network connectors with TLS, over real sockets: what they verify, and one line with the remedy for each failure."""

import asyncio
import re
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pybroker.transports.network.connector import BridgeState
from pybroker.transports.tls import server_context
from tests.unit.transports.certificates import Certificates
from tests.unit.transports.network.dialling import Far, Place, SkippingLoop, raw_server, run

LOOPS = asyncio.new_event_loop
"""TLS is computed in threads, for which a clock that skips would not wait."""

REMEDY = re.compile(r"; the next attempt is in [0-9.]+ s$")


@pytest.fixture
def far_context(certificates: Certificates) -> Callable[..., ssl.SSLContext]:
    return partial(server_context, certificates.both)


def first_failure(
    caplog: pytest.LogCaptureFixture,
    certificates: Certificates,
    context: ssl.SSLContext | None,
    *,
    uri: str = "ssl://127.0.0.1:{port}",
    **attributes: Any,
) -> str:
    """Return the line about the first attempt, without the delay."""
    found: list[str] = []

    async def scenario(place: Place) -> None:
        port = Far(place.far_server).listen(context)
        place.dial(uri.format(port=port), **{"tls_ca": str(certificates.authority), **attributes})
        found.extend(await place.until_failures(1))
        assert len([each for each in place.lines if "next attempt" not in each]) == 0, "one line for each attempt"

    run(caplog, scenario, LOOPS)
    line, count = REMEDY.subn("", found[0])
    assert count == 1
    return line


@pytest.mark.parametrize("uri", ["ssl://localhost:{port}", "masterslave:(ssl://127.0.0.1:1,ssl://127.0.0.1:{port})"])
def test_bridge_stands_over_tls(
    uri: str, caplog: pytest.LogCaptureFixture, certificates: Certificates, far_context: Callable[..., ssl.SSLContext]
) -> None:
    async def scenario(place: Place) -> None:
        port = Far(place.far_server).listen(far_context())
        life = place.dial(uri.format(port=port), tls_ca=str(certificates.authority))
        await place.until_up(life)
        assert life.row.remote_name == "far"

    run(caplog, scenario, LOOPS)


def test_client_certificate_is_presented(
    caplog: pytest.LogCaptureFixture, certificates: Certificates, far_context: Callable[..., ssl.SSLContext]
) -> None:
    async def scenario(place: Place) -> None:
        port = Far(place.far_server).listen(far_context(client_ca=certificates.authority))
        ours = {"tls_ca": str(certificates.authority), "tls_certificate": str(certificates.client)}
        await place.until_up(place.dial(f"ssl://127.0.0.1:{port}", **ours))

    run(caplog, scenario, LOOPS)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_missing_client_certificate_names_the_settings(
    version: ssl.TLSVersion,
    caplog: pytest.LogCaptureFixture,
    certificates: Certificates,
    far_context: Callable[..., ssl.SSLContext],
) -> None:
    context = far_context(client_ca=certificates.authority)
    context.maximum_version = version
    line = first_failure(caplog, certificates, context)
    assert line.endswith("the remote broker may want a certificate: set tls_certificate and tls_key")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_strange_client_certificate_is_refused(
    version: ssl.TLSVersion,
    caplog: pytest.LogCaptureFixture,
    certificates: Certificates,
    far_context: Callable[..., ssl.SSLContext],
) -> None:
    context = far_context(client_ca=certificates.authority)
    context.maximum_version = version
    line = first_failure(caplog, certificates, context, tls_certificate=str(certificates.strange_client))
    assert line.endswith(
        "the remote broker does not accept tls_certificate; it needs one of an authority trusted there"
    )


def test_wrong_authority_names_tls_ca(
    caplog: pytest.LogCaptureFixture, certificates: Certificates, far_context: Callable[..., ssl.SSLContext]
) -> None:
    line = first_failure(caplog, certificates, far_context(), tls_ca=str(certificates.strange_authority))
    assert re.fullmatch(
        r"TLS handshake failed: certificate verify failed: unable to get local issuer "
        r"certificate: set tls_ca to a file with the certificate of its authority",
        line,
    )


@pytest.mark.parametrize(
    ("uri", "attributes", "stands"),
    [
        ("ssl://127.0.0.1:{port}", {}, False),
        ("ssl://127.0.0.1:{port}", {"tls_verify_hostname": False}, True),
        ("ssl://127.0.0.1:{port}?socket.verifyHostName=false", {}, True),
    ],
)
def test_wrong_host_name_names_the_remedy(
    uri: str, attributes: dict[str, Any], stands: bool, caplog: pytest.LogCaptureFixture, certificates: Certificates
) -> None:
    """The client's certificate is for the host `client` only, and trusted."""
    context = server_context(certificates.client)
    if not stands:
        line = first_failure(caplog, certificates, context, uri=uri, **attributes)
        assert "IP address mismatch" in line
        assert line.endswith("write in the uri the host that its certificate names, or set tls_verify_hostname = false")
        return

    async def scenario(place: Place) -> None:
        port = Far(place.far_server).listen(context)
        await place.until_up(place.dial(uri.format(port=port), tls_ca=str(certificates.authority), **attributes))

    run(caplog, scenario, LOOPS)


def test_plain_port_behind_ssl_names_tcp(caplog: pytest.LogCaptureFixture, certificates: Certificates) -> None:
    line = first_failure(caplog, certificates, None)
    assert line.endswith(
        "the port seems to be one without TLS: write tcp:// in the uri, or the port of a listener with TLS"
    )


def test_unreadable_files_are_one_line(caplog: pytest.LogCaptureFixture, certificates: Certificates) -> None:
    line = first_failure(caplog, certificates, None, tls_ca="/nowhere.pem")
    assert "tls_ca: cannot read /nowhere.pem: No such file or directory" in line


def test_server_that_closes_in_the_handshake_is_one_line(
    caplog: pytest.LogCaptureFixture, certificates: Certificates
) -> None:
    async def scenario(place: Place) -> None:
        async with raw_server(b"", closes=True) as port:
            place.dial(f"ssl://127.0.0.1:{port}", tls_ca=str(certificates.authority))
            (line,) = await place.until_failures(1)
        assert "TLS handshake failed: the peer left before its end" in line

    run(caplog, scenario, LOOPS)


def test_silent_server_is_given_up_after_30_s(caplog: pytest.LogCaptureFixture, certificates: Certificates) -> None:
    async def scenario(place: Place) -> None:
        loop = asyncio.get_running_loop()
        async with raw_server(b"") as port:
            began = loop.time()
            uri = f"ssl://127.0.0.1:{port}?connectionTimeout=0"
            life = place.dial(uri, tls_ca=str(certificates.authority))
            await place.until(lambda: life.row.state == BridgeState.WAITING.value)
            assert 29.9 < loop.time() - began < 31.5
        (line,) = place.failures
        assert "TLS handshake failed: not over within 30 seconds" in line

    run(caplog, scenario, SkippingLoop)


def test_stop_during_a_handshake_leaves_nothing(caplog: pytest.LogCaptureFixture, certificates: Certificates) -> None:
    async def scenario(place: Place) -> None:
        ended = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            life.stop()
            await reader.read()
            writer.close()
            ended.set()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            life = place.dial(f"ssl://127.0.0.1:{port}", tls_ca=str(certificates.authority))
            await asyncio.wait_for(ended.wait(), 20)
        assert life.row.state == BridgeState.STOPPED.value
        assert place.lines == []

    run(caplog, scenario, LOOPS)
