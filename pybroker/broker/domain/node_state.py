"""The state of a node, as it tells its management process once a second and at each change."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

from pybroker.broker.domain.role import Role

LINE_BYTES_MAX = 8192
"""The length of a line, at most; an obstacle is cut."""

_OBSTACLE_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """The state of a node at one moment.

    Attributes:
        role: its role.
        obstacle: the reason why a standby could not serve; empty if none is known.
        users_version: a number that differs once the users have changed.
        at: the time of the state: seconds of the machine's monotonic clock, which its processes share.
    """

    role: Role
    obstacle: str
    at: float
    users_version: int = 0

    def as_line(self) -> bytes:
        """Return the state as one line of JSON."""
        cut = self.obstacle[:_OBSTACLE_MAX]
        return json.dumps(asdict(self) | {"obstacle": cut}).encode() + b"\n"

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Self:
        """Return the state that a line of JSON has."""
        role = Role(fields["role"])
        return cls(role=role, obstacle=fields["obstacle"], at=fields["at"], users_version=fields["users_version"])
