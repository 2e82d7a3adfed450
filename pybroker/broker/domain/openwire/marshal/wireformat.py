"""Negotiation of the wire format: each end first sends a WireFormatInfo, and both derive the same format from the two.

```text
WireFormatInfo 1 | 8 bytes "ActiveMQ" | i32 version | u8 1 | i32 n | n bytes primitive map: the options |
```

The frame is always loose, uncached and with its size; its layout is the same in all versions. A missing flag is false,
a missing number 0, an unknown option means nothing. The smaller number wins, and a flag takes both.

Source: OpenWire, WireFormatInfo (ActiveMQ 5.17).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pybroker.broker.domain.big_endian import INT
from pybroker.broker.domain.openwire.commands import MAGIC, WireFormatInfo
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.marshal.caches import RESERVED_SLOTS, SLOTS_DEFAULT, SLOTS_MAX
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.framing import FRAME_BYTES_MAX
from pybroker.broker.domain.openwire.marshal.schema import VERSION_MAX, VERSION_MIN
from pybroker.broker.domain.openwire.values import Long, Value, decode_map, encode_map

OPTIONS_MAX: Final = 4096
"""Options in a WireFormatInfo, as ActiveMQ 5.17 has it."""
INACTIVITY_MS: Final = 30_000
INITIAL_DELAY_MS: Final = 10_000

_ALWAYS_LOOSE = WireFormat(VERSION_MIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The wire format that one end offers.

    Attributes:
        version: highest wire version it speaks.
        stack_trace_enabled: exceptions carry stack frames and causes.
        tcp_no_delay_enabled: each end sets this on its own socket.
        cache_enabled: value caching.
        cache_size: slots of its tables; 0 stands for 16383.
        tight_encoding_enabled: tight encoding rather than loose.
        size_prefix_disabled: frames have no size prefix; unused in practice.
        max_inactivity_ms: silence after which the peer counts as dead; 0 for no watch.
        initial_delay_ms: grace before that watch begins.
        frame_bytes_max: largest frame it takes; 0 and below for no opinion.
        host: what the client dialled.
        provider_name: who made it; like the two below, for information.
        provider_version: which of its versions.
        platform_details: on what it runs.
        release_enabled: it takes `AckType.RELEASED`, which only pybroker has; None in the offers of others.
    """

    version: int = VERSION_MAX
    stack_trace_enabled: bool = False
    tcp_no_delay_enabled: bool = False
    cache_enabled: bool = False
    cache_size: int = 0
    tight_encoding_enabled: bool = False
    size_prefix_disabled: bool = False
    max_inactivity_ms: int = 0
    initial_delay_ms: int = 0
    frame_bytes_max: int = 0
    host: str | None = None
    provider_name: str | None = None
    provider_version: str | None = None
    platform_details: str | None = None
    release_enabled: bool | None = None


_OPTIONS: Final[Mapping[str, tuple[str, type]]] = {
    "stack_trace_enabled": ("StackTraceEnabled", bool),
    "tcp_no_delay_enabled": ("TcpNoDelayEnabled", bool),
    "cache_enabled": ("CacheEnabled", bool),
    "cache_size": ("CacheSize", int),
    "tight_encoding_enabled": ("TightEncodingEnabled", bool),
    "size_prefix_disabled": ("SizePrefixDisabled", bool),
    "max_inactivity_ms": ("MaxInactivityDuration", Long),
    "initial_delay_ms": ("MaxInactivityDurationInitalDelay", Long),  # codespell:ignore
    "frame_bytes_max": ("MaxFrameSize", Long),
    "host": ("Host", str),
    "provider_name": ("ProviderName", str),
    "provider_version": ("ProviderVersion", str),
    "platform_details": ("PlatformDetails", str),
    "release_enabled": ("ReleaseEnabled", bool),
}
"""The options' names on the wire, and the exact types they must have: Java takes no other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The wire format of a connection, in both directions.

    Attributes:
        version: wire version.
        tight: tight encoding rather than loose.
        cache_size: slots of the tables of value caching; 0 for no caching.
        stack_traces: exceptions carry stack frames and causes.
        tcp_no_delay: set this on the socket.
        size_prefix: frames go with their size.
        max_inactivity_ms: silence after which the peer counts as dead; 0 for no watch.
        initial_delay_ms: grace before that watch begins.
        frame_bytes_max: largest frame.
    """

    version: int
    tight: bool
    cache_size: int
    stack_traces: bool
    tcp_no_delay: bool
    size_prefix: bool
    max_inactivity_ms: int
    initial_delay_ms: int
    frame_bytes_max: int

    def wire_format(self, *, reuse: bool = False) -> WireFormat:
        """Return a codec for this connection.

        Args:
            reuse: let the peer cache what we write. Without caching, or with too small a table, nothing is reused.
        """
        return WireFormat(
            self.version,
            tight=self.tight,
            cache_size=self.cache_size,
            stack_traces=self.stack_traces,
            reuse=reuse and self.cache_size >= RESERVED_SLOTS,
        )


