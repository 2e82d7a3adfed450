"""Users who are known by their certificates, from ActiveMQ's files, read as they are.

```text
users        user=CN=client one, OU=test, O=x, C=US        the subject of the certificate, as Java prints it
             user=/CN=client .*, O=x/                      a regular expression for the whole subject
groups       group=user1,user2
```

Where there are such users, a listener with TLS looks at the certificate alone: what a client sends as name and password
is ignored.

Source: `TextFileCertificateLoginModule` of ActiveMQ 5.17; security.md, section 5.
"""

import re
from collections.abc import Mapping
from typing import Final

from pybroker.broker.domain import audit
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.linear_expression import LinearExpression
from pybroker.broker.domain.security import Authenticator, Credentials, Decided, NotAuthenticated, User
from pybroker.security.files import Content
from pybroker.security.java_properties import MalformedProperties, parse

NO_CERTIFICATE: Final = "Unable to authenticate transport without SSL certificate."


_ATTRIBUTE: Final = r'[A-Za-z][A-Za-z0-9.]*=(?:"(?:[^"\\]|\\.)*"|[^,+="]*)'
_SUBJECT: Final = re.compile(f"{_ATTRIBUTE}(?:(?:, | \\+ ){_ATTRIBUTE})*")
"""A subject as Java writes it."""


class CertificateUsers:
    """The users of one version of the files.

    Attributes:
        by_name: each user, with its subject or expression as the file has it.
        warnings: what an operator should know about the files.
    """

    def __init__(self, by_name: Mapping[str, tuple[str, User]], warnings: tuple[str, ...] = ()) -> None:
        """Prepare look-ups.

        Raises:
            ValueError: an expression is not valid.
        """
        self.by_name: Final = by_name
        self.warnings: Final = warnings
        self._by_subject: dict[str, User] = {}
        self._expressions: list[tuple[LinearExpression, User]] = []
        for text, user in by_name.values():
            if _is_expression(text):
                self._expressions.append((LinearExpression(text[1:-1]), user))
            else:
                self._by_subject.setdefault(text, user)

    def __len__(self) -> int:
        """Return the number of users."""
        return len(self.by_name)

    def __eq__(self, other: object) -> bool:
        """Return True for equal users."""
        return isinstance(other, CertificateUsers) and dict(self.by_name) == dict(other.by_name)

    def __hash__(self) -> int:
        """Return the hash of the names."""
        return hash(tuple(self.by_name))

    def find(self, subject: str) -> User | None:
        """Return the user of a certificate, None if there is none."""
        found = self._by_subject.get(subject)
        if found is not None:
            return found
        return next((user for expression, user in self._expressions if expression.matches(subject)), None)


def read(users: Content, groups: Content | None) -> CertificateUsers:
    """Return the users of both files; without the second no user belongs to a group.

    Raises:
        ConfigError: a file does not parse, has no users, or an expression is not valid.
    """
    entries = _entries(users, "certificate_users_file")
    if not entries:  # a file that is being written, rather than one for no users
        raise ConfigError(f"{users.path} has no users", setting="certificate_users_file")
    groups_of: dict[str, set[str]] = {}
    members: Mapping[str, tuple[str, int]] = {} if groups is None else _entries(groups, "certificate_groups_file")
    for group, (text, _) in members.items():
        for member in text.split(","):
            groups_of.setdefault(member, set()).add(group)
    by_name: dict[str, tuple[str, User]] = {}
    warnings = [*users.warnings, *(groups.warnings if groups is not None else ())]
    subjects: dict[str, str] = {}
    for name, (text, line) in entries.items():
        where = f"{users.path}, line {line}: user {name!r}"
        _check(where, text)
        if not _is_expression(text) and not _SUBJECT.fullmatch(text):
            warnings.append(f"{where}: no subject is written like {text!r}, but for example CN=client one, O=x, C=US")
        if (first := subjects.setdefault(text, name)) != name:
            warnings.append(f"{where} has the subject of user {first!r}, who counts")
        by_name[name] = text, User(name, frozenset(groups_of.get(name, ())))
    return CertificateUsers(by_name, tuple(warnings))


class CertificateLogins(Authenticator):
    """Authenticates clients of listeners with TLS by their certificates, and passes the others on."""

    def __init__(self, users: CertificateUsers, others: Authenticator) -> None:
        self._users = users
        self._others = others

    def replace(self, users: CertificateUsers) -> frozenset[str]:
        """Use other users from now on; return the names of those who are not the same."""
        before, self._users = self._users.by_name, users
        return frozenset(name for name, entry in before.items() if users.by_name.get(name) != entry)

    def authenticate(self, credentials: Credentials, decided: Decided) -> None:
        """Call back with the user or the refusal; see `Authenticator`."""
        subject = credentials.certificate
        if subject is None:
            self._others.authenticate(credentials, decided)
            return
        user = self._users.find(subject) if subject else None
        if user is not None:
            audit.logged_in(user.name, credentials.address)
            decided(user)
            return
        if subject:
            text = f"{credentials.refusal} No user for client certificate: {subject}"
            reason = f"no user has the certificate {subject[:_SHOWN_MAX]!r}"
        else:
            text, reason = NO_CERTIFICATE, "no certificate"
        audit.login_refused(None, credentials.address, reason)
        decided(NotAuthenticated(text))


class NoPasswords(Authenticator):
    """Refuses clients without TLS, where users have certificates and none has a password: a name proves nothing."""

    def authenticate(self, credentials: Credentials, decided: Decided) -> None:
        """Call back with the refusal."""
        audit.login_refused(credentials.user, credentials.address, "no user has a password")
        decided(NotAuthenticated(NO_CERTIFICATE))


_SHOWN_MAX: Final = 200


def _entries(content: Content, setting: str) -> Mapping[str, tuple[str, int]]:
    try:
        return parse(content.data)
    except MalformedProperties as error:
        raise ConfigError(f"{content.path}, line {error.line}: {error}", setting=setting) from error


def _is_expression(text: str) -> bool:
    return len(text) > 1 and text.startswith("/") and text.endswith("/")


def _check(where: str, text: str) -> None:
    if not text:
        raise ConfigError(
            f"{where} has no subject", setting="certificate_users_file", hint="write for example CN=client one, O=x"
        )
    if _is_expression(text):
        try:
            LinearExpression(text[1:-1])
        except ValueError as error:
            raise ConfigError(
                f"{where}: the regular expression is not valid: {error}", setting="certificate_users_file"
            ) from error
