"""A program for stomp.py that survives its brokers: what differs from one that does not is marked.

    python examples/stomp_orders.py "failover:(stomp://127.0.0.1:61613,stomp://127.0.0.1:61623)"

It places an order a second and prints what it takes from the queue. Kill the master while it runs, and start it again.
"""

import itertools
import sys
import time

import stomp

from pybroker.client.stomp_py import FailoverConnection  # 1: this import

if len(sys.argv) == 1:
    raise SystemExit("usage: python examples/stomp_orders.py URI [SECONDS_BETWEEN_ORDERS]")


class Orders(stomp.ConnectionListener):
    """Takes orders."""

    def on_message(self, frame):
        """Process one. It is acknowledged when this returns, and comes again, marked, if that is lost."""
        again = " (again)" if frame.headers.get("redelivered") == "true" else ""
        print(f"taken: {frame.body}{again}", flush=True)

    # 3: no on_disconnected that connects and subscribes


connection = FailoverConnection(sys.argv[1])  # 2: instead of stomp.Connection12([(host, port)])
connection.set_listener("orders", Orders())
connection.connect("user", "password", wait=True)
connection.subscribe("/queue/ORDERS", id="1", ack="auto")
for number in itertools.count(1):
    connection.send("/queue/ORDERS", f"order {number}", persistent="true")  # on return it is on a broker's disk
    print(f"placed: order {number}", flush=True)
    time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 1)
