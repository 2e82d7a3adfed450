"""The port of a register: one record in an election store, read and changed by compare-and-swap.

```text
read()                  -> revision and record           linearizable: never older than what any member has read before
swap(revision, record)  -> swapped, or the present one   changes the record only if its revision is still that one
watch(callback)         -> calls back at changes         only makes things quicker: it may lose, repeat and delay
```

Every call blocks for `timeout_seconds` at most, and is made in a thread of its own. A call without an answer raises
`RegisterUnavailable`. After a swap this means *unknown*, and never *no*: the record may change later than the call's
end. The outcome is known when a newer revision is read; the nonce of the record then shows whose write it was. Reading
the old revision again proves nothing.

Revisions only grow, also when the record is deleted and created again. Source: specification of replication, 3.2.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from pybroker.broker.domain.errors import LockError
from pybroker.locks.election.record import ElectionRecord


class RegisterState(NamedTuple):
    """The content of a register.

    Attributes:
        revision: grows with every change; 0 where there is no record.
        record: None: there is none.
    """

    revision: int
    record: ElectionRecord | None


ABSENT = RegisterState(0, None)
"""The content of a register before its first record."""


class SwapResult(NamedTuple):
    """The answer to a swap.

    Attributes:
        is_swapped: True if the record was changed; False if it had another revision: a conflict.
        present: the content afterwards.
    """

    is_swapped: bool
    present: RegisterState


class RegisterUnavailable(LockError):
    """The election store did not answer in time, or not as it should. The outcome of a swap is unknown.

    Attributes:
        reason: what happened, without the name of the register.
    """

    def __init__(self, name: str, reason: str) -> None:
        """Create the error; `name` is the register's."""
        super().__init__(f"{name}: {reason}")
        self.reason = reason


class RegisterMalformed(LockError):
    """The register holds something that is no record of this version. An operator must look at it."""


RegisterCallback = Callable[[RegisterState], None]
"""Called in the watch's thread with each content that it sees, in no strict order. It must not block or raise."""


class RegisterWatch(Protocol):
    """A watch under way."""

    def close(self) -> None:
        """End it, and wait for the end of its thread. May be repeated."""
        ...


class Register(Protocol):
    """One record in an election store. One thread at a time may read and swap."""

    @property
    def name(self) -> str:
        """The address of the register in logs and errors, without secrets."""
        ...

    @property
    def cluster(self) -> str:
        """The name of the cluster, by the register's address."""
        ...

    def read(self) -> RegisterState:
        """Return the present content.

        Raises:
            RegisterUnavailable: no answer in time.
            RegisterMalformed: the content is no record.
            ConfigError: the election store refuses the user.
        """
        ...

    def swap(self, revision: int, record: ElectionRecord) -> SwapResult:
        """Change the record if its revision is still this one; with revision 0, create it if there is none.

        Raises:
            RegisterUnavailable: the outcome is unknown, and may be decided after this call.
            RegisterMalformed: the content is no record; nothing was changed.
            ConfigError: the election store refuses the user; nothing was changed.
        """
        ...

    def watch(self, callback: RegisterCallback) -> RegisterWatch:
        """Call back at changes, from a thread of its own, through every outage until it is closed."""
        ...

    def guardian_access(self) -> Mapping[str, Any]:
        """Return all that a guardian's process needs to reach the register, secrets included.

        Where it cannot be reached so, there is no `kind`, and `reason` says why, in words for the log.

        Source: `pybroker.locks.election.guardian_process`.
        """
        ...

    def close(self) -> None:
        """Close the connections. May be repeated."""
        ...
