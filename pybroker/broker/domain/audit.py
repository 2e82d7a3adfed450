"""The audit log: a line for each login, refusal, denied act, and act of administration by a client.

Its logger is `pybroker.audit`. A line has its parts as fields too, for a log in JSON:

```text
event      login, guest, login refused, refused, denied, created, removed, unsubscribed, disconnected, operated
user       the name of the user; of a refused login the one that was given, null for none
address    the client's address
act        of an operator, such as `moved`: see `core.operations`
object     what it is about: a destination, a subscription
messages   of an operator's act, the number of messages that it has affected
reason     of what was refused or denied
```

Source: security.md, section 2.
"""

import logging
from collections import Counter
from typing import Final

from pybroker.broker.domain.security import NAME_SHOWN_MAX, shown
from pybroker.counted import counted

LOGGER: Final = "pybroker.audit"

FIELDS: Final = "audit"
"""The attribute of a log record that has the fields."""

COUNTS: Final = Counter[str]()
"""How often each event has happened, for metrics. Like its logger it is the process's, and no parameter."""

THROTTLED: Final = "login throttled"
"""The key of `COUNTS` for logins that are refused without a look at the password; their event is `login refused`."""

_log = logging.getLogger(LOGGER)


def logged_in(user: str, address: str) -> None:
    """Log that a client has logged in."""
    _log.info("%s logged in from %s", shown(user), address, extra=_fields("login", user, address))


def let_in(guest: str, address: str) -> None:
    """Log that a client has connected without a login."""
    _log.info("%s connected from %s without a login", shown(guest), address, extra=_fields("guest", guest, address))


def login_refused(name: str | None, address: str, reason: str, *, is_throttled: bool = False) -> None:
    """Log that a login was refused; the reason is not told to the client.

    Args:
        name: the user that was given; None: none was.
        address: the address of the client.
        reason: why, for the operator.
        is_throttled: True if the password was not looked at, since too many logins failed or wait.
    """
    counted_as = THROTTLED if is_throttled else None
    fields = _fields("login refused", name, address, reason=reason, counted_as=counted_as)
    _log.info("login of %s from %s refused: %s", shown(name), address, reason, extra=fields)


def refused(user: str, address: str, reason: str) -> None:
    """Log that a connection was rejected after a successful login, such as for a client id in use."""
    _log.info(
        "%s from %s refused: %s", shown(user), address, reason, extra=_fields("refused", user, address, reason=reason)
    )


def denied(user: str, address: str, act: str, what: str) -> None:
    """Log that a user had no right for an act, such as `write to`."""
    fields = _fields("denied", user, address, what, f"no right to {act} it")
    _log.info("%s from %s may not %s: %s", shown(user), address, act, what, extra=fields)


def created(user: str, address: str, what: str) -> None:
    """Log that a client has created a destination by a command for that."""
    _log.info("%s from %s created %s", shown(user), address, what, extra=_fields("created", user, address, what))


def removed(user: str, address: str, what: str) -> None:
    """Log that a client has removed a destination with its messages."""
    _log.info("%s from %s removed %s", shown(user), address, what, extra=_fields("removed", user, address, what))


def unsubscribed(user: str, address: str, what: str) -> None:
    """Log that a client has deleted a durable subscription."""
    fields = _fields("unsubscribed", user, address, what)
    _log.info("%s from %s deleted the durable subscription %s", shown(user), address, what, extra=fields)


def operated(user: str, address: str, act: str, what: str, count: int | None = None, reason: str | None = None) -> None:
    """Log an act of an operator.

    Args:
        user: the operator.
        address: the address of the operator.
        act: such as `removed messages of`.
        what: the destination, connection, subscription, branch or job.
        count: the number of messages that were affected; None: the act is about none.
        reason: why it ended early; None: it did not.
    """
    fields = _fields("operated", user, address, what, reason)
    fields[FIELDS]["act"] = act
    text = ""
    if count is not None:
        fields[FIELDS]["messages"] = str(count)
        text = f": {counted(count, 'message')}"
    if reason is not None:
        text += f", and ended early: {reason}"
    _log.info("%s from %s %s %s%s", shown(user), address, act, what, text, extra=fields)


def disconnected(user: str, address: str, reason: str) -> None:
    """Log that the broker has closed a connection because a user or a right has changed."""
    fields = _fields("disconnected", user, address, reason=reason)
    _log.info("%s from %s is disconnected: %s", shown(user), address, reason, extra=fields)


def _fields(
    event: str,
    user: str | None,
    address: str,
    what: str | None = None,
    reason: str | None = None,
    counted_as: str | None = None,
) -> dict[str, dict[str, str | None]]:
    """Count an event, under its own name or another one, and return the fields of its line."""
    COUNTS[counted_as or event] += 1
    name = None if user is None else user[:NAME_SHOWN_MAX]
    fields: dict[str, str | None] = {"event": event, "user": name, "address": address}
    if what is not None:
        fields["object"] = what
    if reason is not None:
        fields["reason"] = reason
    return {FIELDS: fields}
