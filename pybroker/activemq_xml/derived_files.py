"""Writes the files that settings name where a configuration has their content itself: users, rights and TLS.

```text
users.toml              the users of the configuration, with hashed passwords
users.properties        a link to a properties file of users that has another suffix
rules.toml              the rights
ldap-password           the password as which users are searched
tls-certificate.pem     the broker's certificate, and those of its issuers
tls-key.pem             its private key
tls-client-ca.pem       the authorities that vouch for clients
```

Their owner alone may read them. A file that is there already is never replaced.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from pybroker.activemq_xml.protection import ConfiguredStore, ConfiguredTls, ConfiguredUser
from pybroker.activemq_xml.reading import Reading
from pybroker.activemq_xml.rights_file import written
from pybroker.broker.domain.errors import ConfigError, RequirementMissing
from pybroker.broker.domain.security import User
from pybroker.security import hashes, java_key_stores, users_toml
from pybroker.security.accounts import Account
from pybroker.security.key_store_entries import UnusableKeyStore

USERS: Final = "users.toml"
PROPERTIES: Final = "users.properties"
RULES: Final = "rules.toml"
LDAP_PASSWORD: Final = "ldap-password"  # noqa: S105 - the name of a file
CERTIFICATE: Final = "tls-certificate.pem"
KEY: Final = "tls-key.pem"
CLIENT_CA: Final = "tls-client-ca.pem"

Hash = Callable[[str], str]
"""Returns the hash of a password."""


def needs_files(reading: Reading) -> bool:
    """Return True if there is any file to write."""
    protection = reading.protection
    return (
        any(each is not None for each in (protection.users, protection.rights, protection.ldap_password))
        or protection.tls is not None
        or _is_to_be_linked(reading)
    )


def set_names(reading: Reading, directory: Path) -> None:
    """Set the settings that name the files, which need not be there.

    Args:
        reading: gets the settings.
        directory: the directory of the files.
    """
    protection = reading.protection
    login = protection.login_plugin or reading.file.broker
    if protection.users is not None:
        reading.set("users_file", str(directory / USERS), login)
    elif _is_to_be_linked(reading):
        reading.set("users_file", str(directory / PROPERTIES), login)
    if protection.rights is not None:
        reading.set("rules_file", str(directory / RULES), protection.rights_plugin or reading.file.broker)
    if protection.ldap_password is not None:
        table = reading.settings["ldap"] | {"connection_password_file": str(directory / LDAP_PASSWORD)}
        reading.set("ldap", table, login)
    if protection.tls is not None:
        _set_tls(reading, protection.tls, directory)


def _is_to_be_linked(reading: Reading) -> bool:
    """Return True if pybroker could not tell the format of the file of users by its name."""
    given = reading.settings.get("users_file", "")
    return reading.protection.users is None and bool(given) and Path(given).suffix != ".properties"


def _set_tls(reading: Reading, tls: ConfiguredTls, directory: Path) -> None:
    key_store, trust_store = tls.key_store, tls.trust_store
    reading.set("tls_certificate", str(directory / CERTIFICATE), key_store.element, key_store.attribute)
    reading.set("tls_key", str(directory / KEY), key_store.element, key_store.attribute)
    if trust_store is None:
        return
    reading.set("tls_client_ca", str(directory / CLIENT_CA), trust_store.element, trust_store.attribute)
    if "listeners" not in reading.settings:  # whose entries have their own
        reading.set("tls_client_auth", reading.client_auth, trust_store.element)


@dataclass(frozen=True, slots=True)
class DerivedFiles:
    """The files of a configuration, which are not written yet.

    Attributes:
        directory: their directory, which need not be there.
        texts: the contents, by name; secrets are among them.
        links: the files that others are links to, by name.
    """

    directory: Path
    texts: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    links: Mapping[str, Path] = field(default_factory=dict[str, Path])

    def require_absent(self) -> None:
        """Check that none of the files is there.

        Raises:
            ConfigError: one is.
        """
        for name in (*self.texts, *self.links):
            if (path := self.directory / name).is_symlink() or path.exists():
                raise _error(path, FileExistsError())

    def write(self) -> None:
        """Write the files, whose directory is made if there is none. Only their owner may read them.

        Raises:
            ConfigError: a file cannot be written, or is there already.
        """
        if not self.texts and not self.links:
            return
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _error(self.directory, error) from error
        for name, text in self.texts.items():
            _write(self.directory / name, text)
        for name, target in self.links.items():
            _link(self.directory / name, target)


def write(reading: Reading, directory: Path, now: datetime, hashed: Hash = hashes.hashed) -> None:
    """Prepare the files and write them; see `prepare` and `DerivedFiles.write`."""
    prepare(reading, directory, now, hashed).write()


def prepare(reading: Reading, directory: Path, now: datetime, hashed: Hash = hashes.hashed) -> DerivedFiles:
    """Make the files of a configuration, and set the settings that name them. Nothing is written.

    A key store that cannot be used is a finding that is refused, and expired certificates are warnings: look at the
    findings again.

    Args:
        reading: gets the settings and findings.
        directory: the directory of the files.
        now: the time, with its zone.
        hashed: hashes passwords, some tens of milliseconds each.

    Raises:
        RequirementMissing: a package is not installed that reads key stores, or hashes passwords.
    """
    if not needs_files(reading):
        return DerivedFiles(directory)
    protection = reading.protection
    texts: dict[str, str] = {}
    links: dict[str, Path] = {}
    if protection.users is not None:
        texts[USERS] = users_toml.written({each.name: _account(each, hashed) for each in protection.users})
    elif _is_to_be_linked(reading):
        links[PROPERTIES] = Path(reading.settings["users_file"])
    if protection.rights is not None:
        texts[RULES] = written(protection.rights)
    if protection.ldap_password is not None:
        texts[LDAP_PASSWORD] = f"{protection.ldap_password}\n"
    pem_texts = {} if protection.tls is None else _pem_texts(reading, protection.tls, now)
    set_names(reading, directory)
    if protection.tls is not None and not pem_texts:
        for name in ("tls_certificate", "tls_key", "tls_client_ca", "tls_client_auth"):
            reading.settings.pop(name, None)
    return DerivedFiles(directory, texts | pem_texts, links)


def _account(user: ConfiguredUser, hashed: Hash) -> Account:
    try:
        return Account(User(user.name, user.groups), hashed(user.password))
    except ImportError as error:
        raise RequirementMissing(
            "passwords are hashed with argon2-cffi: pip install argon2-cffi, which is the extra `security` of pybroker"
        ) from error


def _pem_texts(reading: Reading, tls: ConfiguredTls, now: datetime) -> dict[str, str]:
    """Return the contents of the PEM files; none if a store is refused."""
    keys = _opened(reading, tls.key_store)
    trusted = None if tls.trust_store is None else _opened(reading, tls.trust_store)
    if keys is None or (tls.trust_store is not None and trusted is None):
        return {}
    try:
        identity = keys.identity(tls.key_alias)
    except UnusableKeyStore as error:
        several = " with --property pybroker.key_alias=ALIAS" if len(keys.keys) > 1 else ""
        _refuse(reading, tls.key_store, f"{error}{several}")
        return {}
    authorities = ""
    if tls.trust_store is not None and trusted is not None:
        authorities = trusted.authorities()
        if not authorities:
            _refuse(reading, tls.trust_store, "it has no certificate to vouch for clients")
            return {}
    for store, opened in ((tls.key_store, keys), (tls.trust_store, trusted)):
        if store is not None and opened is not None:
            for each in opened.expired(now):
                reading.findings.warn(store.element, f"{store.file}: {each}", store.attribute)
    texts = {CERTIFICATE: identity.certificates, KEY: identity.private_key}
    return texts | {CLIENT_CA: authorities} if authorities else texts


def _opened(reading: Reading, store: ConfiguredStore) -> java_key_stores.JavaKeyStore | None:
    try:
        return java_key_stores.read_file(store.file, store.password, key_password=store.key_password)
    except UnusableKeyStore as error:
        _refuse(reading, store, str(error))
        return None


def _refuse(reading: Reading, store: ConfiguredStore, why: str) -> None:
    reading.findings.refuse(store.element, f"{store.file}: {why}", store.attribute)


def _write(path: Path, text: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(text)
    except OSError as error:
        raise _error(path, error) from error


def _link(path: Path, target: Path) -> None:
    try:
        path.symlink_to(target)
    except OSError as error:
        raise _error(path, error) from error


def _error(path: Path, error: OSError) -> ConfigError:
    if isinstance(error, FileExistsError):
        return ConfigError(f"{path} is there already: name another directory, or remove it", setting="--out")
    return ConfigError(f"{path} cannot be written: {error.strerror}", setting="--out")
