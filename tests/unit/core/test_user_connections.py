"""The connections of one user have a limit, which clients without a login do not meet."""

import pytest

from pybroker.broker.core.broker import BrokerCore, Limits
from pybroker.broker.domain.errors import ResourceLimit
from pybroker.broker.domain.security import ANONYMOUS, User
from pybroker.store.memory import MemoryStore
from tests.unit.core.conftest import Throttle

ALICE, BOB = User("alice", frozenset({"staff"})), User("bob")


@pytest.fixture
def broker() -> BrokerCore:
    return BrokerCore("b", store=MemoryStore(), clock=lambda: 0, limits=Limits(connections_per_user=2))


def test_user_with_all_its_connections_is_refused_another(broker: BrokerCore) -> None:
    first = broker.connect("1", "1", Throttle(), ALICE)
    broker.connect("2", "2", Throttle(), User("alice"))  # whose groups have changed
    with pytest.raises(ResourceLimit, match=r"User alice has 2 connections already.*connections_per_user"):
        broker.connect("3", "3", Throttle(), ALICE)
    assert broker.per_user.refused_count == 1
    broker.connect("4", "4", Throttle(), BOB)
    first.close()
    broker.connect("3", "3", Throttle(), ALICE)


def test_connection_that_closes_twice_counts_once(broker: BrokerCore) -> None:
    first, _ = broker.connect("1", "1", Throttle(), ALICE), broker.connect("2", "2", Throttle(), ALICE)
    first.close()
    first.close()
    broker.connect("3", "3", Throttle(), ALICE)
    with pytest.raises(ResourceLimit):
        broker.connect("4", "4", Throttle(), ALICE)


def test_client_id_of_another_is_refused_before_it_counts(broker: BrokerCore) -> None:
    broker.connect("1", "same", Throttle(), ALICE)
    for number in range(3):
        with pytest.raises(Exception, match="already connected"):
            broker.connect(f"2{number}", "same", Throttle(), ALICE)
    broker.connect("3", "3", Throttle(), ALICE)


@pytest.mark.parametrize("guest", [ANONYMOUS, User("alice", frozenset({"guests"}), is_guest=True)])
def test_clients_without_a_login_have_no_such_limit_and_take_none_of_a_users(broker: BrokerCore, guest: User) -> None:
    for number in range(10):
        broker.connect(str(number), str(number), Throttle(), guest)
    broker.connect("alice's", "alice's", Throttle(), ALICE)


def test_nothing_is_kept_of_users_who_left(broker: BrokerCore) -> None:
    broker.connect("1", "1", Throttle(), ALICE).close()
    assert broker.per_user._counts == {}


def test_without_a_limit_all_are_taken() -> None:
    broker = BrokerCore("b", store=MemoryStore(), clock=lambda: 0)
    for number in range(100):
        broker.connect(str(number), str(number), Throttle(), ALICE)
