"""One connection to an LDAP server, by ldap3; no other module knows that library. All methods block; for a thread.

Passwords go out as the bytes that the client gave, and a certificate is checked by a context of Python's: ldap3 would
normalise the former, and has rules of its own for the latter.

Source: RFC 4511 to 4513.
"""

import contextlib
import re
import socket
import ssl
import warnings
from collections.abc import Generator
from typing import Any, Final, NamedTuple, cast

from pybroker.broker.domain.errors import BrokerError
from pybroker.security.ldap_settings import LdapUrl

with warnings.catch_warnings():  # ldap3 2.9 imports names that pyasn1 has deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    import ldap3
    from ldap3.core.exceptions import LDAPInvalidFilterError
    from ldap3.operation import search

SUCCESS: Final = 0
SIZE_LIMIT_EXCEEDED: Final = 4
INVALID_CREDENTIALS: Final = 49

_REPR: Final = re.compile(r"""^[('"]+|(?:['"],\))+$""")
"""Quotes and brackets around an error text of ldap3, which puts the `repr` of another exception into it."""


class LdapUnavailable(BrokerError):
    """A server, or the whole directory, cannot answer now. Another attempt may succeed."""


class LdapResult(NamedTuple):
    """The result of an operation.

    Attributes:
        code: the result code; 0 is success.
        description: its name.
    """

    code: int
    description: str


class LdapEntry(NamedTuple):
    """An entry that was found.

    Attributes:
        dn: its distinguished name.
        values: its values of the attribute that was asked for.
    """

    dn: str
    values: list[str]


class LdapConnection:
    """A connection to one server as one user. Another thread may interrupt it."""

    def __init__(self, url: LdapUrl, user: str, password: str, *, tls: ssl.SSLContext, timeout: float) -> None:
        """Connect to nothing yet.

        Args:
            url: the server.
            user: the DN, or another name that the server knows.
            password: its password.
            tls: the context for TLS.
            timeout: the seconds to wait for a connection, and for each part of an answer.
        """
        server = ldap3.Server(  # one for each connection: it is not for several threads
            url.host,
            port=url.port,
            use_ssl=url.scheme == "ldaps",
            tls=_VerifyingTls(tls),
            get_info=ldap3.NONE,
            connect_timeout=timeout,  # which stays the time-out of the socket
        )
        make = cast("Any", ldap3.Connection)
        self._ldap3: Any = make(
            server, user, password.encode(), read_only=True, check_names=False, auto_referrals=False
        )

    def open(self, *, start_tls: bool) -> None:
        """Connect, and turn on TLS if it is to be turned on in a connection without.

        Raises:
            LdapUnavailable: that failed.
        """
        with _translated_errors():
            self._ldap3.open(read_server_info=False)
            if start_tls and self._ldap3.start_tls(read_server_info=False) is not True:
                raise LdapUnavailable("it does not start TLS: name it with ldaps://, or allow TLS there")

    def bind(self) -> LdapResult:
        """Log in.

        Raises:
            LdapUnavailable: there was no answer.
        """
        with _translated_errors():
            self._ldap3.bind(read_server_info=False)
            return self._result()

    def search(
        self, base: str, matching: str, *, subtree: bool, attribute: str | None, most: int
    ) -> tuple[LdapResult, list[LdapEntry]]:
        """Return the result and the entries.

        Args:
            base: the DN below which to search.
            matching: the filter.
            subtree: search all levels, and not one alone.
            attribute: whose values the entries have; None for none.
            most: the limit to entries.

        Raises:
            LdapUnavailable: there was no answer.
        """
        with _translated_errors():
            self._ldap3.search(
                base,
                matching,
                search_scope=ldap3.SUBTREE if subtree else ldap3.LEVEL,
                attributes=[attribute or ldap3.NO_ATTRIBUTES],
                size_limit=most,
            )
            found = [each for each in self._ldap3.response or () if each["type"] == "searchResEntry"]
            return self._result(), [
                LdapEntry(each["dn"], [value.decode(errors="replace") for value in _values(each, attribute)])
                for each in found
            ]

    def close(self) -> None:
        """Close the connection, whatever its state."""
        if self._ldap3.socket is not None:
            self._ldap3.socket.close()

    def interrupt(self) -> None:
        """End what another thread waits for, with an error."""
        with contextlib.suppress(AttributeError, OSError):  # it has no socket yet, or no longer
            self._ldap3.socket.shutdown(socket.SHUT_RDWR)

    def _result(self) -> LdapResult:
        return LdapResult(self._ldap3.result["result"], self._ldap3.result["description"])


def check_filter(text: str) -> None:
    """Check that a server can be asked for a filter.

    Raises:
        ValueError: it is none.
    """
    parse = cast("Any", search).parse_filter
    try:
        parse(text, None, None, None, None, False)
    except (LDAPInvalidFilterError, IndexError) as error:
        raise ValueError(str(error)) from error


class _VerifyingTls(ldap3.Tls):  # type: ignore[misc]  # the library has no types
    """TLS by a context of Python's, which checks the certificate and the name in it."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(validate=ssl.CERT_REQUIRED)  # pyright: ignore[reportUnknownMemberType]
        self._context = context

    def wrap_socket(self, connection: Any, do_handshake: bool = False) -> None:
        """Turn on TLS on a connected socket, whose time-out stays."""
        # Otherwise the last flight of the handshake delays the first request by 40 ms, until it is acknowledged.
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.socket = self._context.wrap_socket(connection.socket, server_hostname=connection.server.host)


def _values(entry: Any, attribute: str | None) -> list[bytes]:
    return [] if attribute is None else list(entry["raw_attributes"].get(attribute, ()))


@contextlib.contextmanager
def _translated_errors() -> Generator[None]:
    """Translate the library's errors, which may be of any kind where a server answers nonsense."""
    try:
        yield
    except LdapUnavailable:
        raise
    except Exception as error:
        raise LdapUnavailable(_REPR.sub("", str(error)) or type(error).__name__) from error
