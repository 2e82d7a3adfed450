"""The application's tests: with a broker, and with what happens to brokers.

pytest test_orders.py
"""

import contextlib
import threading

import pytest
from orders import OrderRefused, Orders


@pytest.fixture
def orders(ha_cluster):
    """The application, connected to a pair of brokers."""
    orders = Orders(ha_cluster.stomp_addresses)
    yield orders
    orders.close()


def test_orders_come_out_in_order(broker):
    """A broker of its own, in memory, for each test."""
    orders = Orders([broker.stomp_address])
    for order in ("tea", "milk"):
        orders.place(order)
    assert [orders.take(), orders.take()] == ["tea", "milk"]
    orders.close()


def test_an_order_survives_its_broker(ha_cluster, orders):
    """What was placed is on disk, and the standby has the same disk."""
    orders.place("tea")
    ha_cluster.kill9("master")
    assert orders.take() == "tea"


def test_orders_go_on_while_brokers_come_and_go(ha_cluster, orders):
    """A killed member comes back as standby."""
    for number in range(4):
        orders.place(f"order {number}")
        killed = ha_cluster.kill9("master")
        ha_cluster.wait_master()
        ha_cluster.restart(killed)
    assert [orders.take() for _ in range(4)] == [f"order {number}" for number in range(4)]


def test_an_order_waits_for_a_broker_that_pauses(ha_cluster, orders):
    """A frozen master keeps the lock, so no standby takes over."""
    orders.place("tea")
    ha_cluster.freeze("master")
    placing = threading.Thread(target=orders.place, args=["milk"])
    placing.start()
    placing.join(0.2)
    assert placing.is_alive()
    ha_cluster.thaw()
    placing.join()
    assert [orders.take(), orders.take()] == ["tea", "milk"]


def test_an_order_waits_for_the_network(ha_cluster, orders):
    """Cut off from its clients a master stays master."""
    orders.place("tea")
    ha_cluster.partition("master")
    placing = threading.Thread(target=orders.place, args=["milk"])
    placing.start()
    placing.join(0.2)
    assert placing.is_alive()
    ha_cluster.heal()
    placing.join()
    assert [orders.take(), orders.take()] == ["tea", "milk"]


def test_a_full_disk_is_said(ha_cluster, orders):
    """Orders are refused, and those that are there can still be taken."""
    ha_cluster.fill_disk()
    placed = 0
    with contextlib.suppress(OrderRefused):
        for placed in range(1000):
            orders.place(f"{placed}: {'tea, ' * 20_000}")
    assert 0 < placed < 999
    assert orders.take().startswith("0: ")


@pytest.mark.pybroker(members=3)
def test_a_third_broker_takes_over_from_the_second(ha_cluster, orders):
    """As many members as you like."""
    orders.place("tea")
    ha_cluster.kill9("master")
    ha_cluster.wait_master()
    ha_cluster.kill9("master")
    assert orders.take() == "tea"
