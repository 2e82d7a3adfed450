"""Orders become invoices while brokers come and go: a shop, a desk and an archive, each a task.

    pybroker start --store /mnt/shared --bind 0.0.0.0    # on two machines, a and b
    python examples/orders_pipeline_async.py "failover:(tcp://a:61616,tcp://b:61616)"

The twin of `orders_pipeline.py`.
"""

import asyncio
import csv
import sys
from pathlib import Path

from pybroker.client import TransactionInDoubt, TransactionRolledBack, aio

ORDERS = Path(__file__).with_name("orders.csv")


async def place(connection: aio.Connection, orders: list[dict[str, str]]) -> None:
    """The shop: ten orders under way at a time, each on the broker's disk when its send is done."""
    for start in range(0, len(orders), 10):
        await asyncio.gather(*(connection.send("queue://ORDERS", order) for order in orders[start : start + 10]))


async def invoice(connection: aio.Connection) -> None:
    """The desk: takes an order and sends its invoice, or does neither, until it is cancelled."""
    orders = await connection.consumer("queue://ORDERS", ack="transacted")
    while True:
        try:
            async with connection.transaction() as transaction:
                order = (await transaction.receive(orders)).body
                number, amount = order["order"], int(order["quantity"]) * float(order["price_eur"])
                await transaction.send("queue://INVOICES", f"{amount:.2f} EUR", correlation_id=number)
        except (TransactionRolledBack, TransactionInDoubt):
            continue  # the order comes again, unless its invoice was sent


async def archive(connection: aio.Connection, count: int) -> dict[str, str]:
    """The archive: keeps each invoice by its order's number, until it has them all."""
    kept: dict[str, str] = {}
    async with await connection.consumer("queue://INVOICES") as invoices:
        async for message in invoices:
            if message.correlation_id in kept:
                print(f"order {message.correlation_id} is invoiced twice")
            kept[message.correlation_id] = message.body
            if len(kept) == count:
                break
    return kept


async def main(uri: str) -> None:
    """Run all three."""
    with ORDERS.open() as file:
        orders = list(csv.DictReader(file))[:100]
    async with (
        aio.connect(
            uri,
            on_interrupted=lambda why: print(f"interrupted: {why}", flush=True),
            on_resumed=lambda address: print(f"resumed on {address}", flush=True),
        ) as connection,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(place(connection, orders))
        desk = group.create_task(invoice(connection))
        print("the first order is on its way", flush=True)
        kept = await archive(connection, len(orders))
        desk.cancel()
    print(f"{len(orders)} orders, {len(kept)} invoices")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python examples/orders_pipeline_async.py URI")
    asyncio.run(main(sys.argv[1]))
