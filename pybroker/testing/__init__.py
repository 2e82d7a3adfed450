"""Real brokers for tests: started in milliseconds, killed, frozen, partitioned, and removed afterwards.

`Broker` is one broker with its store in memory, `Cluster` several on one store. Both are context managers; the pytest
plug-in (`pybroker.testing.plugin`) makes fixtures of them.

```text
 the test's process                         │ other processes
                                            │
 Cluster ── Member ── ListenerProxy         │
    │          │                            │
    │          └─ BrokerProcess ────────────┼─ pybroker start       killed by the kernel when the fork server ends
    └─ ForkServer ──────────────────────────┼─ fork server ──fork─┘ ends when the test's process does
```

The broker is not loaded into the test's process: a test sees what a client sees.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pybroker.testing.cluster import Broker, Cluster
    from pybroker.testing.launcher import ClusterError
    from pybroker.testing.member import Member
    from pybroker.testing.process import State

__all__ = ["Broker", "Cluster", "ClusterError", "Member", "State"]


_HOMES = {"Broker": "cluster", "Cluster": "cluster", "Member": "member", "ClusterError": "launcher", "State": "process"}


def __getattr__(name: str) -> object:
    """Load a name at its first use, because every pytest run where pybroker is installed loads this package."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
