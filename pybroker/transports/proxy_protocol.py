"""Version 2 of the PROXY protocol: the header by which a proxy announces the address of its client. Pure.

```text
+---------------+------------------+--------------------+-------------+----------------+------+
| signature     | version, command | family, transport  | length      | addresses      | TLVs |
| 12 bytes      | u4, u4           | u4, u4             | u16 BE      | by family      |      |
+---------------+------------------+--------------------+-------------+----------------+------+
version    2
command    0 LOCAL: the proxy's own connection, such as a health check;  1 PROXY: a client's
family     0 unspecified;  1 IPv4: source u32, destination u32, ports u16 u16;  2 IPv6: with 16 bytes each;  3 UNIX
length     of addresses and TLVs
```

TLVs are skipped, that with a CRC-32C among them. Version 1, which is text, is refused.

Source: The PROXY protocol, versions 1 and 2 (HAProxy, doc/proxy-protocol.txt), section 2.2.
"""

import socket
from dataclasses import dataclass
from typing import Final

from pybroker.broker.domain.errors import ProtocolError

SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"

BYTES_MAX: Final = 8 << 10
"""The limit to a header. TLVs may have a client's certificate, of some kB."""

_FIXED_BYTES: Final = len(SIGNATURE) + 4
_VERSION_1: Final = b"PROXY "
_LOCAL, _PROXY = 0x20, 0x21
_ADDRESS_BYTES: Final = {0x00: 0, 0x11: 12, 0x21: 36, 0x31: 216}
"""The bytes of the addresses, by family and transport; a stream's, as TCP is one."""

_FAMILIES: Final = {0x11: (socket.AF_INET, 4, 8), 0x21: (socket.AF_INET6, 16, 32)}
"""Family, bytes of an address, and offset of the source's port."""


class ProxyHeaderError(ProtocolError):
    """The received bytes are not a PROXY protocol header of version 2."""


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """A complete header.

    Attributes:
        source: address and port of the client; None: the proxy's own count, as the header has none.
        size: the bytes of the header.
    """

    source: tuple[str, int] | None
    size: int


def parse(data: bytes) -> ProxyHeader | None:
    """Return the header at the start of received bytes; None while it is not complete.

    Raises:
        ProxyHeaderError: the bytes are no such header.
    """
    if not data.startswith(SIGNATURE[: len(data)]):
        if data.startswith(_VERSION_1):
            raise ProxyHeaderError("a header of version 1, where version 2 is needed: send-proxy-v2 in HAProxy")
        raise ProxyHeaderError("no header of the PROXY protocol")
    if len(data) < _FIXED_BYTES:
        return None
    command, family = data[12], data[13]
    length = int.from_bytes(data[14:_FIXED_BYTES], "big")
    size = _FIXED_BYTES + length
    if command not in (_LOCAL, _PROXY):
        raise ProxyHeaderError(f"a header of unknown version and command {command:#04x}")
    if size > BYTES_MAX:
        raise ProxyHeaderError(f"a header of {size} bytes, where {BYTES_MAX} are allowed")
    if command == _PROXY and length < _ADDRESS_BYTES.get(family, 1 << 16):
        raise ProxyHeaderError(f"a header of {length} bytes for the addresses of family {family:#04x}")
    if len(data) < size:
        return None
    return ProxyHeader(None if command == _LOCAL else _source(family, data[_FIXED_BYTES:size]), size)


def _source(family: int, addresses: bytes) -> tuple[str, int] | None:
    if family not in _FAMILIES:
        return None
    kind, width, port = _FAMILIES[family]
    return socket.inet_ntop(kind, addresses[:width]), int.from_bytes(addresses[port : port + 2], "big")
