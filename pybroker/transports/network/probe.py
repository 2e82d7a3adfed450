"""Looks which broker answers at the addresses of network connectors, without a login, for `pybroker doctor`.

```text
connect, TLS handshake, WireFormatInfo -->  <-- WireFormatInfo, BrokerInfo; then the connection is closed
```

All addresses are asked at the same time, each by a thread, because a look-up of a host name cannot be interrupted. One
that has not answered in time counts as silent, and its thread ends with the process.
"""

import socket
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pybroker.broker.domain.errors import BrokerError, ConfigError, ProtocolError
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.introduction import introduced
from pybroker.broker.domain.openwire.commands import BrokerInfo
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.framing import FrameReader
from pybroker.broker.domain.openwire.marshal.wireformat import agree, broker_offer, decode_offer, encode_offer
from pybroker.transports.network.discovery import RemoteAddress
from pybroker.transports.network.outgoing import tls_context, tls_remedy
from pybroker.transports.network.remote_text import FIRST_BYTES, no_wire_format, one_line, protocol_hint

PROBE_SECONDS: Final = 5.0
"""The limit to the time for all addresses together."""

_CHUNK_BYTES: Final = 64 << 10
_BYTES_MAX: Final = 1 << 20
"""The limit to what is read of an address: a BrokerInfo has some hundred bytes, and as much for each of its peers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswer:
    """The answer of one address.

    Attributes:
        broker_id: the id of the broker there; empty: none has answered.
        broker_name: its name; empty as above.
        problem: why none has, in one line; empty: one has.
        is_resolved: False if its host name has no address.
    """

    broker_id: str = ""
    broker_name: str = ""
    problem: str = ""
    is_resolved: bool = True


ProbeKey = tuple[str, RemoteAddress]
"""The name of a connector, whose certificates are used, and an address of it."""


def probe(
    asked: Iterable[tuple[NetworkConnector, RemoteAddress]], seconds: float = PROBE_SECONDS
) -> Mapping[ProbeKey, ProbeAnswer]:
    """Return the answer of each address of a connector. Blocks for the given time at most."""
    until = time.monotonic() + seconds
    silent = ProbeAnswer(problem=f"no answer within {seconds:g} s")
    found: dict[ProbeKey, ProbeAnswer] = {}

    def ask(connector: NetworkConnector, address: RemoteAddress) -> None:
        found[connector.name, address] = _answer(connector, address, until, silent)

    wanted = {(connector.name, address): connector for connector, address in asked}
    threads = [
        threading.Thread(target=ask, args=(connector, address), daemon=True)
        for (_, address), connector in wanted.items()
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join(max(0.0, until - time.monotonic()))
    answers = dict(found)
    return {key: answers.get(key, silent) for key in wanted}


def _answer(connector: NetworkConnector, address: RemoteAddress, until: float, silent: ProbeAnswer) -> ProbeAnswer:
    try:
        return _ask(connector, address, until)
    except TimeoutError:
        return silent
    except ConnectionRefusedError:
        return ProbeAnswer(problem="connection refused")
    except (socket.gaierror, UnicodeError):
        return ProbeAnswer(problem=f"the host name {address.host} has no address", is_resolved=False)
    except ssl.SSLError as error:
        remedy = tls_remedy(error, has_certificate=bool(connector.tls_certificate))
        text = getattr(error, "verify_message", "") or error.reason or str(error)
        return ProbeAnswer(problem=one_line(f"the TLS handshake failed: {text}{remedy}"))
    except (OSError, BrokerError, ConfigError) as error:
        return ProbeAnswer(problem=one_line(str(error)))


def _ask(connector: NetworkConnector, address: RemoteAddress, until: float) -> ProbeAnswer:
    """Connect, and read until the BrokerInfo.

    Raises:
        OSError: the connection fails.
        BrokerError: the other side is no broker.
    """
    with socket.create_connection((address.host, address.port), timeout=_left(until)) as plain:
        if not address.is_tls:
            return _greet(plain, until)
        context = tls_context(connector, address)
        with context.wrap_socket(plain, server_hostname=address.host) as encrypted:
            return _greet(encrypted, until)


def _greet(connection: socket.socket, until: float) -> ProbeAnswer:
    mine = broker_offer()
    connection.sendall(encode_offer(mine))
    frames = FrameReader(_BYTES_MAX)
    wire: WireFormat | None = None
    first, count = b"", 0
    while count < _BYTES_MAX:
        connection.settimeout(_left(until))
        chunk = connection.recv(_CHUNK_BYTES)
        if not chunk:
            break
        count += len(chunk)
        first += chunk[: FIRST_BYTES - len(first)]
        try:
            frames.feed(chunk)
            while frames.advance():
                frame = frames.data[frames.start : frames.stop]
                if wire is None:
                    wire = agree(mine, decode_offer(frame)).wire_format()
                elif isinstance(command := wire.decode(frame), BrokerInfo):
                    broker_id, name = introduced(command)
                    return ProbeAnswer(broker_id=broker_id, broker_name=name)
        except BrokerError as error:
            raise ProtocolError(no_wire_format(error, first) if wire is None else str(error)) from error
    raise ProtocolError(
        f"it closes the connection without an answer: {protocol_hint(first)}" if wire is None else "no BrokerInfo came"
    )


def _left(until: float) -> float:
    """Return the time that is left, as a time-out of a socket, for which 0 would be another mode."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
