"""The role of a broker in its master/slave group: a table of events and actions. `app.node` performs the actions.

```text
        lock acquired                     recovered, listening
STANDBY ---------------> PROMOTING ----------------------------> MASTER
   |                        |                                      |
   | stop                   | failed, lock lost, stop              | lock lost, store failed, stop, step down
   v                        v                                      v
STOPPED <--------------------------- RELINQUISHING <---------------+
               lock released            (listeners closed first)
```

After every failure the listeners are closed first, so that no client is served by two masters. An orderly stop closes
the store, which writes all buffered records. A master that lost its lock, or whose store failed, abandons the store
instead: it must not write another byte.
"""

import enum
from typing import NamedTuple

from pybroker.broker.domain.role import Role


class RoleEvent(enum.Enum):
    """An event that may change the role."""

    LOCK_ACQUIRED = "the lock is ours"
    SERVING = "the store is recovered and the listeners are open"
    PROMOTION_FAILED = "the store or a listener could not be opened"
    LOCK_LOST = "the lock is no longer ours"
    STORE_FAILED = "the store failed"
    STOP = "asked to stop"
    STEP_DOWN = "asked to let a standby take over"
    RELEASED = "the lock is released"


class Action(enum.Enum):
    """An action for the caller, which performs actions in the order given."""

    CANCEL_WAIT = "stop waiting for the lock"
    PROMOTE = "recover the store and open the listeners"
    ABORT_CLIENTS = "close listeners and cut connections at once"
    DRAIN_CLIENTS = "close listeners, send what is owed, close connections"
    CLOSE_STORE = "write what is left and close the store"
    ABANDON_STORE = "leave the store without writing"
    RELEASE_LOCK = "release the lock"


class Decision(NamedTuple):
    """The new role, the actions to perform, and a sentence for the log."""

    role: Role
    actions: tuple[Action, ...]
    sentence: str


_ORDERLY = (Action.DRAIN_CLIENTS, Action.CLOSE_STORE, Action.RELEASE_LOCK)
_AT_ONCE = (Action.ABORT_CLIENTS, Action.ABANDON_STORE, Action.RELEASE_LOCK)

_TABLE: dict[tuple[Role, RoleEvent], Decision] = {
    (Role.STANDBY, RoleEvent.LOCK_ACQUIRED): Decision(
        Role.PROMOTING, (Action.PROMOTE,), "lock acquired: becoming master"
    ),
    (Role.STANDBY, RoleEvent.STOP): Decision(Role.STOPPED, (Action.CANCEL_WAIT,), "asked to stop: no longer waiting"),
    (Role.PROMOTING, RoleEvent.SERVING): Decision(Role.MASTER, (), "master: clients are served"),
    (Role.PROMOTING, RoleEvent.PROMOTION_FAILED): Decision(
        Role.RELINQUISHING, _AT_ONCE, "cannot become master: giving the lock back"
    ),
    (Role.PROMOTING, RoleEvent.LOCK_LOST): Decision(
        Role.RELINQUISHING, _AT_ONCE, "lost the lock while becoming master: stepping back"
    ),
    (Role.PROMOTING, RoleEvent.STORE_FAILED): Decision(
        Role.RELINQUISHING, _AT_ONCE, "the store failed while becoming master: giving the lock back"
    ),
    (Role.PROMOTING, RoleEvent.STOP): Decision(Role.RELINQUISHING, _ORDERLY, "asked to stop while becoming master"),
    (Role.MASTER, RoleEvent.LOCK_LOST): Decision(
        Role.RELINQUISHING, _AT_ONCE, "lost the lock: clients are cut off, nothing more is acknowledged"
    ),
    (Role.MASTER, RoleEvent.STORE_FAILED): Decision(
        Role.RELINQUISHING, _AT_ONCE, "the store failed: clients are cut off, nothing more is acknowledged"
    ),
    (Role.MASTER, RoleEvent.STOP): Decision(
        Role.RELINQUISHING, _ORDERLY, "asked to stop: sending what is owed, then handing over"
    ),
    (Role.MASTER, RoleEvent.STEP_DOWN): Decision(
        Role.RELINQUISHING, _ORDERLY, "asked to step down: sending what is owed, then handing over"
    ),
    (Role.RELINQUISHING, RoleEvent.LOCK_LOST): Decision(
        Role.RELINQUISHING, (Action.ABORT_CLIENTS,), "lost the lock while stopping: clients are cut off"
    ),
    (Role.RELINQUISHING, RoleEvent.STORE_FAILED): Decision(
        Role.RELINQUISHING, (Action.ABORT_CLIENTS,), "the store failed while stopping: clients are cut off"
    ),
    (Role.RELINQUISHING, RoleEvent.STOP): Decision(
        Role.RELINQUISHING, (Action.ABORT_CLIENTS,), "asked to stop again: not waiting for clients"
    ),
    (Role.RELINQUISHING, RoleEvent.RELEASED): Decision(Role.STOPPED, (), "stopped: the lock is free"),
}


def decide(role: Role, event: RoleEvent) -> Decision:
    """Return the decision for an event in a role. An event that comes too late has no actions, and no sentence."""
    return _TABLE.get((role, event), Decision(role, (), ""))
