"""Routes IPv4 packets between network namespaces, and loses or delays those of chosen pairs of hosts.

    python -m tests.integration.packet_router NAME=ADDRESS …      in a namespace of its own, as root

Each host has a TUN device, `tun-NAME`, which is to be moved into the host's namespace; its packets come and go through
this process. So a rule holds for one direction, and nothing but packets is lost: connections see what they would see of
a cut cable or a bad line. (Debian's kernels could do it by `tc netem`; some have none.)

Each line of standard input is a JSON object of rules for some pairs: `{"a>b": [LOSS, DELAY]}`, the share of packets
that are lost, and seconds. All other pairs have none. It is answered with a line once it holds.
"""

import contextlib
import fcntl
import heapq
import json
import os
import random
import selectors
import struct
import sys
import time
from itertools import count
from typing import Final

_TUNSETIFF: Final = 0x400454CA
_IFF_TUN: Final = 0x0001
_IFF_NO_PI: Final = 0x1000
_PACKET_BYTES_MAX: Final = 65_536
_DELAYED_MAX: Final = 20_000
"""Packets on their way; more are lost, as in any network."""


def open_device(name: str) -> int:
    """Create a TUN device and return the descriptor of its packets."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return descriptor


def main(*hosts: str) -> None:
    """Route until standard input ends."""
    addresses = dict(host.split("=") for host in hosts)
    devices = {name: open_device(f"tun-{name}") for name in addresses}
    names = {bytes(int(part) for part in address.split(".")): name for name, address in addresses.items()}
    rules: dict[tuple[str, str], tuple[float, float]] = {}
    delayed: list[tuple[float, int, int, bytes]] = []
    order = count()
    selector = selectors.DefaultSelector()
    for device in devices.values():
        selector.register(device, selectors.EVENT_READ)
    selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        wait = max(0.0, delayed[0][0] - time.monotonic()) if delayed else None
        for key, _ in selector.select(wait):
            if key.fd == sys.stdin.fileno():
                if not (line := sys.stdin.readline()):
                    return
                given: dict[str, list[float]] = json.loads(line)
                rules = {
                    (pair.partition(">")[0], pair.partition(">")[2]): (rule[0], rule[1]) for pair, rule in given.items()
                }
                print("ok", flush=True)
                continue
            for packet in _packets(key.fd):
                pair = names.get(packet[12:16], ""), names.get(packet[16:20], "")
                if packet[0] >> 4 != 4 or pair[1] not in devices:
                    continue
                loss, delay = rules.get(pair, (0.0, 0.0))
                if loss and random.random() < loss:
                    continue
                if not delay:
                    _send(devices[pair[1]], packet)
                elif len(delayed) < _DELAYED_MAX:
                    heapq.heappush(delayed, (time.monotonic() + delay, next(order), devices[pair[1]], packet))
        while delayed and delayed[0][0] <= time.monotonic():
            _, _, device, packet = heapq.heappop(delayed)
            _send(device, packet)


def _packets(device: int) -> list[bytes]:
    """Return the packets that a device has now, some at most."""
    found: list[bytes] = []
    with contextlib.suppress(BlockingIOError):
        while len(found) < 64:
            found.append(os.read(device, _PACKET_BYTES_MAX))
    return found


def _send(device: int, packet: bytes) -> None:
    with contextlib.suppress(OSError):  # a full queue loses it, or the device is down
        os.write(device, packet)


if __name__ == "__main__":
    main(*sys.argv[1:])
