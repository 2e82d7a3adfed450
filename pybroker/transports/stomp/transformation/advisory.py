"""Trees of the commands in advisories, with the fields in the order of the Java class.

Source: ActiveMQ 5.17, `org.apache.activemq.command`: fields that are not transient, those of the superclass first; null
ones are left out.
"""

import base64
from collections.abc import Mapping
from typing import Final, cast

from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.message import SIZE_OVERHEAD
from pybroker.broker.domain.openwire import commands
from pybroker.broker.domain.openwire.java_text import java_text
from pybroker.broker.domain.openwire.marshal.transcode import STORE
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId
from pybroker.transports.stomp.transformation.tree import Element, NotTransformable

_Fields = tuple[tuple[str, str], ...]

_COMMAND: Final[_Fields] = (("commandId", "command_id"), ("responseRequired", "response_required"))

_ID_FIELDS: Final[Mapping[type, _Fields]] = {
    commands.ConnectionId: (("value", "value"),),
    commands.SessionId: (("connectionId", "connection_id"), ("value", "value")),
    commands.ConsumerId: (("connectionId", "connection_id"), ("sessionId", "session_id"), ("value", "value")),
    commands.ProducerId: (("connectionId", "connection_id"), ("sessionId", "session_id"), ("value", "value")),
    commands.BrokerId: (("value", "value"),),
    commands.OpenWireMessageId: (
        ("textView", "text_view"),
        ("producerId", "producer_id"),
        ("producerSequenceId", "producer_sequence_id"),
        ("brokerSequenceId", "broker_sequence_id"),
    ),
    commands.NetworkBridgeFilter: (
        ("networkBrokerId", "network_broker_id"),
        ("messageTTL", "message_ttl"),
        ("consumerTTL", "consumer_ttl"),
    ),
    XATransactionId: (
        ("formatId", "format_id"),
        ("branchQualifier", "branch_qualifier"),
        ("globalTransactionId", "global_transaction_id"),
    ),
}

_COMMAND_FIELDS: Final[Mapping[type, _Fields]] = {
    commands.ConnectionInfo: (
        ("connectionId", "connection_id"),
        ("clientId", "client_id"),
        ("clientIp", "client_ip"),
        ("userName", "user_name"),
        ("password", "password"),
        ("brokerPath", "broker_path"),
        ("brokerMasterConnector", "broker_master_connector"),
        ("manageable", "manageable"),
        ("clientMaster", "client_master"),
        ("faultTolerant", "fault_tolerant"),
        ("failoverReconnect", "failover_reconnect"),
    ),
    commands.ConsumerInfo: (
        ("consumerId", "consumer_id"),
        ("destination", "destination"),
        ("prefetchSize", "prefetch_size"),
        ("maximumPendingMessageLimit", "maximum_pending_message_limit"),
        ("browser", "browser"),
        ("dispatchAsync", "dispatch_async"),
        ("selector", "selector"),
        ("clientId", "client_id"),
        ("subscriptionName", "subscription_name"),
        ("noLocal", "no_local"),
        ("exclusive", "exclusive"),
        ("retroactive", "retroactive"),
        ("priority", "priority"),
        ("brokerPath", "broker_path"),
        ("optimizedAcknowledge", "optimized_acknowledge"),
        ("noRangeAcks", "no_range_acks"),
        ("additionalPredicate", "additional_predicate"),
    ),
    commands.ProducerInfo: (
        ("producerId", "producer_id"),
        ("destination", "destination"),
        ("brokerPath", "broker_path"),
        ("dispatchAsync", "dispatch_async"),
        ("windowSize", "window_size"),
    ),
    commands.DestinationInfo: (
        ("connectionId", "connection_id"),
        ("destination", "destination"),
        ("operationType", "operation_type"),
        ("timeout", "timeout"),
        ("brokerPath", "broker_path"),
    ),
    commands.RemoveInfo: (("objectId", "object_id"), ("lastDeliveredSequenceId", "last_delivered_sequence_id")),
    commands.RemoveSubscriptionInfo: (
        ("connectionId", "connection_id"),
        ("clientId", "client_id"),
        ("subscriptionName", "subscription_name"),
    ),
    commands.BrokerInfo: (
        ("brokerId", "broker_id"),
        ("brokerURL", "broker_url"),
        ("slaveBroker", "slave_broker"),
        ("masterBroker", "master_broker"),
        ("faultTolerantConfiguration", "fault_tolerant_configuration"),
        ("networkConnection", "network_connection"),
        ("duplexConnection", "duplex_connection"),
        ("brokerName", "broker_name"),
        ("connectionId", "connection_id"),
        ("brokerUploadUrl", "broker_upload_url"),
        ("networkProperties", "network_properties"),
    ),
}

