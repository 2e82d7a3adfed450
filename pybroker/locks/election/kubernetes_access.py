"""Address of the Kubernetes API server, and the credentials of a member: service account, or kubeconfig.

```text
KUBECONFIG is set               its file, as JSON: server, authority, and a token or a client's certificate
else, in a pod                  KUBERNETES_SERVICE_HOST and _PORT, and the files of the service account:
                                /var/run/secrets/kubernetes.io/serviceaccount/token, ca.crt, namespace
```

All files are read for each request: a kubelet replaces a token long before it ends, and an authority sometimes.

A kubeconfig is YAML, and each JSON text is YAML. The standard library reads JSON alone, which `kubectl config view
--raw --minify --flatten --output json` writes. One that runs a program for a login, leaves TLS unchecked or goes
through a proxy is refused.

Source: Kubernetes' documentation, Accessing the Kubernetes API from a Pod; its reference, kubeconfig (v1).
"""

import base64
import binascii
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from pybroker.broker.domain.errors import ConfigError
from pybroker.locks.election.http_calls import HttpAddress, object_or_none, parse_object
from pybroker.locks.election.kubernetes_url import is_namespace

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The files of the service account in a pod."""

_FILE_BYTES_MAX = 1 << 20
_JSON_HINT = "write it by kubectl config view --raw --minify --flatten --output json"
_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesAccess:
    """An API server, and the credentials for it.

    Attributes:
        address: its host and port.
        is_tls: False for `http`, as with `kubectl proxy`.
        path: the beginning of each path; mostly empty.
        namespace: that of the pod or of the kubeconfig.
        server_name: the name in the server's certificate; empty: the host.
        authority: trusted authorities in PEM; empty: the system's.
        token: for the header `Authorization`; empty: none.
        certificate: the client's, in PEM, with its chain; empty: none.
        key: its key.
    """

    address: HttpAddress
    is_tls: bool = True
    path: str = ""
    namespace: str = "default"
    server_name: str = ""
    authority: bytes = b""
    token: str = field(default="", repr=False)
    certificate: bytes = b""
    key: bytes = field(default=b"", repr=False)

    def has_connection_of(self, other: "KubernetesAccess") -> bool:
        """Return True if a connection for the other one can be kept: at most the token differs."""
        return replace(self, token="") == replace(other, token="")

    def tls(self) -> ssl.SSLContext | None:
        """Return the trust and the certificate for a connection; None without TLS.

        Raises:
            ConfigError: a certificate or a key is none.
            OSError: this machine has no place for a small file.
        """
        if not self.is_tls:
            return None
        try:
            context = ssl.create_default_context(cadata=self.authority.decode("ascii") if self.authority else None)
            # Python 3.13 demands extensions of certificates that those of many clusters lack, and TLS does not need.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            if self.certificate:
                with tempfile.TemporaryDirectory() as directory:  # readable for this user only; `ssl` wants a file
                    path = Path(directory, "client.pem")
                    path.write_bytes(self.certificate + b"\n" + self.key)
                    context.load_cert_chain(path)
        except (ssl.SSLError, UnicodeDecodeError) as error:
            raise _refused(f"a certificate or its key cannot be used: {error}") from error
        return context


def find_access(environment: Mapping[str, str], account: Path = SERVICE_ACCOUNT) -> KubernetesAccess:
    """Read the access from the files that the environment names.

    Args:
        environment: variables, of which `KUBECONFIG` comes first.
        account: the directory of the service account's files.

    Raises:
        ConfigError: there is none, or it cannot be used.
    """
    try:
        if path := environment.get("KUBECONFIG"):
            return _of_kubeconfig(path)
        if host := environment.get("KUBERNETES_SERVICE_HOST"):
            port = environment.get("KUBERNETES_SERVICE_PORT") or "443"
            return _of_pod(host, port, account)
    except OSError as error:
        raise _refused(f"{error.filename} cannot be read: {error.strerror}") from error
    hint = "KUBECONFIG can name a file for use outside of a pod"
    raise _refused("this process is in no pod: KUBERNETES_SERVICE_HOST is not set", hint)


def _of_pod(host: str, port: str, account: Path) -> KubernetesAccess:
    if not port.isascii() or not port.isdecimal():
        raise _refused("KUBERNETES_SERVICE_PORT is no number")
    return KubernetesAccess(
        address=HttpAddress(host, int(port)),
        namespace=_namespace(_read(account / "namespace").decode(errors="replace").strip()),
        authority=_read(account / "ca.crt"),
        token=_token(_read(account / "token")),
    )


# ---------------------------------------------------------------- kubeconfig


class _Section:
    """A part of a kubeconfig, whose files are relative to the kubeconfig's."""

    def __init__(self, values: Mapping[str, Any], kind: str, directory: Path) -> None:
        self.values = values
        self._kind = kind
        self._directory = directory

    def text(self, name: str, default: str = "") -> str:
        """Return a text.

        Raises:
            ConfigError: it is none.
        """
        value = self.values.get(name) or default
        if not isinstance(value, str):
            raise _refused(f"{name} of its {self._kind} is no text", _JSON_HINT)
        return value

    def data(self, name: str) -> bytes:
        """Return what is in base64 in the field `NAME-data`, or in the file that the field NAME names; else nothing.

        Raises:
            ConfigError: it is no base64.
            OSError: the file cannot be read.
        """
        if encoded := self.text(f"{name}-data"):
            try:
                return base64.b64decode(encoded, validate=True)
            except (binascii.Error, ValueError):
                raise _refused(f"{name}-data of its {self._kind} is no base64", _JSON_HINT) from None
        return self.file(name)

    def file(self, name: str) -> bytes:
        """Return the content of the file that a field names; else nothing.

        Raises:
            OSError: it cannot be read.
        """
        path = self.text(name)
        return _read(self._directory / path) if path else b""

    def refuse(self, sentences: Mapping[str, str]) -> None:
        """Refuse fields that ask for what is not done.

        Raises:
            ConfigError: it has one of them.
        """
        for name, sentence in sentences.items():
            if self.values.get(name):
                raise _refused(f"{name} of its {self._kind}: {sentence}")


