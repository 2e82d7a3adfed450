"""The login of one connection: no later input is processed until the authenticator has decided.

```text
ConnectionInfo, CONNECT -> begin --decided at once-------------> session
                             `--input is held | thread | released, session
```
"""

from collections.abc import Callable

from pybroker.broker.domain.addresses import host_of
from pybroker.broker.domain.security import Authenticator, Credentials, NotAuthenticated, User
from pybroker.transports.session import Link

Decided = Callable[[User | NotAuthenticated], None]


class PeerLogin:
    """The login of a connection, which may log in again after it has left."""

    __slots__ = ("_authenticator", "_decided", "_is_held", "_link")

    def __init__(self, link: Link, authenticator: Authenticator) -> None:
        self._link = link
        self._authenticator = authenticator
        self._decided: Decided | None = None
        self._is_held = False

    def begin(self, user: str | None, password: str | None, decided: Decided) -> None:
        """Have the authenticator decide; `decided` is called with the user or the refusal, unless `cancel` comes first.

        It raises no exception, as nothing of the session may be on the stack.
        """
        self._decided = decided
        self._is_held = False
        self._authenticator.authenticate(
            Credentials(user, password, host_of(self._link.peer), self._link.certificate), self._on_decision
        )
        if self._decided is not None:
            self._is_held = True
            self._link.hold_input()

    def cancel(self) -> None:
        """Call nothing back: the connection has ended."""
        self._decided = None

    def _on_decision(self, outcome: User | NotAuthenticated) -> None:
        decided, self._decided = self._decided, None
        try:
            if decided is not None:
                decided(outcome)
        finally:
            if self._is_held:
                self._is_held = False
                self._link.release_input()  # last: it may process input, and the core may have held it for the client
