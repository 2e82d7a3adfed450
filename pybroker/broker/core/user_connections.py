"""Counts the connections of each user who has logged in, and limits them. Clients without a login are no user."""

from collections import Counter

from pybroker.broker.domain.errors import ResourceLimit
from pybroker.broker.domain.security import User


class UserConnections:
    """The connections of each user.

    Attributes:
        refused_count: the connections that were refused.
    """

    def __init__(self, limit: int) -> None:
        """Begin without connections; 0 means no limit."""
        self.refused_count = 0
        self._limit = limit
        self._counts = Counter[str]()

    def add(self, user: User) -> None:
        """Count a connection that begins.

        Raises:
            ResourceLimit: the user has all that one may have.
        """
        if not user.is_verified:
            return
        if 0 < self._limit <= self._counts[user.name]:
            self.refused_count += 1
            raise ResourceLimit(
                f"User {user.name} has {self._counts[user.name]} connections already: close some, or raise "
                "connections_per_user"
            )
        self._counts[user.name] += 1

    def remove(self, user: User) -> None:
        """Count a connection that has ended."""
        if not user.is_verified:
            return
        self._counts[user.name] -= 1
        if not self._counts[user.name]:
            del self._counts[user.name]
