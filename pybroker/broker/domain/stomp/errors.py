"""Errors of STOMP clients: the cause and a hint for the client, which are both sent in the ERROR frame.

The first part is ActiveMQ's wording where it has one, because programs look for it; the remedy is for people.
"""

from pybroker.broker.domain.errors import BrokerError, ProtocolError, RequestError


class StompRequestError(RequestError):
    """A frame that cannot be granted; the connection stays open.

    Attributes:
        remedy: one or more sentences.
    """

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


class StompProtocolError(ProtocolError):
    """Bytes that violate the protocol, after which the connection is closed.

    Attributes:
        remedy: one or more sentences.
    """

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


def describe(error: BrokerError) -> tuple[str, bytes]:
    """Return an ERROR frame's `message` header (one line) and its body (text without NUL)."""
    text = str(error)
    if isinstance(error, StompRequestError | StompProtocolError):
        text = f"{text}\n{error.remedy}"
    text = text.replace("\0", "\ufffd")
    return text.partition("\n")[0], text.encode(errors="replace")
