"""The errors of the client: one type per cause, so that a handler knows what to do.

```text
ClientError
├── UnusableURI                           correct the URI
│   ├── UnknownOption
│   └── BadOption
├── ConnectionFailed                      nothing can be sent any more
│   ├── BrokerMissing                     no broker answered in all attempts that the URI allows
│   ├── LoginRefused                      user, password or client id
│   ├── UntrustedBroker                   TLS: certificate or host name
│   ├── InheritedConnection               a forked child uses a connection of its parent
│   ├── ConnectionLost                    the connection broke, and the URI allows no other attempt
│   └── ProtocolViolation                 the peer does not speak the protocol
├── ConnectionClosed                      the application closed the connection
├── Refused                               the broker refused the request
│   ├── DestinationRefused
│   │   └── NotAuthorized                 the user has no right to do that there
│   ├── SelectorRefused
│   └── NoRoom                            disk, memory or quota
├── FrameTooLarge                         a message larger than the broker allows
├── UnsendableMessage                     a body, header or request that has no form on the wire
├── UnreadableMessage                     a received body or property that is damaged
├── TransactionRolledBack                 repeat the whole transaction
├── TransactionInDoubt                    the commit may have happened: repeat only if that is harmless
└── Timeout                               also a TimeoutError
```
"""

from pybroker.errors import PybrokerError


class ClientError(PybrokerError):
    """The base class of the errors of the client."""


class UnusableURI(ClientError):
    """A URI that cannot be used.

    Attributes:
        part: the part of the URI that is wrong; never a password.
        hint: a suggestion of what to write.
    """

    def __init__(self, message: str, *, part: str = "", hint: str = "") -> None:
        super().__init__(message + (f": {part}" if part else "") + (f" ({hint})" if hint else ""))
        self.part = part
        self.hint = hint


class UnknownOption(UnusableURI):
    """A URI with an unknown option; the hint names the most similar one."""


class BadOption(UnusableURI):
    """A URI with an option whose value is not allowed."""


class ConnectionFailed(ClientError):
    """The connection has failed permanently. The application must open a new one.

    Attributes:
        address: the broker's address, such as `tcp://a:61616`; empty if the error concerns several brokers.
    """

    def __init__(self, message: str, *, address: str = "") -> None:
        super().__init__(message)
        self.address = address


class BrokerMissing(ConnectionFailed):
    """No broker answered in all attempts that the URI allows. The message names each broker and its last failure."""


class LoginRefused(ConnectionFailed):
    """The broker refused the user, the password or the client id. The client does not repeat such a login."""


class UntrustedBroker(ConnectionFailed):
    """TLS verification failed: the client did not trust the broker's certificate, or the broker the client's.

    Another attempt on the same broker does not help. The connection fails with this error if no other broker of the URI
    accepts it.
    """


class ConnectionLost(ConnectionFailed):
    """The connection broke, and the URI has no `failover:`."""


class InheritedConnection(ConnectionFailed):
    """A forked child uses a connection of its parent. It must open its own; the parent's is not affected."""


class ProtocolViolation(ConnectionFailed):
    """The peer does not speak the protocol: perhaps it is no broker, or the port is for another protocol."""


class ConnectionClosed(ClientError):
    """The application used a connection, consumer or producer that it has closed."""


class Refused(ClientError):
    """The broker refused a request.

    Attributes:
        kind: the broker's name of the error, such as `javax.jms.JMSException`; may be empty.
    """

    def __init__(self, message: str, *, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class DestinationRefused(Refused):
    """The destination does not exist, the user may not use it, or it does not support the operation."""


class NotAuthorized(DestinationRefused):
    """The user has no right to read, write, create or remove the destination."""


class SelectorRefused(Refused):
    """The selector is not valid."""


class NoRoom(Refused):
    """The broker has no space for the message: disk, memory or a quota."""


class FrameTooLarge(ClientError):
    """A message is larger than the limit that both sides agreed on. It was not sent; another attempt does not help.

    Attributes:
        size: the bytes of the message.
        limit: the bytes that are allowed.
    """

    def __init__(self, message: str, *, size: int, limit: int) -> None:
        super().__init__(message)
        self.size = size
        self.limit = limit


class UnsendableMessage(ClientError):
    """The protocol has no form for a body, property, header or request."""


class UnreadableMessage(ClientError):
    """The body or properties of a received message are damaged. The message can still be acknowledged."""


class TransactionRolledBack(ClientError):
    """The transaction had no effect. Messages acknowledged in it are redelivered; its sends must be repeated."""


class TransactionInDoubt(ClientError):
    """The connection broke before the broker answered the commit: the whole transaction took effect, or nothing.

    Repeat it only if that is harmless (idempotent): for example, if the receiver recognises duplicates.
    """


class Timeout(ClientError, TimeoutError):
    """The operation took longer than `timeout` allows. It may have happened, or happen later."""
