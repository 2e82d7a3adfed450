"""Orders become invoices while brokers come and go: a shop, a desk and an archive, each in a thread of its own.

    pybroker start --store /mnt/shared --bind 0.0.0.0    # on two machines, a and b
    python examples/orders_pipeline.py "failover:(tcp://a:61616,tcp://b:61616)"

Kill a broker while it runs: no order is lost, and none is invoiced twice. `orders_pipeline_async.py` is its twin.
"""

import csv
import sys
import threading
from pathlib import Path

import pybroker
from pybroker.client import Connection, ConnectionClosed, TransactionInDoubt, TransactionRolledBack

ORDERS = Path(__file__).with_name("orders.csv")


def place(connection: Connection, orders: list[dict[str, str]]) -> None:
    """The shop: each order is on the broker's disk before the next one is placed."""
    for order in orders:
        connection.send("queue://ORDERS", order)


def invoice(connection: Connection) -> None:
    """The desk: takes an order and sends its invoice, or does neither, until the connection is closed."""
    orders = connection.consumer("queue://ORDERS", ack="transacted")
    while True:
        try:
            with connection.transaction() as transaction:
                order = transaction.receive(orders).body
                number, amount = order["order"], int(order["quantity"]) * float(order["price_eur"])
                transaction.send("queue://INVOICES", f"{amount:.2f} EUR", correlation_id=number)
        except (TransactionRolledBack, TransactionInDoubt):
            continue  # the order comes again, unless its invoice was sent
        except ConnectionClosed:
            return


def archive(connection: Connection, count: int) -> dict[str, str]:
    """The archive: keeps each invoice by its order's number, until it has them all."""
    kept: dict[str, str] = {}
    with connection.consumer("queue://INVOICES") as invoices:
        for message in invoices:
            if message.correlation_id in kept:
                print(f"order {message.correlation_id} is invoiced twice")
            kept[message.correlation_id] = message.body
            if len(kept) == count:
                break
    return kept


def main(uri: str) -> None:
    """Run all three."""
    with ORDERS.open() as file:
        orders = list(csv.DictReader(file))[:100]
    with pybroker.connect(
        uri,
        on_interrupted=lambda why: print(f"interrupted: {why}", flush=True),
        on_resumed=lambda address: print(f"resumed on {address}", flush=True),
    ) as connection:
        threads = [
            threading.Thread(target=place, args=[connection, orders]),
            threading.Thread(target=invoice, args=[connection]),
        ]
        for thread in threads:
            thread.start()
        print("the first order is on its way", flush=True)
        kept = archive(connection, len(orders))
    for thread in threads:
        thread.join()
    print(f"{len(orders)} orders, {len(kept)} invoices")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python examples/orders_pipeline.py URI")
    main(sys.argv[1])
