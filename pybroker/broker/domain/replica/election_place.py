"""The place of a cluster's register, as its master sends it to a member that was given only the master's address.

Without secrets: a member has its own user and password for a database, in the environment or in a file.

Source: specification of replication, 8.2.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, Final, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from pybroker.broker.domain.errors import MalformedData

_SECRET_OPTIONS: Final = ("password", "sslpassword")
_LENGTH_MAX: Final = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionPlace:
    """The register, and the settings that all members have alike.

    Attributes:
        url: `replicate` of the master, without a password.
        lease: `replicate_lease` in seconds, as the register has it.
        timeout: `replicate_timeout` in seconds.
        grace: `replicate_grace`.
    """

    url: str
    lease: float = 5.0
    timeout: float = 2.0
    grace: bool = True

    def encode(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return what a master has told.

        Raises:
            MalformedData: it is nothing of the kind.
        """
        try:
            values: Any = json.loads(text) if len(text) <= _LENGTH_MAX else None
            url, grace = values["url"], values["grace"]
            lease, timeout = float(values["lease"]), float(values["timeout"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise MalformedData(f"where the register is cannot be read: {error!r}") from error
        if not isinstance(url, str) or not isinstance(grace, bool):
            raise MalformedData("where the register is cannot be read: another type")
        return cls(url=url, lease=lease, timeout=timeout, grace=grace)


def without_password(url: str) -> str:
    """Return the URL of an election store without passwords."""
    scheme = url.partition("://")[0]
    if scheme not in ("postgresql", "postgres"):
        return url  # those of etcd and Kubernetes have none
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    options = [each for each in parse_qsl(parts.query, keep_blank_values=True) if each[0] not in _SECRET_OPTIONS]
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{host}", query=urlencode(options)))
