"""Messages as selectors see them: nothing is kept on a message that may wait."""

from dataclasses import replace

from pybroker.broker.core.selector import compile_selector
from pybroker.broker.core.selector.subject import SubjectCache
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.openwire.ids import OpenWireMessageId
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, routing, to_message
from pybroker.broker.domain.openwire.values import encode_map

FIELDS = OpenWireMessage(
    type=MessageType.BYTES,
    destination=queue("ORDERS"),
    message_id=OpenWireMessageId("ID:a:1:1:1", None, 0),
    content=b"x" * 5_000,
    marshalled_properties=encode_map({"a": 1, "b": "y" * 5_000}),
)


def test_an_evaluation_keeps_nothing_on_the_message():
    message = routing(to_message(FIELDS).data)
    assert compile_selector("a = 1 AND JMSPriority = 4").matches(message)
    assert message.decoded is None


def test_the_content_is_not_decoded():
    subject = SubjectCache().get(routing(to_message(FIELDS).data), 0)
    assert subject.fields == replace(FIELDS, content=None)


def test_fields_that_are_decoded_already_are_used():
    message = to_message(FIELDS)
    assert SubjectCache().get(message, 0).fields is FIELDS


def test_one_message_is_kept_until_the_next_one():
    cache = SubjectCache()
    first, second = (routing(to_message(replace(FIELDS, priority=priority)).data) for priority in (3, 5))
    subject = cache.get(first, 0)
    assert cache.get(first, 0) is subject
    assert cache.get(second, 0).fields.priority == 5
    assert cache.get(first, 0) is not subject
    cache.clear()
    assert cache.get(first, 0).fields.priority == 3


def test_each_evaluation_has_its_own_redelivery_count():
    message = routing(to_message(replace(FIELDS, redelivery_counter=1)).data)
    count = compile_selector("JMSXDeliveryCount = 5")
    assert [count.matches(message, earlier) for earlier in (4, 0, 4, 3)] == [True, False, True, False]
    assert compile_selector("JMSXDeliveryCount = 2").matches(message), "the message's own count"


def test_only_named_properties_are_decoded():
    message = routing(to_message(FIELDS).data)
    cache = SubjectCache()
    subject = cache.get(message, 0)
    assert subject.find("a") == 1
    assert subject.find("missing") is None
    assert subject.found == {"a": 1, "missing": None}
