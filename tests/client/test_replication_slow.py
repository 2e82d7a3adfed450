"""The link to a replicated cluster's standby becomes slow: producers are slowed down, and then go on without it.

Producers that wait for each answer are slowed down to the pace of the link, and may go on so for ever. The standby
leaves the set when clients offer more than that.

Source: specification of replication, section 14, check 15.
"""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.client.replicated_load import SETTINGS, ReplicatedLoad
from tests.etcd_cluster import EtcdCluster, own_etcd
from tests.integration.linked_cluster import LinkedCluster

__all__ = ["own_etcd"]

SLOW_BYTES_PER_SECOND = 25_000
"""200 kbit/s; the load is some 20 times as much."""

BACKLOG = 2_000
"""Messages that are sent without a wait for an answer, with a kilobyte each in the journal."""

pytestmark = [pytest.mark.component("etcd"), pytest.mark.timeout(240)]


def send_backlog(address: tuple[str, int]) -> None:
    """Send persistent messages, and wait until all are answered."""
    frame = b"SEND\ndestination:/queue/BACKLOG\npersistent:true\n\n" + b"x" * 500 + b"\0\n"
    with socket.create_connection(address) as connection:
        connection.sendall(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0\n" + BACKLOG * frame)
        connection.sendall(b"DISCONNECT\nreceipt:all\n\n\0")
        received = b""
        while b"receipt-id:all" not in received:
            chunk = connection.recv(4096)
            assert chunk, received
            received += chunk


def test_slow_standby_slows_producers_and_leaves_the_set(own_etcd: EtcdCluster, tmp_path: Path) -> None:
    """It is in the set again after the limit is lifted."""
    with (
        ThreadPoolExecutor(1) as thread,
        LinkedCluster(own_etcd, tmp_path, "ab", *SETTINGS, "--replicate-timeout", "2s") as cluster,
        ReplicatedLoad(cluster) as load,
    ):
        load.wait_received(200)
        assert cluster.wait_serving() == "a"
        epoch, slow = cluster.record()["epoch"], cluster.to_member["a"].back
        slow.bytes_per_second = SLOW_BYTES_PER_SECOND
        sent = thread.submit(send_backlog, cluster.stomp_addresses()["a"])
        began, accepted = time.monotonic(), len(load.ledger.accepted)
        cluster.wait(lambda: set(cluster.record()["insync"]) == {cluster.store_id("a")})
        seconds, count = time.monotonic() - began, len(load.ledger.accepted) - accepted
        print(f"it left the set after {seconds:.1f} s, in which {count} messages were accepted")
        began = time.monotonic()
        sent.result(30)
        load.wait_received(500)
        print(f"500 messages without it: {time.monotonic() - began:.1f} s")
        slow.bytes_per_second = 0
        began = time.monotonic()
        cluster.wait_recorded("a", "b")
        print(f"in the set again {time.monotonic() - began:.1f} s after the limit was lifted")
        assert load.interruptions == 0, cluster.describe()
        assert cluster.record()["epoch"] == epoch
        load.finish("slow standby", 1)
