"""The name of the user in each message, if that is configured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.errors import RequestError
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.message import decode, view
from pybroker.broker.domain.openwire.sender import with_user
from pybroker.broker.domain.security import User
from tests.unit.core.conftest import World, make_message


@given(user=st.text(max_size=50), again=st.text(max_size=50), color=st.text(max_size=50), text=st.text(max_size=50))
def test_all_else_stays_as_it_was(user: str, again: str, color: str, text: str) -> None:
    message = make_message(text, "queue://A", properties={"color": color})
    signed = with_user(with_user(message, again), user)
    assert view(signed).user_id == user
    before, after = decode(message.data), decode(signed.data)
    after.user_id = None
    assert before == after
    assert (signed.message_id, signed.destination, signed.persistent) == (
        message.message_id,
        message.destination,
        message.persistent,
    )


@pytest.mark.parametrize("populates", [True, False])
def test_a_message_has_its_sender(world: World, populates: bool) -> None:
    world.broker.populates_user = populates
    client = world.client(user=User("ann"))
    inbox = client.subscribe("queue://A")
    transaction = client.connection.begin()
    client.connection.send(with_user(make_message("1", "queue://A"), "forged"))
    client.connection.send(with_user(make_message("2", "queue://A"), "forged"), transaction)
    client.connection.commit(transaction)
    users = [view(message).user_id for message in inbox.messages.values()]
    assert users == (["ann", "ann"] if populates else ["forged", "forged"])


def test_what_does_not_decode_is_refused(world: World) -> None:
    world.broker.populates_user = True
    message = make_message("1", "queue://A")
    cut = Message(
        message_id=message.message_id,
        destination=message.destination,
        data=message.data[:-40],
        persistent=True,
        priority=4,
        expiration=0,
        connection_id="c",
        payload_size=1,
    )
    with pytest.raises(RequestError, match="does not decode"):
        world.client().connection.send(cut)
