"""The parts of AMQP's sections that a message keeps as properties, for which JMS has no fields.

Source: ActiveMQ 5.17, AMQP transport; see `names` for the properties.
"""

from collections.abc import Callable, Mapping
from typing import Final, cast

from pybroker.broker.domain.amqp.sections import AmqpMessageProperties
from pybroker.broker.domain.amqp.values import AmqpValue, Symbol
from pybroker.broker.domain.openwire.java_text import java_text
from pybroker.broker.domain.openwire.values import Value
from pybroker.transports.amqp import names


class RestoredSections:
    """The sections that properties make.

    Attributes:
        has_header: the message had a header.
        first_acquirer: the header's field; None if it is not set.
        delivery_annotations: may be empty, as the other maps.
        message_annotations: those that a client has set.
        properties: the section, with the fields that JMS has not.
        application_properties: all properties that are for the application.
        footer: its entries.
    """

    __slots__ = (
        "application_properties",
        "delivery_annotations",
        "first_acquirer",
        "footer",
        "has_header",
        "message_annotations",
        "properties",
    )

    def __init__(self) -> None:
        self.has_header = False
        self.first_acquirer: bool | None = None
        self.delivery_annotations: dict[AmqpValue, AmqpValue] = {}
        self.message_annotations: dict[AmqpValue, AmqpValue] = {}
        self.properties = AmqpMessageProperties()
        self.application_properties: dict[AmqpValue, AmqpValue] = {}
        self.footer: dict[AmqpValue, AmqpValue] = {}


def restored_sections(properties: Mapping[str, Value]) -> RestoredSections:
    """Return the sections that the properties of a message make. Those that schedule it are left out."""
    made = RestoredSections()
    for name, value in properties.items():
        if name.startswith(names.PREFIX):
            _restore(made, name, value)
        elif not name.startswith(names.SCHEDULED):
            made.application_properties[name] = cast("AmqpValue", value)
    return made


def java_boolean(value: Value) -> bool | None:
    """Return the boolean that Java makes of a property; None if it makes none."""
    if isinstance(value, bool):
        return value
    return value.lower() == "true" if isinstance(value, str) else None


def _restore(made: RestoredSections, name: str, value: Value) -> None:
    """Put a property back where it came from."""
    restore = _RESTORERS.get(name)
    if restore is not None:
        restore(made, value)
    elif name.startswith(names.MESSAGE_ANNOTATION):
        made.message_annotations[_symbol(name[len(names.MESSAGE_ANNOTATION) :])] = cast("AmqpValue", value)
    elif name.startswith(names.DELIVERY_ANNOTATION):
        made.delivery_annotations[_symbol(name[len(names.DELIVERY_ANNOTATION) :])] = cast("AmqpValue", value)
    elif name.startswith(names.FOOTER):
        made.footer[_symbol(name[len(names.FOOTER) :])] = cast("AmqpValue", value)
    else:
        made.application_properties[name] = cast("AmqpValue", value)


def _leave_out(_: RestoredSections, __: Value) -> None:
    """Ignore a property that describes the conversion."""


def _restore_header(made: RestoredSections, _: Value) -> None:
    made.has_header = True


def _restore_first_acquirer(made: RestoredSections, value: Value) -> None:
    made.first_acquirer = java_boolean(value)


def _restore_content_type(made: RestoredSections, value: Value) -> None:
    made.properties.content_type = _symbol(java_text(value))


def _restore_content_encoding(made: RestoredSections, value: Value) -> None:
    made.properties.content_encoding = _symbol(java_text(value))


def _restore_reply_to_group_id(made: RestoredSections, value: Value) -> None:
    made.properties.reply_to_group_id = java_text(value)


_RESTORERS: Final[Mapping[str, Callable[[RestoredSections, Value], None]]] = {
    names.NATIVE: _leave_out,
    names.ORIGINAL_ENCODING: _leave_out,
    names.MESSAGE_FORMAT: _leave_out,
    names.PROPERTIES: _leave_out,
    names.HEADER: _restore_header,
    names.FIRST_ACQUIRER: _restore_first_acquirer,
    names.CONTENT_TYPE: _restore_content_type,
    names.CONTENT_ENCODING: _restore_content_encoding,
    names.REPLY_TO_GROUP_ID: _restore_reply_to_group_id,
}


def _symbol(text: str) -> Symbol:
    """Return a symbol, which is ASCII: other characters become `?`, as in Java."""
    return Symbol(text if text.isascii() else text.encode("ascii", "replace").decode())
