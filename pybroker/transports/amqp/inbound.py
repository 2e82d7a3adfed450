"""The payloads of transfers as messages.

Source: ActiveMQ 5.17, AMQP transport. A setting determines the form in which a message is kept:

```text
jms       a Text, Bytes, Map, Stream or Object message, with fields and properties of the sections
   | a value that JMS has no type for, or a body that does not decode or has too many values
   v
native    a Bytes message whose body is the encoded AMQP message, with the same fields and properties
   | as above, or it does not decode
   v
raw       a Bytes message whose body is the encoded AMQP message, persistent, without fields and properties
```

A message for which a form is impossible is kept in the next one, so no message is refused for what it contains. AMQP
clients get native and raw messages bit by bit as they were sent.
"""

import enum
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from pybroker.broker.domain.amqp.errors import AmqpError
from pybroker.broker.domain.amqp.sections import AmqpMessage, decode_message
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.errors import InvalidDestination
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.openwire.loose import UnencodableOpenWire
from pybroker.broker.domain.openwire.template import MessageTemplate
from pybroker.broker.domain.openwire.values import Long
from pybroker.broker.domain.ports import Clock
from pybroker.broker.domain.transaction import TransactionId
from pybroker.transports.amqp import names
from pybroker.transports.amqp.inbound_bodies import jms_body
from pybroker.transports.amqp.message_fields import TransferFields

_SESSION_ID: Final = -1
_PRECONDITION_FAILED: Final = "amqp:precondition-failed"

_TEMPLATES_MAX: Final = 32
"""The destinations of one link for which a template is kept: an anonymous relay may send to many."""

_NAME_MAX: Final = 200
"""The characters of a name for which one is kept: a connection may have thousands of links."""

_QUICK_BYTES: Final = 4096
"""Payloads up to this length take less than a millisecond; a longer one may have thousands of properties."""


class AmqpTransformer(enum.Enum):
    """The form in which messages of AMQP clients are kept; the values are those of ActiveMQ's option `transformer`."""

    JMS = "jms"
    NATIVE = "native"
    RAW = "raw"


_RAW: Final = (AmqpTransformer.RAW,)
_FORMS: Final[Mapping[AmqpTransformer, tuple[AmqpTransformer, ...]]] = {
    AmqpTransformer.JMS: (AmqpTransformer.JMS, AmqpTransformer.NATIVE, AmqpTransformer.RAW),
    AmqpTransformer.NATIVE: (AmqpTransformer.NATIVE, AmqpTransformer.RAW),
    AmqpTransformer.RAW: _RAW,
}
"""The forms that are tried, one after the other."""


