"""The broker's errors, by the party that must act.

```text
BrokerError
├── ProtocolError                        the peer: its bytes violate the protocol
├── RequestError                         the client: InvalidDestination, ResourceLimit, TransactionError, …
├── MalformedData                        the caller, who knows where the bytes come from
├── StoreError                           the operator: StoreUnavailable, DatabaseUnavailable, JournalCorrupt
├── LockError                            the operator: LockNotHeld
├── ConfigError                          the user: setting and hint
├── RequestFailed                        the user of management, who gets it over HTTP
├── JolokiaError, MalformedObjectName    the same, from Jolokia
└── RequirementMissing                   the user: what to install
```
"""

from pybroker.errors import PybrokerError


class BrokerError(PybrokerError):
    """Base of every error the broker raises on purpose."""


def unexpected(error: Exception) -> Exception | None:
    """Return an error that the broker does not raise on purpose, for the traceback in the log; None for another."""
    return None if isinstance(error, BrokerError) else error


class ProtocolError(BrokerError):
    """A violation of the protocol by the peer; it gets an error, and the connection closes."""


class RequestError(BrokerError):
    """A valid request that cannot be granted; the peer gets an error, and the connection stays open."""


class InvalidDestination(RequestError):
    """A destination that does not exist, is not the client's, or has a name that cannot be used."""


class DestinationDoesNotExist(InvalidDestination):
    """A temporary destination that was never created, or was deleted with its connection."""


class InvalidSelector(RequestError):
    """A selector that is not valid by JMS 1.1 (3.8.1); the lines below the first show the place of the error."""

    @property
    def sentence(self) -> str:
        """The first line: the column of the error, and what was expected there."""
        return str(self).partition("\n")[0]


class InvalidClientId(RequestError):
    """A client id that another connection uses."""


class SessionTakenOver(RequestError):
    """The end of a connection whose client id another connection of the same client has taken over."""


class SubscriptionInUse(RequestError):
    """A durable subscription that has a consumer already."""


class DestinationInUse(RequestError):
    """A destination that cannot be deleted, because it has consumers."""


class ResourceLimit(RequestError):
    """A limit on memory, disk space or numbers is reached."""


class ClosedByOperator(RequestError):
    """The end of a connection that an operator has closed."""


class TooManyValues(RequestError):
    """A message's properties have more values than the limit."""


class TransactionError(RequestError):
    """A transaction that is unknown, already begun, or in the wrong state for the request."""


class UnknownTransaction(TransactionError):
    """A transaction that was never begun, or has ended."""


class CommitFailed(TransactionError):
    """A commit that failed: an operation in the transaction had failed, and it was rolled back."""


class MalformedData(BrokerError):
    """Bytes that do not decode. Decoders raise it; their callers name the peer, or the place in the store."""


class StoreError(BrokerError):
    """The store has failed; nothing more may be confirmed."""


class StoreUnavailable(StoreError):
    """The store cannot be opened, read, written or synced.

    Attributes:
        path: the file or table concerned.
        hint: what an operator can do about it.
    """

    def __init__(self, message: str, *, path: str = "", hint: str = "") -> None:
        """Describe the failure in `message`; it is shown as it is, followed by the hint."""
        super().__init__(f"{message}; {hint}" if hint else message)
        self.path = path
        self.hint = hint


class DatabaseUnavailable(StoreUnavailable):
    """The database cannot be reached, or cannot work now. Another attempt may succeed.

    Unless the connection is still open, the outcome of its last statement is unknown.

    Attributes:
        reason: what happened, without the place and the remedy.
    """

    def __init__(self, where: str, reason: str, *, hint: str = "check server and network") -> None:
        """Create the error; `reason` is the message of the server or of libpq where there is one."""
        super().__init__(f"{where}: {reason}", path=where, hint=hint)
        self.reason = reason


class NotReadYet(StoreUnavailable):
    """The message is still being read; the caller tries again when the store reports it as readable."""


class JournalCorrupt(StoreError):
    """A record or batch that does not decode, and that no crash can have left so.

    Attributes:
        path: the data file.
        offset: the offset in the file, in bytes.
        hint: what an operator can do about it.
    """

    def __init__(self, message: str, *, path: str, offset: int, hint: str = "") -> None:
        """Describe the damage in `message`; path, offset and hint are appended to it."""
        super().__init__(f"{path}: offset {offset}: {message}" + (f"; {hint}" if hint else ""))
        self.path = path
        self.offset = offset
        self.hint = hint


class LockError(BrokerError):
    """The lock on the store cannot be taken or kept."""


class LockNotHeld(LockError):
    """The lock is no longer ours: nothing more may be written or acknowledged."""


class ConfigError(BrokerError):
    """A setting that cannot be used.

    Attributes:
        setting: its name as the user knows it; empty for several.
        reason: what is wrong, without the setting.
        hint: the remedy.
    """

    def __init__(self, message: str, *, setting: str, hint: str = "") -> None:
        """Describe the error in `message`; setting and hint are added around it."""
        super().__init__((f"{setting}: " if setting else "") + message + (f"; {hint}" if hint else ""))
        self.setting = setting
        self.reason = message
        self.hint = hint


class RequirementMissing(BrokerError):
    """A program or package that is needed is not installed. The text has the remedy."""
