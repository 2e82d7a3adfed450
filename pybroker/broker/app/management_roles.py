"""The configuration's `[management_roles]`: the groups whose users may use management, by role.

```toml
[management_roles]
monitor = ["monitors"]      # these are the defaults
operator = ["operators"]
admin = ["admins"]
```

A role has the rights of those before it:

```text
monitor    sees everything, and changes nothing
operator   purges, moves and sends messages, pauses queues, ends transactions in doubt
admin      creates and deletes destinations, cuts connections off, has the master step down
```
"""

from dataclasses import dataclass
from typing import Final

from pybroker.broker.app.setting import Setting, Table, listed, user_name
from pybroker.broker.domain.node_requests import ManagementRole
from pybroker.broker.domain.security import User

_GROUPS = Setting(listed(user_name, "group", 'write a list of groups, such as ["admins", "ops"]'))


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementRoles:
    """The groups of each role."""

    monitor: tuple[str, ...] = ("monitors",)
    operator: tuple[str, ...] = ("operators",)
    admin: tuple[str, ...] = ("admins",)

    def role_of(self, user: User) -> ManagementRole | None:
        """Return the highest role of a user; None if it has none."""
        groups = {ManagementRole.ADMIN: self.admin, ManagementRole.OPERATOR: self.operator}
        for role, names in (groups | {ManagementRole.MONITOR: self.monitor}).items():
            if not user.groups.isdisjoint(names):
                return role
        return None


ROLES: Final = Table(ManagementRoles, {"monitor": _GROUPS, "operator": _GROUPS, "admin": _GROUPS})
"""The `[management_roles]` table."""
