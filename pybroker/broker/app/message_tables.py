"""The configuration's tables that change what happens to every message.

```toml
[time_stamping]
ttl_ceiling = "1h"
```

Names are those of ActiveMQ's `timeStampingBrokerPlugin` in snake case.
"""

from pybroker.broker.app.setting import Setting, Table, milliseconds, yes_or_no
from pybroker.broker.core.arrival_rules import TimeStamping
from pybroker.broker.domain.errors import ConfigError

_FLAG = Setting(yes_or_no)
_LIFETIME = Setting(milliseconds, least=0)

TIME_STAMPING = Table(
    TimeStamping,
    {
        "zero_expiration_override": _LIFETIME,
        "ttl_ceiling": _LIFETIME,
        "future_only": _FLAG,
        "process_network_messages": _FLAG,
    },
)
"""The `[time_stamping]` table."""


def _read_time_stamping(value: object) -> TimeStamping | None:
    try:
        return None if value is False else TIME_STAMPING.read({} if value is True else value)
    except ConfigError as error:  # with the attribute, which is not the setting
        raise ValueError(str(error)) from error


READERS = {"time_stamping": _read_time_stamping}
"""The readers of these settings."""
