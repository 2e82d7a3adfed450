"""A real ActiveMQ takes over a store to which a bridge has forwarded: it keeps the records of what has come over it.

To the ActiveMQ the queue of these records is one like any other. It consumes a message that came over the bridge, goes
on with the store, and hands it back. The bridge whose answers were lost forwards the message again, and it is dropped.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.core.connection import BrokerConnection
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.message import to_message, view
from pybroker.broker.domain.reserved_queues import BRIDGED_RECORDS
from pybroker.store.journal.appender import JournalSettings
from pybroker.store.journal.store import JournalStore
from tests.integration.test_activemq_reads_store import PROGRAM, flush, text
from tests.runtimes import runtime
from tests.unit.core.conftest import Throttle

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(180)]

Q = queue("Q")
NOW_MS = 1_000_000


@contextmanager
def broker_on(directory: Path, *, is_killed: bool) -> Generator[tuple[BrokerCore, BrokerConnection]]:
    """A broker on the store, and its connection for a bridge; at the end the store is closed, or left as by a kill."""
    posted: list[Callable[[], None]] = []
    store = JournalStore(directory, settings=JournalSettings(), runtime=runtime(posted.append))
    core = BrokerCore("far", store=store, clock=lambda: NOW_MS)
    core.recover()
    yield core, core.connect("c", "c", Throttle())
    flush(store)
    if is_killed:
        store.abandon()
    else:
        store.close()


def forwarded(number: int, redelivery_counter: int = 0) -> Message:
    """Return a message that has come over a bridge."""
    fields = view(text(Q, number, f"m{number}"))
    return to_message(replace(fields, broker_path=("ID:near",), redelivery_counter=redelivery_counter))


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
def test_activemq_keeps_what_is_known_of_bridges(tmp_path: Path, java: Any, is_killed: bool) -> None:
    directory = tmp_path / "kahadb"
    with broker_on(directory, is_killed=is_killed) as (_, bridge):
        assert bridge.send(forwarded(1))
        assert bridge.send(forwarded(2))
        bridge.when_confirmed(lambda: None)
    steps = ["take:Q", "send:Q:from-java", *(["halt"] if is_killed else [])]
    seen = java.run(PROGRAM, str(directory), *steps, timeout_seconds=90).splitlines()
    names = [line.split(" ")[1] for line in seen]
    assert names.count(BRIDGED_RECORDS.destination.name) == 1
    assert names.count(Q.name) == 2
    with broker_on(directory, is_killed=is_killed) as (core, bridge):
        assert not bridge.send(forwarded(1, redelivery_counter=1)), "consumed at the ActiveMQ"
        assert not bridge.send(forwarded(2, redelivery_counter=1))
        assert bridge.send(forwarded(3))
        bridge.when_confirmed(lambda: None)
        assert len(core.queues[Q].pending) == 3, "2, what ActiveMQ has sent, and 3"
    seen = java.run(PROGRAM, str(directory), timeout_seconds=90).splitlines()
    names = [line.split(" ")[1] for line in seen]
    assert names.count(BRIDGED_RECORDS.destination.name) == 1, "the record was replaced, not added to"