class TransferReader:
    """Converts the transfers of one link to messages of one producer."""

    __slots__ = (
        "_clock",
        "_decodes_bodies",
        "_forms",
        "_next_sequence",
        "_producer_id",
        "_removes_user",
        "_sequence",
        "_templates",
    )

    def __init__(
        self,
        connection_id: str,
        clock: Clock,
        next_sequence: Callable[[], int],
        transformer: AmqpTransformer,
        *,
        producer_value: int,
        session_id: int = _SESSION_ID,
        removes_user: bool = False,
    ) -> None:
        """Number messages from 1.

        Args:
            connection_id: identifies the connection in message ids.
            clock: milliseconds since the epoch.
            next_sequence: numbers messages in the broker.
            transformer: the form of the messages.
            producer_value: the number of the producer in the session.
            session_id: the number of the session.
            removes_user: the client does not determine the user of its messages.
        """
        self._producer_id = ProducerId(connection_id, session_id, producer_value)
        self._clock = clock
        self._next_sequence = next_sequence
        self._forms = _FORMS[transformer]
        self._decodes_bodies = transformer is AmqpTransformer.JMS
        self._removes_user = removes_user
        self._sequence = 0
        self._templates: dict[Destination, MessageTemplate] = {}

    def read(
        self,
        payload: bytes,
        message_format: int,
        destination: Destination | None,
        transaction: TransactionId | None = None,
    ) -> Message:
        """Return the message of a transfer.

        Args:
            payload: the encoded sections.
            message_format: the format that the transfer has.
            destination: the link's target; None: the message says where it goes to.
            transaction: the transaction it is sent in.

        Raises:
            AmqpError: the message has to say where it goes to, and does not.
            UnencodableOpenWire: the name of its destination is too long.
        """
        if len(payload) > _QUICK_BYTES:
            EFFORT.is_large = True
        forms = self._forms
        message: AmqpMessage | None = None
        if destination is None or forms is not _RAW:
            try:
                message = decode_message(payload, with_body=self._decodes_bodies)
            except AmqpError:
                message, forms = self._without_body(payload)
            if destination is None:
                destination = _destination_in(message)
        template = self._templates.get(destination) or self._template(destination)
        self._sequence += 1
        broker_sequence = self._next_sequence()
        now = self._clock()
        for form in forms:
            try:
                fields = _fields(form, payload, message, now)
                if message_format:
                    fields.properties[names.MESSAGE_FORMAT] = Long(message_format)
                return self._build(template, fields, broker_sequence, now, transaction)
            except (AmqpError, InvalidDestination, UnencodableOpenWire):
                if form is AmqpTransformer.RAW:
                    raise
        raise AssertionError("the last form is raw")

    def _without_body(self, payload: bytes) -> tuple[AmqpMessage | None, tuple[AmqpTransformer, ...]]:
        """Return a message whose body may be what does not decode, or has too many values, and the forms for it."""
        if self._decodes_bodies:
            with suppress(AmqpError):
                return decode_message(payload, with_body=False), _FORMS[AmqpTransformer.NATIVE]
        return None, _RAW

    def _build(
        self,
        template: MessageTemplate,
        fields: TransferFields,
        broker_sequence: int,
        now: int,
        transaction: TransactionId | None,
    ) -> Message:
        if self._removes_user:
            fields.remove_user()
        return template.build(
            type=fields.type,
            sequence=self._sequence,
            broker_sequence=broker_sequence,
            content=fields.content,
            properties=fields.properties,
            persistent=fields.persistent,
            timestamp=fields.timestamp,
            expiration=fields.expiration,
            priority=fields.priority,
            correlation_id=fields.correlation_id,
            reply_to=fields.reply_to,
            jms_type=fields.jms_type,
            group_id=fields.group_id,
            group_sequence=fields.group_sequence,
            transaction_id=transaction,
            broker_in_time=now,
            text_view=fields.message_id,
            user_id=fields.user_id,
            redelivery_counter=fields.redelivery_counter,
        )

    def _template(self, destination: Destination) -> MessageTemplate:
        made = MessageTemplate(self._producer_id, destination)
        if len(destination.name) <= _NAME_MAX:
            if len(self._templates) >= _TEMPLATES_MAX:
                self._templates.clear()
            self._templates[destination] = made
        return made


def _fields(form: AmqpTransformer, payload: bytes, message: AmqpMessage | None, now: int) -> TransferFields:
    """Return the parts of a message in one form. Raises if the form is impossible."""
    fields = TransferFields()
    if form is AmqpTransformer.JMS and message is not None:
        fields.type, fields.content, encoding = jms_body(message)
        fields.populate(message, now)
        fields.properties[names.ORIGINAL_ENCODING] = encoding
        return fields
    fields.content = payload
    fields.timestamp = now
    # ActiveMQ's native messages are persistent, too, if they have a header that does not say whether they are.
    fields.persistent = message is None or form is AmqpTransformer.RAW or message.header is not None
    if form is AmqpTransformer.NATIVE and message is not None:
        fields.populate(message, now)
    fields.properties[names.NATIVE] = True
    return fields


def _destination_in(message: AmqpMessage | None) -> Destination:
    """Return the destination that a message names."""
    properties = None if message is None else message.properties
    if properties is None or properties.to is None:
        raise AmqpError("Missing to field for message sent to an anonymous producer", _PRECONDITION_FAILED)
    try:
        return names.parse_address(properties.to)
    except InvalidDestination as error:
        raise AmqpError(str(error), _PRECONDITION_FAILED) from error
