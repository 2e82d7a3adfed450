"""Durable subscriptions in both shapes of `activemq_acks`: a row each, or a row per priority."""

from collections.abc import Callable
from typing import Any

import pytest

from pybroker.broker.domain.destination import topic
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.store.jdbc.store import IDS_PER_MASTER

PRICES = topic("PRICES")
CURSORS = "SELECT priority, last_acked_id FROM activemq_acks WHERE client_id = 'a' ORDER BY priority"


def subscribe(lives: Any, *client_ids: str) -> None:
    for client_id in client_ids:
        lives.store.subscribe(
            DurableSubscription(client_id=client_id, name="n", destination=PRICES, subscribed_destination=PRICES)
        )


def backlogs(recovery: Any) -> dict[str, list[str]]:
    return {each.subscription.client_id: list(each.message_ids) for each in recovery.backlogs}


def crash(lives: Any) -> Any:
    lives.flush()
    lives.crash()
    return lives.open()


def send(lives: Any, text_message: Callable[..., Any], *priorities: int) -> list[str]:
    messages = [text_message(PRICES, number, priority=priority) for number, priority in enumerate(priorities, 1)]
    for message in messages:
        lives.store.add(message)
    return [message.message_id for message in messages]


def acknowledge(lives: Any, *message_ids: str) -> None:
    for message_id in message_ids:
        lives.store.acknowledge(PRICES, "a:n", message_id)


def test_cursor_passes_acks_apart_of_an_earlier_run(lives: Any, text_message: Any) -> None:
    subscribe(lives, "a", "b")
    sent = send(lives, text_message, 4, 4, 4)
    acknowledge(lives, *sent[1:])
    crash(lives)
    assert lives.database.sql(CURSORS) == "0|0"
    assert lives.database.sql("SELECT count(*) FROM pybroker_acked") == "2"
    acknowledge(lives, sent[0])
    assert backlogs(crash(lives)) == {"a": [], "b": sent}
    assert lives.database.sql(CURSORS) == "0|3"
    assert lives.database.sql("SELECT count(*) FROM pybroker_acked") == "0"


def test_with_priorities_there_is_a_cursor_for_each(adapter: Any, text_message: Any) -> None:
    lives = adapter(prioritized=True)
    lives.open()
    subscribe(lives, "a", "b")
    sent = send(lives, text_message, 4, 9, 4, 9, 0)
    acknowledge(lives, sent[3], sent[0], sent[1])
    recovery = crash(lives)
    assert backlogs(recovery) == {"a": [sent[2], sent[4]], "b": [sent[1], sent[3], sent[0], sent[2], sent[4]]}
    rows = dict(line.split("|") for line in lives.database.sql(CURSORS).split("\n"))
    assert len(rows) == 10
    assert (rows["9"], rows["4"], rows["0"], rows["7"]) == ("4", "2", "0", "0")
    acknowledge(lives, sent[2], sent[4])
    assert backlogs(crash(lives))["a"] == []


def test_with_priorities_on_a_key_without_space_for_them(adapter: Any, text_message: Any) -> None:
    """The tables ActiveMQ 5.17 leaves on PostgreSQL, where it fails to make such a subscription itself."""
    lives = adapter()
    lives.open()
    lives.close()
    lives.options["prioritized"] = True
    lives.open()
    subscribe(lives, "a", "b")
    sent = send(lives, text_message, 4, 9, 4)
    acknowledge(lives, sent[1])
    assert backlogs(crash(lives)) == {"a": [sent[0], sent[2]], "b": [sent[1], sent[0], sent[2]]}
    acknowledge(lives, sent[0])
    assert backlogs(crash(lives))["a"] == [sent[2]]
    assert lives.database.sql(CURSORS) == f"0|{IDS_PER_MASTER + 2}"  # the second master's second


@pytest.mark.parametrize("prioritized", [False, True])
def test_a_key_that_was_mended_by_hand(adapter: Any, text_message: Any, prioritized: bool) -> None:
    lives = adapter()
    lives.open()
    subscribe(lives, "a", "b")
    sent = send(lives, text_message, 4, 9)
    lives.close()
    lives.database.sql(
        "ALTER TABLE activemq_acks DROP CONSTRAINT pk_activemq_acks,"
        " ADD PRIMARY KEY (container, client_id, sub_name, priority)"
    )
    lives.options["prioritized"] = prioritized
    lives.open()
    acknowledge(lives, sent[0])
    subscribe(lives, "c")
    assert backlogs(crash(lives)) == {"a": [sent[1]], "b": sent, "c": []}
    rows = lives.database.sql("SELECT client_id, count(*) FROM activemq_acks GROUP BY 1 ORDER BY 1")
    assert rows.split() == ["a|1", "b|1", "c|10" if prioritized else "c|1"]


def test_ack_apart_does_not_count_for_another_message(lives: Any, text_message: Any) -> None:
    """An ActiveMQ assigns ids again, from the highest that is left in the tables."""
    subscribe(lives, "a", "b")
    sent = send(lives, text_message, 4, 4, 4)
    acknowledge(lives, sent[2])
    lives.close()
    lives.database.sql("UPDATE activemq_msgs SET msgid_prod = 'ID:another:1:1' WHERE id = 3")
    recovery = lives.open()
    assert backlogs(recovery)["a"] == [*sent[:2], "ID:another:1:1:3"]
    assert lives.database.sql("SELECT count(*) FROM pybroker_acked") == "0"
