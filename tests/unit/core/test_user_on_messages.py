"""The name of the user in each message, if that is configured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.core.arrival_rules import ArrivalRules
from pybroker.broker.domain.errors import RequestError
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.message import decode, to_message, view
from pybroker.broker.domain.openwire.sender import with_user, without_user
from pybroker.broker.domain.openwire.values import Value, encode_map
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


@pytest.mark.parametrize("has_field", [True, False])
@pytest.mark.parametrize("has_property", [True, False])
@pytest.mark.parametrize("properties", [{}, {"color": "red", "JMSXUserIDs": 1}])
@pytest.mark.parametrize("text", ["", "m", "JMSXUserID"])
def test_what_a_client_says_of_the_user_is_removed(
    has_field: bool, has_property: bool, properties: dict[str, Value], text: str
) -> None:
    clean = make_message(text, "queue://A", properties={**properties} or None)
    forged = {**properties, "JMSXUserID": "boss"} if has_property else properties
    fields = decode(clean.data)
    fields.marshalled_properties = encode_map(forged) if forged else None
    fields.user_id = "boss" if has_field else None
    message = to_message(fields)
    removed = without_user(message)
    assert decode(removed.data).properties == properties
    assert removed.payload_size == view(removed).payload_size
    if has_property and not properties:
        assert view(removed).marshalled_properties == encode_map({})
    else:
        assert removed.data == clean.data
    assert (removed is message) is not (has_field or has_property)


def test_properties_that_do_not_decode_may_not_name_a_user() -> None:
    fields = decode(make_message("m", "queue://A").data)
    fields.marshalled_properties = b"\0\0\0\1\0\x0aJMSXUserID\x09\0\x04boss and more"
    with pytest.raises(MalformedOpenWire):
        without_user(to_message(fields))


@pytest.mark.parametrize("populates", [True, False])
def test_a_message_has_its_sender(world: World, populates: bool) -> None:
    world.broker.arrival_rules = ArrivalRules(populates_user=populates)
    client = world.client(user=User("ann"))
    inbox = client.subscribe("queue://A")
    transaction = client.connection.begin()
    client.connection.send(with_user(make_message("1", "queue://A"), "forged"))
    client.connection.send(with_user(make_message("2", "queue://A"), "forged"), transaction)
    client.connection.commit(transaction)
    users = [view(message).user_id for message in inbox.messages.values()]
    assert users == (["ann", "ann"] if populates else ["forged", "forged"])


def test_what_does_not_decode_is_refused(world: World) -> None:
    world.broker.arrival_rules = ArrivalRules(populates_user=True)
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
