"""Errors of AMQP: a condition that the standard names, and a sentence for the peer and the log."""

from typing import Final

from pybroker.broker.domain.errors import BrokerError

DECODE_ERROR: Final = "amqp:decode-error"
FRAMING_ERROR: Final = "amqp:connection:framing-error"
INTERNAL_ERROR: Final = "amqp:internal-error"


class AmqpError(BrokerError):
    """An error that the peer gets as a condition and a description.

    Attributes:
        condition: the symbol of the error condition, such as `amqp:not-found`.
    """

    def __init__(self, message: str, condition: str = INTERNAL_ERROR) -> None:
        super().__init__(message)
        self.condition = condition


class MalformedAmqp(AmqpError):
    """Bytes that are not the value, performative or message that they should be."""

    def __init__(self, message: str) -> None:
        super().__init__(message, DECODE_ERROR)


class TooManyAmqpValues(MalformedAmqp):
    """More values, or deeper nested ones, than the broker decodes. The bytes may be well-formed."""


class UnencodableAmqp(AmqpError):
    """A value that AMQP has no type for, or that does not fit its type."""


class AmqpFramingError(AmqpError):
    """Bytes that are no frame, or a frame above the limit. Nothing can be decoded after that."""

    def __init__(self, message: str) -> None:
        super().__init__(message, FRAMING_ERROR)
