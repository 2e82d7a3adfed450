"""The URL of a register in Kubernetes."""

import re
from dataclasses import dataclass

from pybroker.broker.domain.errors import ConfigError

SCHEME = "kubernetes://"

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""A name by RFC 1123, as those of namespaces are."""

_NAME = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_NAME_LENGTH_MAX = 253
"""A Lease's name is that of a subdomain: it becomes a part of the request's path as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesUrl:
    """A URL `kubernetes://[NAMESPACE/]NAME`.

    Attributes:
        namespace: empty: that of the member's pod, or of its kubeconfig.
        cluster: the name of the cluster, which is that of the Lease.
    """

    namespace: str
    cluster: str

    @classmethod
    def parse(cls, url: str, setting: str = "replicate") -> "KubernetesUrl":
        """Parse a URL; `setting` is the setting it comes from.

        Raises:
            ConfigError: it is not valid.
        """
        if not url.startswith(SCHEME):
            raise _no_url(f"it must begin with {SCHEME}", setting)
        namespace, slash, name = url.removeprefix(SCHEME).rpartition("/")
        if slash and not is_namespace(namespace):
            raise _no_url("a namespace is made of a to z, 0 to 9 and -, and has at most 63 characters", setting)
        if len(name) > _NAME_LENGTH_MAX or not _NAME.fullmatch(name):
            raise _no_url("the name of the cluster is that of a Lease: a to z, 0 to 9, - and dots", setting)
        return cls(namespace=namespace, cluster=name)

    def __str__(self) -> str:
        """The URL."""
        return f"{SCHEME}{self.namespace}{'/' if self.namespace else ''}{self.cluster}"


def is_namespace(text: str) -> bool:
    """Return True if a namespace can have this name."""
    return _LABEL.fullmatch(text) is not None


def _no_url(what: str, setting: str) -> ConfigError:
    hint = "write kubernetes://NAME or kubernetes://NAMESPACE/NAME"
    return ConfigError(f"this is not the URL of a register in Kubernetes: {what}", setting=setting, hint=hint)
