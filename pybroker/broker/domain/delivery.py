"""The delivery of one message to one consumer, shared by core and transports."""

from pybroker.broker.domain.message import Message


class Delivery:
    """One delivery. The object itself is the handle for acknowledgements.

    Attributes:
        message: the message.
        redelivery_count: how often a client may have seen it before; if not 0, it is marked as redelivered.
    """

    __slots__ = ("message", "redelivery_count")

    def __init__(self, message: Message, redelivery_count: int = 0) -> None:
        self.message = message
        self.redelivery_count = redelivery_count
