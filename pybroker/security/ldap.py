"""Users of an LDAP directory: a login searches the user's entry, and binds as that entry with the password.

```text
connect, TLS, bind as connection_username      to a server that serves
search the user's entry                        none or several: refused
    another connection: bind as that entry     refused: wrong password
search the groups
```

It blocks, and belongs in threads. All servers have to be away for a login to be refused for that; one that does not
answer is left alone for as long as its failure took, so that threads do not wait for the same again and again.

Groups are found at each login that is verified. `changed` looks for those of users who are connected, so that a change
in the directory has an effect without a new login.

Source: `LDAPLoginModule` of ActiveMQ 5.17; RFC 4511 to 4513; security.md, sections 5 and 9.
"""

import contextlib
import logging
import secrets
import ssl
import threading
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.security import User
from pybroker.security.accounts import AccountSource, Refusal, Verifiable
from pybroker.security.ldap_connection import (
    INVALID_CREDENTIALS,
    SIZE_LIMIT_EXCEEDED,
    SUCCESS,
    LdapConnection,
    LdapEntry,
    LdapUnavailable,
    check_filter,
)
from pybroker.security.ldap_settings import LdapSettings, LdapUrl, filled

THREADS: Final = 4
"""Logins at a time. They wait for servers most of the time; more would slow the event loop down, as ldap3 is Python."""

GROUPS_MAX: Final = 1000
"""The limit to the groups of a user; most servers answer with no more."""

_CANNOT_SERVE: Final = frozenset((1, 3, 8, 13, 51, 52, 80))
"""Result codes of a bind that say nothing about the password, such as busy and unavailable."""

_log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class LdapUser(User):
    """A user of the directory.

    Attributes:
        dn: the distinguished name of its entry.
    """

    dn: str = ""


@dataclass(frozen=True, slots=True)
class _LdapAccount(Verifiable):
    """A name, to be looked for in the directory."""

    name: str
    directory: "Directory"

    @property
    def secret(self) -> str:
        """Empty: the directory alone has it."""
        return ""

    def verify(self, password: str) -> User | Refusal:
        """Return the user, or the refusal; see `Directory.verify`."""
        return self.directory.verify(self.name, password)


class _Server:
    """A server, and if it serves. Times are monotonic seconds."""

    def __init__(self, url: LdapUrl) -> None:
        self.url: Final = url
        self.retry_at = 0.0
        self._logged = ""

    def failed(self, reason: str, began: float, now: float) -> None:
        self.retry_at = now + (now - began)
        if reason != self._logged:
            self._logged = reason
            _log.warning("LDAP server %s cannot be used: %s", self.url, reason)

    def served(self) -> None:
        if self._logged:
            self._logged = ""
            _log.info("LDAP server %s can be used again", self.url)


