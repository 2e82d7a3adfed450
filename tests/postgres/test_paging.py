"""Paging: ids are in memory, bodies stay in the database until they are requested."""

import tracemalloc
from typing import Any

from pybroker.broker.domain.destination import queue

ORDERS = queue("ORDERS")
COUNT, BODY_BYTES = 20_000, 2_000


def test_a_recovery_takes_memory_for_ids_and_not_for_bodies(lives: Any, text_message: Any) -> None:
    lives.store.add(text_message(ORDERS, 0, "x" * BODY_BYTES))
    lives.close()
    lives.database.sql(
        "INSERT INTO activemq_msgs SELECT n, container, msgid_prod, n, expiration, msg, priority, xid"
        f" FROM activemq_msgs, generate_series(2, {COUNT}) AS n"
    )
    tracemalloc.start()
    recovery = lives.open()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    message_ids = recovery.queues[ORDERS]
    assert len(message_ids) == COUNT
    print(f"{peak / COUNT:.0f} bytes per pending message at the peak of a recovery")
    assert peak < COUNT * 600
    page = lives.store.read(ORDERS, message_ids[500:700])
    assert [message.message_id for message in page] == list(message_ids[500:700])
    lives.store.remove_destination(ORDERS)
    lives.flush()
    assert lives.database.sql("SELECT count(*) FROM activemq_msgs") == "0"