_MESSAGE_FIELDS: Final[_Fields] = (
    ("messageId", "message_id"),
    ("originalDestination", "original_destination"),
    ("originalTransactionId", "original_transaction_id"),
    ("producerId", "producer_id"),
    ("destination", "destination"),
    ("transactionId", "transaction_id"),
    ("expiration", "expiration"),
    ("timestamp", "timestamp"),
    ("arrival", "arrival"),
    ("brokerInTime", "broker_in_time"),
    ("brokerOutTime", "broker_out_time"),
    ("correlationId", "correlation_id"),
    ("replyTo", "reply_to"),
    ("persistent", "persistent"),
    ("type", "jms_type"),
    ("priority", "priority"),
    ("groupID", "group_id"),
    ("groupSequence", "group_sequence"),
    ("targetConsumerId", "target_consumer_id"),
    ("compressed", "compressed"),
    ("userID", "user_id"),
    ("content", "content"),
    ("marshalledProperties", "marshalled_properties"),
    ("redeliveryCounter", "redelivery_counter"),
)
_MESSAGE_END: Final = (("droppable", "droppable"), ("jmsXGroupFirstForConsumer", "group_first_for_consumer"))

_DESTINATION_CLASSES: Final = {
    DestinationType.QUEUE: "ActiveMQQueue",
    DestinationType.TOPIC: "ActiveMQTopic",
    DestinationType.TEMP_QUEUE: "ActiveMQTempQueue",
    DestinationType.TEMP_TOPIC: "ActiveMQTempTopic",
}

_POLYMORPHIC: Final = frozenset({"objectId", "transactionId", "originalTransactionId", "additionalPredicate"})
"""Fields whose declared type is not the value's, which is in the attribute `class`."""


def tree_of_command(data: bytes | None) -> Element:
    """Return the tree of an advisory's command, from its encoded form.

    Raises:
        NotTransformable: ActiveMQ has no advisory with this command.
        MalformedOpenWire: it does not decode.
    """
    if data is None:
        return Element("null")
    command: object = STORE.decode(data)
    name = type(command).__name__
    if isinstance(command, commands.ActiveMQMessage):
        return Element(name, None, _message(command))
    if isinstance(command, Destination):
        return _destination(_DESTINATION_CLASSES[command.type], command)._replace(java_class=None)
    fields = _COMMAND_FIELDS.get(type(command))
    if fields is None:
        raise NotTransformable(f"An advisory about a {name} is not transformed")
    children = _nodes(command, _COMMAND + fields)
    if isinstance(command, commands.ProducerInfo):
        children.append(Element("sentCount", "0"))
    return Element(name, None, children)


def _message(message: commands.ActiveMQMessage) -> list[Element]:
    size = SIZE_OVERHEAD + len(message.content or b"") + len(message.marshalled_properties or b"")
    return [
        *_nodes(message, _COMMAND + _MESSAGE_FIELDS),
        Element("size", str(size)),
        Element("readOnlyProperties", "false"),
        Element("readOnlyBody", "false"),
        *_nodes(message, (*_MESSAGE_END, ("brokerPath", "broker_path"), ("cluster", "cluster"))),
    ]


def _nodes(command: object, fields: _Fields) -> list[Element]:
    named = ((name, getattr(command, attribute)) for name, attribute in fields)
    return [_node(name, value) for name, value in named if value is not None]


def _node(name: str, value: object) -> Element:
    if isinstance(value, (bool, int, str)):
        return Element(name, java_text(value))
    if isinstance(value, Destination):
        return _destination(name, value)
    if isinstance(value, bytes):
        return _byte_sequence(name, value)
    java_class = type(value).__name__ if name in _POLYMORPHIC else None
    if isinstance(value, LocalTransactionId):
        connection = Element("connectionId", None, (Element("value", value.connection_id),))
        return Element(name, None, (connection, Element("value", str(value.value))), java_class)
    fields = _ID_FIELDS.get(type(value))
    if fields is not None:
        return Element(name, None, _nodes(value, fields), java_class)
    # An array of ids, such as a broker path.
    array = cast("tuple[object, ...]", value)
    items = [_node(type(item).__name__, item) for item in array if item is not None]
    return Element(name, None, items, is_array=True)


def _destination(name: str, destination: Destination) -> Element:
    # ActiveMQ's class serialises itself: its name, and its options, which are never sent.
    children = (Element("string", destination.name), Element("null"))
    return Element(name, None, children, _DESTINATION_CLASSES[destination.type])


def _byte_sequence(name: str, data: bytes) -> Element:
    encoded = base64.b64encode(data).decode()
    children = (Element("data", encoded, is_array=True), Element("offset", "0"), Element("length", str(len(data))))
    return Element(name, None, children)