class Directory(AccountSource):
    """The users of a directory. Its methods may be called by several threads."""

    def __init__(self, settings: LdapSettings, password: Callable[[], str], monotonic: Callable[[], float]) -> None:
        """Check the settings, without a connection.

        Args:
            settings: servers, and how users are found.
            password: returns the password of `connection_username`; raises ConfigError. Blocks.
            monotonic: seconds.

        Raises:
            ConfigError: the file of authorities, or a filter, cannot be used.
        """
        self._settings: Final = settings
        self._password = password
        self._monotonic = monotonic
        self._servers = [_Server(url) for url in settings.connection_url]
        self._tls = _context(settings)
        self._open: set[LdapConnection] = set()
        """The connections of all threads."""
        self._lock = threading.Lock()
        self._is_closed = False
        for name in ("user_search_matching", "role_search_matching", "expand_roles_matching"):
            _check_filter(name, getattr(settings, name))

    def account(self, name: str) -> _LdapAccount:
        """Return what a password of this name is compared with."""
        return _LdapAccount(name, self)

    def throttled(self, name: str) -> str:
        """Return what a server takes for one name, as `Alice` and ` alice`."""
        return " ".join(name.casefold().split())

    def verify(self, name: str, password: str) -> LdapUser | Refusal:
        """Return the user, or the refusal; that the directory cannot answer is one too. Blocks."""
        if not name or not password:  # to bind without a password is to bind as no user, which succeeds
            return Refusal("it has no user name, or no password")
        if not _is_text(name) or not _is_text(password):
            return Refusal("no user name or password is like that")
        try:
            return self._ask(partial(self._verify, name, password))
        except LdapUnavailable as error:
            return Refusal(str(error), is_failure=False)

    def changed(self, users: Collection[LdapUser]) -> list[LdapUser]:
        """Return those of some users who are not in the directory as they were, if only by their groups. Blocks.

        Raises:
            LdapUnavailable: the directory cannot answer.
        """
        return self._ask(partial(self._changed, users))

    def close(self) -> None:
        """End what threads are waiting for; nothing is asked any more."""
        with self._lock:
            self._is_closed = True
            for connection in self._open:
                connection.interrupt()

    # ------------------------------------------------------------ servers

    def _ask(self, work: Callable[[LdapUrl], ResultT]) -> ResultT:
        """Return the result of the first server that has one.

        Raises:
            LdapUnavailable: none has.
        """
        for server in self._servers:
            began = self._monotonic()
            if began < server.retry_at or self._is_closed:
                continue
            try:
                result = work(server.url)
            except LdapUnavailable as error:
                if not self._is_closed:
                    server.failed(str(error), began, self._monotonic())
            else:
                server.served()
                return result
        raise LdapUnavailable("no LDAP server can be used")

    @contextlib.contextmanager
    def _connected(self, url: LdapUrl, user: str, password: str) -> Generator[LdapConnection]:
        """Connect, with TLS unless the settings say otherwise; not bound yet."""
        settings = self._settings
        connection = LdapConnection(url, user, password, tls=self._tls, timeout=settings.timeout)
        with self._lock:
            if self._is_closed:
                raise LdapUnavailable("the broker ends")
            self._open.add(connection)
        try:
            connection.open(start_tls=url.scheme == "ldap" and settings.start_tls)
            yield connection
        finally:
            with self._lock:
                self._open.discard(connection)
            connection.close()

    @contextlib.contextmanager
    def _service(self, url: LdapUrl) -> Generator[LdapConnection]:
        """Connect as the user that may search."""
        try:
            password = self._password()
        except ConfigError as error:
            raise LdapUnavailable(str(error)) from error
        with self._connected(url, self._settings.connection_username, password) as connection:
            result = connection.bind()
            if result.code != SUCCESS:
                raise LdapUnavailable(f"it refuses connection_username or its password: {result.description}")
            yield connection

    # ------------------------------------------------------------ users

    def _verify(self, name: str, password: str, url: LdapUrl) -> LdapUser | Refusal:
        with self._service(url) as service:
            found = self._find(service, name)
            if isinstance(found, Refusal):  # as many exchanges as for a user, for the time they take
                self._bind(url, f"cn={secrets.token_hex()},{self._settings.user_base}", password)
                return found
            return self._bind(url, found.dn, password) or self._with_groups(service, found)

    def _changed(self, users: Collection[LdapUser], url: LdapUrl) -> list[LdapUser]:
        with self._service(url) as service:
            return [user for user in users if self._current(service, user.name) != user]

    def _current(self, service: LdapConnection, name: str) -> LdapUser | Refusal:
        found = self._find(service, name)
        return found if isinstance(found, Refusal) else self._with_groups(service, found)

    def _bind(self, url: LdapUrl, dn: str, password: str) -> Refusal | None:
        """Return the refusal of a password, None if it is right. It has a connection of its own."""
        with self._connected(url, dn, password) as connection:
            code, description = connection.bind()
        if code == SUCCESS:
            return None
        if code in _CANNOT_SERVE:
            raise LdapUnavailable(f"it cannot verify a password: {description}")
        return Refusal("wrong password" if code == INVALID_CREDENTIALS else f"the LDAP server says {description}")

    def _find(self, service: LdapConnection, name: str) -> LdapUser | Refusal:
        """Return the user of a name, with those groups that its entry has."""
        settings = self._settings
        entries = self._search(
            service,
            settings.user_base,
            filled(settings.user_search_matching, {"0": name, "1": name}),
            subtree=settings.user_search_subtree,
            attribute=settings.user_role_name,
            most=2,
        )
        if not entries:
            return Refusal("unknown user")
        [(dn, groups), *others] = entries
        if others or not dn:
            return Refusal("more than one entry of the directory has this name: narrow user_search_matching")
        return LdapUser(name, frozenset(groups), dn=dn)

    def _with_groups(self, service: LdapConnection, user: LdapUser) -> LdapUser | Refusal:
        """Return a user with all its groups."""
        settings = self._settings
        if settings.role_base is None:
            return user
        names, seen = set(user.groups), set[str]()
        waiting = [filled(settings.role_search_matching, {"0": user.dn, "1": user.name})]
        while waiting:
            entries = self._search(
                service,
                settings.role_base,
                waiting.pop(),
                subtree=settings.role_search_subtree,
                attribute=settings.role_name,
                most=GROUPS_MAX + 1,
            )
            for dn, values in entries:
                names.update(values)
                if settings.expand_roles and dn not in seen:
                    waiting.append(filled(settings.expand_roles_matching, {"0": dn, "1": user.name}))
                seen.add(dn)
            if len(seen) > GROUPS_MAX:
                return Refusal(f"the user has more than {GROUPS_MAX} groups")
        return LdapUser(user.name, frozenset(names), dn=user.dn)

    def _search(
        self,
        service: LdapConnection,
        base: str,
        matching: str,
        *,
        subtree: bool,
        attribute: str | None,
        most: int,
    ) -> Sequence[LdapEntry]:
        """Return what a search finds.

        Raises:
            LdapUnavailable: it failed, or found neither all nor `most`.
        """
        result, entries = service.search(base, matching, subtree=subtree, attribute=attribute, most=most)
        if result.code != SUCCESS and not (result.code == SIZE_LIMIT_EXCEEDED and len(entries) >= most):
            hint = "check that base, and what connection_username may read"
            raise LdapUnavailable(f"its search below {base} failed: {result.description}: {hint}")
        return entries


def _context(settings: LdapSettings) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=settings.tls_ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"{settings.tls_ca} cannot be used: {error.strerror or error}",
            setting="ldap.tls_ca",
            hint="name a PEM file with the certificates of authorities",
        ) from error


def _check_filter(name: str, template: str) -> None:
    try:
        check_filter(filled(template, {"0": "x", "1": "x"}))
    except ValueError as error:
        raise ConfigError(f"{template!r} is no filter: {error}", setting=f"ldap.{name}") from error


def _is_text(value: str) -> bool:
    """Return True for what UTF-8 can encode: clients can send halves of characters."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
