"""What can go wrong, split by who must act.

```text
BrokerError
├── ProtocolError ── RemoteProtocolError (the peer)
├── ClientError ──── InvalidDestination, InvalidSelector, InvalidClientId, TransactionError, … (the peer's request)
├── StoreError ───── JournalCorrupt (path, offset, hint), StoreUnavailable
├── LockError ────── LockNotHeld
└── ConfigError (setting, hint)
```
"""


class BrokerError(Exception):
    """Base of every error the broker raises on purpose."""


class ProtocolError(BrokerError):
    """A conversation broke its protocol's rules."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol; it gets told, and the connection closes."""


class ClientError(BrokerError):
    """A well-formed request that cannot be granted; the peer gets told, and the connection stays open."""


class InvalidDestination(ClientError):
    """A destination that does not exist, is not the client's, or has a name that cannot be used."""


class DestinationDoesNotExist(InvalidDestination):
    """A temporary destination that was never made, or is gone with its connection."""


class InvalidSelector(ClientError):
    """A selector that is not SQL-92 as JMS 1.1 (3.8.1) has it."""


class InvalidClientId(ClientError):
    """A client id that another connection holds."""


class SubscriptionInUse(ClientError):
    """A durable subscription that is active elsewhere."""


class DestinationInUse(ClientError):
    """A destination that cannot be deleted, because somebody consumes from it."""


class ResourceLimit(ClientError):
    """No room: a limit on memory, storage or numbers is reached."""


class TransactionError(ClientError):
    """A transaction that is unknown, already begun, or used for what it cannot do."""


class UnknownTransaction(TransactionError):
    """A transaction that was never begun, or is over."""


class TransactionRolledBack(TransactionError):
    """A commit that cannot be: part of the transaction failed, and it was rolled back."""


class StoreError(BrokerError):
    """The store cannot do its work; nothing more may be acknowledged."""


class StoreUnavailable(StoreError):
    """The store cannot be opened, read, written or synced.

    Attributes:
        path: what was touched.
        hint: what an operator can do about it.
    """

    def __init__(self, message: str, *, path: str = "", hint: str = "") -> None:
        """Describe the failure in `message`; it is shown as it is, followed by the hint."""
        super().__init__(f"{message}; {hint}" if hint else message)
        self.path = path
        self.hint = hint


class NotReadYet(StoreUnavailable):
    """It is being read: whoever wants it asks again once the store says so."""


class JournalCorrupt(StoreError):
    """A record or batch that does not decode, where a crash cannot explain it.

    Attributes:
        path: the data file.
        offset: where in it, in bytes.
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
        setting: its name as the user knows it.
        hint: the remedy.
    """

    def __init__(self, message: str, *, setting: str, hint: str = "") -> None:
        """Describe what is wrong in `message`; setting and hint are put around it."""
        super().__init__(f"{setting}: {message}" + (f"; {hint}" if hint else ""))
        self.setting = setting
        self.hint = hint
