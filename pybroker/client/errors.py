"""What can go wrong for a client, one type per cause: who catches one knows what to do about it.

```text
ClientError
├── UnusableURI                           correct the URI
│   ├── UnknownOption
│   └── BadOption
├── ConnectionFailed                      nothing can be sent any more
│   ├── BrokerMissing                     nobody answered, in all attempts that were allowed
│   ├── LoginRefused                      user, password or client id
│   ├── UntrustedBroker                   TLS: certificate or host name
│   ├── ConnectionLost                    it broke, and the URI allows no other attempt
│   └── ProtocolViolation                 what answers there does not speak the protocol
├── ConnectionClosed                      closed by the application itself
├── Refused                               the broker answered, and said no
│   ├── DestinationRefused
│   ├── SelectorRefused
│   └── NoRoom                            disk, memory or quota
├── FrameTooLarge                         a message larger than the broker takes
├── UnsendableMessage                     a body, header or request that has no form on the wire
├── UnreadableMessage                     a body that is not what it says it is
├── TransactionRolledBack                 do all of it again
├── TransactionInDoubt                    it may be done: do it again only if that is harmless
└── Timeout                               also a TimeoutError
```
"""


class ClientError(Exception):
    """Anything a client of a broker raises on purpose."""


class UnusableURI(ClientError):
    """A URI that cannot be used.

    Attributes:
        part: what is wrong in it; never a password.
        hint: what to write instead.
    """

    def __init__(self, message: str, *, part: str = "", hint: str = "") -> None:
        super().__init__(message + (f": {part}" if part else "") + (f" ({hint})" if hint else ""))
        self.part = part
        self.hint = hint


class UnknownOption(UnusableURI):
    """A URI with an option that there is not; the hint names the one that was probably meant."""


class BadOption(UnusableURI):
    """A URI with an option whose value it cannot have."""


class ConnectionFailed(ClientError):
    """The connection is gone for good; the cause says why. Only a new one helps.

    Attributes:
        address: the broker's, such as `tcp://a:61616`; empty if it is about several.
    """

    def __init__(self, message: str, *, address: str = "") -> None:
        super().__init__(message)
        self.address = address


class BrokerMissing(ConnectionFailed):
    """No broker answered, in as many attempts as the URI allows. The message names each, with its last failure."""


class LoginRefused(ConnectionFailed):
    """The broker does not let this user, or this client id, in. Never tried again by itself."""


class UntrustedBroker(ConnectionFailed):
    """TLS did not find the broker to be who it should be, or the broker did not find us to be.

    Trying the same broker again does not help. A connection ends so when no other one of its URI takes it.
    """


class ConnectionLost(ConnectionFailed):
    """The connection broke, and the URI has no `failover:`."""


class ProtocolViolation(ConnectionFailed):
    """The peer does not speak the protocol: perhaps it is no broker, or the port is one of another protocol."""


class ConnectionClosed(ClientError):
    """The application has closed the connection, consumer or producer that it uses."""


class Refused(ClientError):
    """The broker carried a request out by refusing it.

    Attributes:
        kind: the broker's own name for the cause, such as `javax.jms.JMSException`; may be empty.
    """

    def __init__(self, message: str, *, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class DestinationRefused(Refused):
    """A destination that does not exist, must not be used, or cannot be used so."""


class SelectorRefused(Refused):
    """The selector is no selector."""


class NoRoom(Refused):
    """The broker has no room for the message: disk, memory or a quota."""


class FrameTooLarge(ClientError):
    """A message larger than the two sides agreed to take. It was not sent, and trying again does not help.

    Attributes:
        size: its bytes.
        limit: the bytes allowed.
    """

    def __init__(self, message: str, *, size: int, limit: int) -> None:
        super().__init__(message)
        self.size = size
        self.limit = limit


class UnsendableMessage(ClientError):
    """A body, property, header or request that the protocol has no form for."""


class UnreadableMessage(ClientError):
    """A received message's body or properties are damaged; the message as such can be acknowledged."""


class TransactionRolledBack(ClientError):
    """Nothing of the transaction was done. Messages taken in it come again; send the others again."""


class TransactionInDoubt(ClientError):
    """The connection broke before the commit was answered: all of the transaction was done, or nothing.

    Do it again only if that is harmless (idempotent): for example when the receiver recognises what it has seen.
    """


class Timeout(ClientError, TimeoutError):
    """It took longer than `timeout` allows. What was asked for may still happen, or have happened."""
