"""How a broker introduces itself at one end of a bridge: its id and its name, which become parts of client ids.

They are shown in logs, in the status and in the names of durable subscriptions, so text of another program is refused.
"""

from typing import Final

from pybroker.broker.domain.errors import ProtocolError
from pybroker.broker.domain.openwire.commands import BrokerInfo

NAME_MAX: Final = 255
"""The limit to a remote broker's name and id, and to the name of its connector."""


def introduced(info: BrokerInfo) -> tuple[str, str]:
    """Return the id and the name of a remote broker.

    Raises:
        ProtocolError: one is missing, too long or not printable.
    """
    broker_id = "" if info.broker_id is None else info.broker_id.value or ""
    name = info.broker_name or ""
    if not broker_id or not name:
        raise ProtocolError("the remote broker does not say its id and its name")
    require_printable("the id of the remote broker", broker_id)
    require_printable("the name of the remote broker", name)
    return broker_id, name


def require_printable(what: str, text: str) -> None:
    """Check a text of a remote broker that becomes part of a name here.

    Raises:
        ProtocolError: it is too long or not printable.
    """
    if len(text) > NAME_MAX or not text.isprintable():
        allowed = f"{NAME_MAX} printable ones are allowed"
        raise ProtocolError(f"{what} has {len(text)} characters, where {allowed}")