def broker_offer(
    *,
    version: int = VERSION_MAX,
    max_inactivity_ms: int = INACTIVITY_MS,
    initial_delay_ms: int = INITIAL_DELAY_MS,
    frame_bytes_max: int = FRAME_BYTES_MAX,
    provider_name: str | None = None,
    provider_version: str | None = None,
) -> Offer:
    """Return what the broker offers: loose and uncached, so that a client's message bytes are those the store keeps.

    Exceptions go without stack traces: class and message are all a Java client decides by.
    """
    return Offer(
        version=version,
        tcp_no_delay_enabled=True,
        max_inactivity_ms=max_inactivity_ms,
        initial_delay_ms=initial_delay_ms,
        frame_bytes_max=frame_bytes_max,
        provider_name=provider_name,
        provider_version=provider_version,
        release_enabled=True,
    )


def encode_offer(offer: Offer) -> bytes:
    """Return the frame that makes an offer, with its size prefix.

    Raises:
        ValueError: it offers caching with a table so small that a Java peer would clear it for ever, or one with more
            slots than an index can name.
    """
    if offer.cache_enabled and offer.cache_size != 0 and not RESERVED_SLOTS <= offer.cache_size <= SLOTS_MAX:
        raise ValueError(f"a cache has 0, or {RESERVED_SLOTS} to {SLOTS_MAX} slots, not {offer.cache_size}")
    options: dict[str, Value] = {}
    for attribute, (name, kind) in _OPTIONS.items():
        value = getattr(offer, attribute)
        if value is not None:
            options[name] = kind(value)
    info = WireFormatInfo(version=offer.version, marshalled_properties=encode_map(options))
    return _ALWAYS_LOOSE.encode_frame(info)


def decode_offer(frame: bytes | memoryview) -> Offer:
    """Return the offer in a connection's first frame, which comes without its size prefix.

    Raises:
        MalformedOpenWire: it is no WireFormatInfo, has too many options, or a number of a wrong type.
    """
    info = _ALWAYS_LOOSE.decode(frame)
    if not isinstance(info, WireFormatInfo) or info.magic != MAGIC:
        raise MalformedOpenWire("a connection that does not begin with a WireFormatInfo")
    options = _options(info.marshalled_properties or b"")
    values: dict[str, Any] = {}
    for attribute, (name, kind) in _OPTIONS.items():
        value = options.get(name)
        if type(value) is kind:
            values[attribute] = value
        elif value is not None and kind in (int, Long):
            # Java would drop the connection too; a flag of another type it takes for false.
            raise MalformedOpenWire(f"option {name} of type {type(value).__name__}")
    return Offer(version=info.version, **values)


def _options(marshalled: bytes) -> dict[str, Value]:
    if len(marshalled) >= INT.size and INT.unpack_from(marshalled)[0] > OPTIONS_MAX:
        raise MalformedOpenWire(f"more than {OPTIONS_MAX} options")
    return decode_map(marshalled)


def agree(own: Offer, peer: Offer) -> Agreement:
    """Return what follows from two offers; the peer finds the same.

    Raises:
        MalformedOpenWire: the peer offers a cache of negative size.
    """
    caching = own.cache_enabled and peer.cache_enabled
    slots = min(own.cache_size, peer.cache_size) or SLOTS_DEFAULT
    if caching and slots < 0:
        raise MalformedOpenWire(f"a cache of {slots} slots")
    return Agreement(
        version=min(_opinions(own.version, peer.version), default=VERSION_MIN),
        tight=own.tight_encoding_enabled and peer.tight_encoding_enabled,
        cache_size=min(slots, SLOTS_MAX) if caching else 0,
        stack_traces=own.stack_trace_enabled and peer.stack_trace_enabled,
        tcp_no_delay=own.tcp_no_delay_enabled and peer.tcp_no_delay_enabled,
        size_prefix=not (own.size_prefix_disabled and peer.size_prefix_disabled),
        max_inactivity_ms=max(0, min(own.max_inactivity_ms, peer.max_inactivity_ms)),
        initial_delay_ms=max(0, min(own.initial_delay_ms, peer.initial_delay_ms)),
        frame_bytes_max=min(_opinions(own.frame_bytes_max, peer.frame_bytes_max), default=FRAME_BYTES_MAX),
    )


def _opinions(*numbers: int) -> list[int]:
    return [number for number in numbers if number > 0]
