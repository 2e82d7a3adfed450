# mypy: disable-error-code="arg-type"
"""A node whose scheduler's store fails at the end: the messages' store is closed in order all the same."""

import asyncio

import pytest

from pybroker.broker.app.config import Config
from pybroker.broker.app.mqtt_sessions import make_session_states
from pybroker.broker.app.node import Node, Term
from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.core.mastership import Action
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.network.interests import Interests
from pybroker.store.memory import MemoryStore
from pybroker.store.scheduler.memory import MemoryJobStore
from pybroker.transports.admission import AdmissionLimits
from pybroker.transports.openwire.session import Sessions
from pybroker.transports.server import Server


class Noting:
    """A store that records how it was left, and may refuse to be closed."""

    is_broken = False

    def __init__(self):
        super().__init__()
        self.ends = []

    def close(self, *delivered):
        if self.is_broken:
            raise StoreUnavailable("the disk is gone")
        self.ends.append("closed")

    def abandon(self):
        self.ends.append("abandoned")


class Jobs(Noting, MemoryJobStore):
    pass


class Messages(Noting, MemoryStore):
    pass


@pytest.mark.parametrize(
    ("broken", "ends"), [(Jobs, (["abandoned"], ["closed"])), (Messages, (["closed"], ["abandoned"]))]
)
def test_a_store_that_fails_to_close_does_not_stop_the_other(broken, ends, monkeypatch):
    monkeypatch.setattr(broken, "is_broken", True)
    jobs, store = Jobs(), Messages()
    node = Node(Config(store="memory:"), "n", lambda role, listeners: None)

    async def end() -> None:
        broker = BrokerCore("b", store=store, clock=lambda: 0)
        server = Server(limits=AdmissionLimits.of(1))
        mqtt_states = make_session_states(broker, None, lambda: 0)
        node._term = Term(
            store=store,
            jobs=jobs,
            broker=broker,
            server=server,
            tasks=[],
            sessions=Sessions(),
            interests=Interests(),
            mqtt_states=mqtt_states,
        )
        await node._perform(Action.CLOSE_STORE)

    asyncio.run(end())
    assert (jobs.ends, store.ends) == ends
    assert isinstance(node._error, StoreUnavailable)
