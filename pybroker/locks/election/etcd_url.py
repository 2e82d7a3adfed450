"""The URL of a register in etcd."""

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

from pybroker.broker.domain.errors import ConfigError
from pybroker.locks.election.http_calls import HttpAddress

PORT = 2379

_HOST = re.compile(r"[\w.:%-]+")
_ADDRESSES_MAX = 9
_NAME_LENGTH_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdUrl:
    """A URL `etcd://HOST:2379,HOST:2379/NAME`, or `etcd+https://` for TLS.

    Attributes:
        addresses: the nodes.
        cluster: the name of the cluster.
        is_tls: True for `etcd+https`.
    """

    addresses: tuple[HttpAddress, ...]
    cluster: str
    is_tls: bool

    @classmethod
    def parse(cls, url: str, setting: str = "replicate") -> "EtcdUrl":
        """Parse a URL; `setting` is the setting it comes from.

        Raises:
            ConfigError: it is not valid. The message does not quote it, for it may have a password.
        """
        scheme, _, rest = url.partition("://")
        if scheme not in ("etcd", "etcd+https"):
            raise _no_url("it must begin with etcd:// or etcd+https://", setting)
        hosts, _, name = rest.partition("/")
        if "@" in hosts:
            raise _no_url("user and password do not belong into it", setting)
        if "?" in name or "#" in name:
            raise _no_url("it has no options", setting)
        name = unquote(name) or "pybroker"
        if "/" in name or len(name) > _NAME_LENGTH_MAX or not name.isprintable():
            raise _no_url(f"the name of the cluster is one word of at most {_NAME_LENGTH_MAX} characters", setting)
        addresses = tuple(_address(each, setting) for each in hosts.split(","))
        if len(addresses) > _ADDRESSES_MAX:
            raise _no_url(f"it has more than {_ADDRESSES_MAX} addresses", setting)
        return cls(addresses=addresses, cluster=name, is_tls=scheme == "etcd+https")

    def __str__(self) -> str:
        """The URL, in one form."""
        hosts = ",".join(map(str, self.addresses))
        return f"etcd{'+https' if self.is_tls else ''}://{hosts}/{quote(self.cluster)}"


def _address(text: str, setting: str) -> HttpAddress:
    try:
        parts = urlsplit(f"//{text}")
        port = PORT if parts.port is None else parts.port
    except ValueError:
        raise _no_url("a port is no number, or a bracket is missing", setting) from None
    if not parts.hostname or parts.netloc != text or not port or not _HOST.fullmatch(parts.hostname):
        raise _no_url("an address is a host and a port", setting)
    return HttpAddress(parts.hostname, port)


def _no_url(what: str, setting: str) -> ConfigError:
    hint = "write etcd://HOST:2379,HOST:2379/NAME"
    return ConfigError(f"this is not the URL of an etcd register: {what}", setting=setting, hint=hint)
