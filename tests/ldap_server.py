"""An LDAP server for tests: Debian's slapd on a free port of the loopback, with a small directory of its own.

```text
dc=example,dc=org
    ou=people      alice, bob, carol (no password), star*(name)\\, two called twin in ou=a and ou=b below
    ou=groups      orders (alice), billing (bob), staff (the group orders), board (the group staff, and its own member)
    ou=services    pybroker, who alone may search
```

An unauthenticated bind succeeds, as with many servers: it is the broker that must not take it for a login.
"""

import secrets
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

import trustme

from tests.conftest import SLAPD
from tests.integration.cluster import free_port

BASE = "dc=example,dc=org"
SERVICE = f"cn=pybroker,ou=services,{BASE}"
SERVICE_PASSWORD = f"service {secrets.token_hex(16)}"
_ROOT, _ROOT_PASSWORD = f"cn=root,{BASE}", "root secret"
_START_SECONDS = 20.0

_CONFIGURATION = """\
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
allow bind_anon_dn
pidfile {directory}/slapd.pid
{tls}
database mdb
maxsize 10485760
suffix "{base}"
rootdn "{root}"
rootpw "{root_password}"
directory {directory}/data
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="{service}" read by * none
"""


def _entry(dn: str, *lines: str) -> str:
    return "\n".join([f"dn: {dn}", *lines]) + "\n\n"


def _unit(dn: str) -> str:
    return _entry(dn, "objectClass: organizationalUnit")


def _person(uid: str, below: str, *lines: str) -> str:
    return _entry(f"uid={uid},{below}", "objectClass: inetOrgPerson", "cn: x", "sn: x", *lines)


def _group(name: str, *members: str) -> str:
    dn = f"cn={name},ou=groups,{BASE}"
    return _entry(dn, "objectClass: groupOfNames", *[f"member: {each}" for each in members])


_PEOPLE, _GROUPS = f"ou=people,{BASE}", f"ou=groups,{BASE}"

_ENTRIES = "".join(
    [
        _entry(BASE, "objectClass: domain"),
        *[_unit(f"ou={name},{BASE}") for name in ("people", "groups", "services")],
        *[_unit(f"ou={name},{_PEOPLE}") for name in ("a", "b")],
        _person("alice", _PEOPLE, "userPassword: sesame", "employeeType: permanent", "employeeType: remote"),
        _person("bob", _PEOPLE, "userPassword: open"),
        _person("carol", _PEOPLE),
        _person(r"star\2a\28name\29\5c", _PEOPLE, "userPassword: shine"),
        _person("twin", f"ou=a,{_PEOPLE}", "userPassword: one"),
        _person("twin", f"ou=b,{_PEOPLE}", "userPassword: two"),
        _group("orders", f"uid=alice,{_PEOPLE}"),
        _group("billing", f"uid=bob,{_PEOPLE}"),
        _group("staff", f"cn=orders,{_GROUPS}"),
        _group("board", f"cn=staff,{_GROUPS}", f"cn=board,{_GROUPS}"),
        _entry(
            SERVICE,
            "objectClass: organizationalRole",
            "objectClass: simpleSecurityObject",
            f"userPassword: {SERVICE_PASSWORD}",
        ),
    ]
)


class LdapServer:
    """A slapd, which may be stopped and started again on its port, and whose entries may be changed.

    Attributes:
        port: the port for `ldap://`, with StartTLS.
        tls_port: the port for `ldaps://`.
        authority: the file of the authority that vouches for it.
    """

    def __init__(self, directory: Path, *, has_tls: bool = True) -> None:
        self.port, self.tls_port = free_port(), free_port()
        self.authority = directory / "authority.pem"
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        (directory / "data").mkdir()
        self._configuration = directory / "slapd.conf"
        self._configuration.write_text(
            _CONFIGURATION.format(
                base=BASE, root=_ROOT, root_password=_ROOT_PASSWORD, service=SERVICE, directory=directory,
                tls=self._make_certificate() if has_tls else "",
            )
        )  # fmt: skip
        command = [self._slapd, "-T", "add", "-f", str(self._configuration)]
        subprocess.run(command, input=_ENTRIES.encode(), check=True, capture_output=True)

    @property
    def url(self) -> str:
        """The URL without TLS from the first byte."""
        return f"ldap://127.0.0.1:{self.port}"

    @property
    def tls_url(self) -> str:
        """The URL with TLS."""
        return f"ldaps://127.0.0.1:{self.tls_port}"

    @property
    def _slapd(self) -> str:
        assert SLAPD is not None, "component slapd"
        return SLAPD

    def start(self) -> Self:
        """Return once it serves."""
        command = [self._slapd, "-d", "0", "-f", str(self._configuration), "-h", f"{self.url} {self.tls_url}"]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + _START_SECONDS
        for port in (self.port, self.tls_port):
            while True:
                assert self._process.poll() is None, (self._directory / "log").read_text()
                assert time.monotonic() < deadline, "slapd does not listen"
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                except ConnectionRefusedError:
                    continue
                break
        return self

    def who(self, dn: str, password: str) -> str:
        """Return who the server takes a client for, by ldapwhoami."""
        command = ["ldapwhoami", "-x", "-H", self.url, "-D", dn, "-w", password]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def change(self, *changes: str) -> None:
        """Change entries by LDIF records, as ldapmodify takes them."""
        command = ["ldapmodify", "-x", "-H", self.url, "-D", _ROOT, "-w", _ROOT_PASSWORD]
        subprocess.run(command, input="\n\n".join(changes).encode(), check=True, capture_output=True)

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def _make_certificate(self) -> str:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.authority)
        issued = authority.issue_cert("127.0.0.1")
        certificate, key = self._directory / "server.pem", self._directory / "key.pem"
        issued.cert_chain_pems[0].write_to_path(certificate)
        issued.private_key_pem.write_to_path(key)
        return f"TLSCertificateFile {certificate}\nTLSCertificateKeyFile {key}\nTLSCACertificateFile {self.authority}"
