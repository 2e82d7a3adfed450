"""One message on its way to one consumer, as core and transports share it."""

from pybroker.broker.domain.message import Message


class Delivery:
    """A message for a consumer. Its identity is the handle for acknowledgements.

    Attributes:
        message: what is delivered.
        redelivery_count: how often it may have been seen before; more than 0 marks it redelivered.
    """

    __slots__ = ("message", "redelivery_count")

    def __init__(self, message: Message, redelivery_count: int = 0) -> None:
        self.message = message
        self.redelivery_count = redelivery_count