def _of_kubeconfig(path: str) -> KubernetesAccess:
    sections = parse_object(_read(Path(path)))
    if sections is None:
        raise _refused(f"the kubeconfig {path} is no JSON object", _JSON_HINT)
    directory = Path(path).parent
    context = _named(sections, "context", sections.get("current-context"), directory)
    cluster = _named(sections, "cluster", context.text("cluster"), directory)
    user = _named(sections, "user", context.text("user"), directory)
    cluster.refuse({"insecure-skip-tls-verify": "TLS is always checked", "proxy-url": "no proxy is used"})
    program = "no program is run for a login; use a token or a certificate"
    user.refuse({"exec": program, "auth-provider": program, "as": "no other user is impersonated"})
    is_tls, address, prefix = _server(cluster.text("server"))
    return KubernetesAccess(
        address=address,
        is_tls=is_tls,
        path=prefix,
        namespace=_namespace(context.text("namespace", "default")),
        server_name=cluster.text("tls-server-name"),
        authority=cluster.data("certificate-authority"),
        token=_token(user.file("tokenFile") or user.text("token").encode()),
        certificate=user.data("client-certificate"),
        key=user.data("client-key"),
    )


def _named(config: Mapping[str, Any], kind: str, name: object, directory: Path) -> _Section:
    """Return the section of a kind with a name."""
    entries = config.get(f"{kind}s")
    for each in cast("list[object]", entries) if isinstance(entries, list) else []:
        entry = object_or_none(each) or {}
        if entry.get("name") == name and (found := object_or_none(entry.get(kind))) is not None:
            return _Section(found, kind, directory)
    raise _refused(f"the kubeconfig has no {kind} of the name {str(name)[:80]!r}", _JSON_HINT)


def _server(url: str) -> tuple[bool, HttpAddress, str]:
    """Return if a server has TLS, its address, and the beginning of its paths."""
    parts = urlsplit(url)
    try:
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        raise _refused("server of its cluster is not https://HOST:PORT") from None
    if not parts.hostname or parts.query or parts.fragment or "@" in parts.netloc or not url.isprintable():
        raise _refused("server of its cluster is not https://HOST:PORT")
    return parts.scheme == "https", HttpAddress(parts.hostname, port), parts.path.rstrip("/")


# ---------------------------------------------------------------- values


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_FILE_BYTES_MAX)


def _token(data: bytes) -> str:
    token = data.decode("ascii", "replace").strip()
    if not token.isprintable() or " " in token or "\ufffd" in token:
        raise _refused("the token is none: it has blanks or control characters")
    return token


def _namespace(text: str) -> str:
    if not is_namespace(text):
        raise _refused("the namespace is no name of one")
    return text


def _refused(reason: str, hint: str = "") -> ConfigError:
    return ConfigError(f"Kubernetes cannot be reached: {reason}", setting="replicate", hint=hint)
