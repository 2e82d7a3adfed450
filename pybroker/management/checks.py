"""The health checks: what each path answers in each state of the node.

```text
            starting  standby  standby that could not serve  master  stopping  silent
/live          200      200               200                  200     200       503
/ready         503      200               503                  200     503       503
/master        503      503               503                  200     503       503
/standby       503      200               503                  503     503       503
```

`/live` asks whether the node's event loop turns, `/ready` whether the node does its part in the pair, `/master` whether
clients may be sent to it, and `/standby` whether it would take over. A node is silent if it has not told its state for
`SILENT_SECONDS`.
"""

from http import HTTPStatus
from typing import Final, NamedTuple

from pybroker.broker.domain.node_state import NodeState
from pybroker.broker.domain.role import Role

SILENT_SECONDS: Final = 10.0
"""The age of the node's last state from which on it counts as hanging. It tells its state once a second."""

PATHS: Final = ("/live", "/ready", "/master", "/standby")

_WORDS: Final = {
    Role.STANDBY: "standby",
    Role.PROMOTING: "starting",
    Role.MASTER: "master",
    Role.RELINQUISHING: "stopping",
    Role.STOPPED: "stopping",
}
_DEGRADED: Final = "degraded"
_READY: Final = {
    "/ready": ("standby", "master"),
    "/master": ("master",),
    "/standby": ("standby",),
}
"""The words for which a path answers 200."""


class Health(NamedTuple):
    """The answer to a check: a status of HTTP, and a line of text."""

    status: HTTPStatus
    text: str


def check(path: str, state: NodeState | None, now: float) -> Health:
    """Return the answer to a check.

    Args:
        path: one of `PATHS`.
        state: the node's last state; None: it has not told any yet.
        now: seconds of the clock that the state has its time from.
    """
    if state is None:
        word, text = "starting", "starting"
    elif now - state.at > SILENT_SECONDS:
        return Health(HTTPStatus.SERVICE_UNAVAILABLE, f"silent for {now - state.at:.0f} s")
    elif state.role is Role.STANDBY and state.obstacle:
        word, text = _DEGRADED, f"{_DEGRADED}: {state.obstacle}"
    else:
        word = text = _WORDS[state.role]
    if path == "/live":
        return Health(HTTPStatus.OK, word)
    return Health(HTTPStatus.OK if word in _READY[path] else HTTPStatus.SERVICE_UNAVAILABLE, text)
