"""With logins a client id belongs to the user whose durable subscriptions have it."""

import pytest

from pybroker.broker.app.config import Config
from pybroker.broker.domain.destination import parse
from pybroker.broker.domain.errors import InvalidClientId, InvalidDestination
from pybroker.broker.domain.rules import Rules
from pybroker.broker.domain.security import ANONYMOUS, User
from pybroker.store.memory import MemoryStore
from tests.unit.core.conftest import World
from tests.unit.core.test_rights import ADMIN, ANN, EVERYTHING, rule, world

PEER = User("peer", ANN.groups)
"""Another user with the same rights."""

UNCERTAIN = User("peer", ANONYMOUS.groups, is_certain=False)
"""A client that calls itself so where there are no logins."""


GUEST = User(ANN.name, ANN.groups, is_guest=True)
"""A client without a login, where the operator has given those the name and groups of a user."""


def subscribed(there: World, user: User = ANN, name: str = "topic://U.a") -> None:
    """Make a durable subscription, and disconnect."""
    client = there.client("laptop", user)
    client.subscribe(name, subscription_name="s")
    client.connection.close()


def assert_refused(there: World, *users: User) -> None:
    for user in users:
        with pytest.raises(InvalidClientId, match="The client id laptop belongs to another user"):
            there.client("laptop", user)


@pytest.mark.parametrize("name", ["topic://U.a", "topic://U.>", "topic://U.none.>"])
def test_client_id_belongs_to_its_user_also_after_a_failover(name: str) -> None:
    there = World(MemoryStore())
    there.broker.destinations.ensure(parse("topic://U.b"))
    subscribed(there, name=name)
    for _ in range(2):
        assert_refused(there, PEER, ANONYMOUS, GUEST)
        client = there.client("laptop", ANN)
        client.subscribe(name, subscription_name="s")
        client.connection.close()
        there.start()


def test_client_id_is_free_without_its_subscription() -> None:
    there = World(MemoryStore())
    subscribed(there)
    client = there.client("laptop", ANN)
    client.connection.unsubscribe("laptop", "s")
    client.connection.close()
    there.client("laptop", PEER)


def test_client_id_without_a_subscription_is_anyones() -> None:
    there = World(MemoryStore())
    there.client("laptop", ANN).connection.close()
    there.client("laptop", PEER)


def test_who_administers_the_topics_may_use_it() -> None:
    there = world(Rules((*EVERYTHING, rule("topic://U.>", "users", "users", "more"))))
    there.broker.destinations.ensure(parse("topic://U.a"))
    subscribed(there)
    assert_refused(there, PEER)
    there.client("laptop", ADMIN).connection.unsubscribe("laptop", "s")


def test_names_that_clients_give_without_logins_mean_nothing() -> None:
    there = World(MemoryStore())
    subscribed(there)
    subscribed(there, UNCERTAIN)
    subscribed(there, UNCERTAIN, "topic://U.b")
    there.start()
    there.client("laptop", PEER)


@pytest.mark.parametrize("guest", [ANONYMOUS, Config(anonymous_user="guest").guest])
def test_client_id_of_a_guest_is_anyones(guest: User) -> None:
    there = World(MemoryStore())
    subscribed(there, guest)
    subscribed(there, PEER)
    assert_refused(there, guest)


@pytest.mark.parametrize("name", ["topic://U.a", "topic://U.>", "topic://U.none.>"])
def test_first_user_that_comes_gets_one_that_has_none(name: str) -> None:
    there = World(MemoryStore())
    there.broker.destinations.ensure(parse("topic://U.b"))
    subscribed(there, User("x", ADMIN.groups, is_certain=False), name)
    subscribed(there, ANN, name)
    for _ in range(2):
        assert_refused(there, PEER)
        there.start()


def test_the_subscription_of_another_client_id_is_deleted_by_its_user_alone() -> None:
    """The command names a client id, which need not be the connection's own."""
    there = World(MemoryStore())
    subscribed(there)
    for user in (PEER, ANONYMOUS):
        with pytest.raises(InvalidClientId, match="The client id laptop belongs to another user"):
            there.client(user=user).connection.unsubscribe("laptop", "s")
    there.client(user=ANN).connection.unsubscribe("laptop", "s")
    with pytest.raises(InvalidDestination, match="No durable subscription exists"):
        there.client(user=PEER).connection.unsubscribe("laptop", "s")


def test_subscriptions_of_clients_without_a_login_belong_to_none() -> None:
    there = World(MemoryStore())
    for guest in (ANONYMOUS, GUEST):
        subscribed(there, guest)
        there.start()
        there.client("laptop", PEER).connection.close()
