"""An authenticator that decides when a test wants."""

from pybroker.broker.domain.security import Authenticator, Credentials, Decided, User


class FakeAuthenticator(Authenticator):
    """Knows one user, `u` with the password `right`.

    Attributes:
        is_slow: decides only when `decide` is called.
        asked: the credentials that were shown.
    """

    def __init__(self, *, is_slow: bool = False) -> None:
        self.is_slow = is_slow
        self.asked: list[Credentials] = []
        self._waiting: list[tuple[Credentials, Decided]] = []

    def authenticate(self, credentials: Credentials, decided: Decided) -> None:
        self.asked.append(credentials)
        self._waiting.append((credentials, decided))
        if not self.is_slow:
            self.decide()

    def decide(self) -> None:
        waiting, self._waiting = self._waiting, []
        for credentials, decided in waiting:
            is_right = (credentials.user, credentials.password) == ("u", "right")
            decided(User("u", frozenset("g")) if is_right else credentials.refusal)
