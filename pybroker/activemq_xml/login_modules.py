"""Reads the modules of a section of `login.config` into settings.

ActiveMQ runs the modules of a section in order, and their flags decide: pybroker looks a client's name up in one place
after another. So a section is read whose modules are alternatives, all `sufficient` but the last; others are refused.

Source: security.md, section 5; ActiveMQ's `org.apache.activemq.jaas`; Java's `javax.security.auth.login.Configuration`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from pybroker.activemq_xml import anonymous_clients, ldap_module, login_config
from pybroker.activemq_xml.elements import XmlElement
from pybroker.activemq_xml.login_config import JaasModule, MalformedLoginConfig, ModuleFlag
from pybroker.activemq_xml.reading import Reading
from pybroker.broker.domain.errors import ConfigError
from pybroker.security import certificate_users, jasypt, users_properties
from pybroker.security.files import Content
from pybroker.security.jasypt import encrypted_part
from pybroker.security.java_properties import MalformedProperties, parse

LOCATION: Final = "java.security.auth.login.config"
"""The property of Java that names the file."""

_PACKAGE: Final = "org.apache.activemq.jaas."
_USERS: Final = f"{_PACKAGE}properties.user"
_GROUPS: Final = f"{_PACKAGE}properties.group"
_CERTIFICATES: Final = f"{_PACKAGE}textfiledn.user"
_CERTIFICATE_GROUPS: Final = f"{_PACKAGE}textfiledn.group"
_COMMON: Final = frozenset(("debug", "reload", "baseDir"))
PROPERTIES_OPTIONS: Final = _COMMON | {_USERS, _GROUPS, "decrypt", "algorithm"}
CERTIFICATE_OPTIONS: Final = _COMMON | {_CERTIFICATES, _CERTIFICATE_GROUPS}


def read_section(reading: Reading, element: XmlElement, name: str, *, is_of_certificates: bool) -> None:
    """Read a section.

    Args:
        reading: gets the settings.
        element: the plugin that names it.
        name: the section.
        is_of_certificates: its clients show certificates; False: they give a name and a password.
    """
    path = location(reading, element)
    try:
        sections = login_config.parse(reading.file.read_file(path), reading.file.properties)
    except OSError as error:
        reading.findings.refuse(
            element,
            f"{path} cannot be read ({error.strerror}): name it with --property {LOCATION}=FILE, for it has the users",
        )
        return
    except MalformedLoginConfig as error:
        reading.findings.refuse(element, f"{path}, {error}")
        return
    modules = sections.get(name)
    if not modules:
        reading.findings.refuse(element, f"{path} has no section {name} with a module")
        return
    known = _of(is_of_certificates=is_of_certificates)
    # Karaf has modules of the same simple names, whose options are others.
    unknown = [
        each for each in modules if each.class_name != f"{_PACKAGE}{each.simple_name}" or each.simple_name not in known
    ]
    for each in unknown:
        reading.findings.refuse(element, f"{_where(path, each)} is not supported{_remedy(each, is_of_certificates)}")
    if unknown or not _are_alternatives(reading, element, path, modules):
        return
    for each in modules:
        known[each.simple_name](reading, element, path, each)
    if not is_of_certificates:
        _note_order(reading, element, path, modules)
        if len(modules) == 1 and modules[0].simple_name == "GuestLoginModule":
            reading.findings.warn(
                element, f"{_where(path, modules[0])} is alone: clients have the names that they give"
            )


def location(reading: Reading, element: XmlElement) -> Path:
    """Return the file: that of the property, else the one in ActiveMQ's directory of configurations."""
    given = reading.file.properties.get(LOCATION)
    if given:
        return reading.file.directories.path(given)
    if element.attributes.get("discoverLoginConfig", "true").strip() in ("false", "0"):
        reading.findings.warn(element, f"the property {LOCATION} is not given: the file is expected beside this one")
    return reading.file.directories.conf / "login.config"


def _where(path: Path, module: JaasModule) -> str:
    return f"{path}, line {module.line}: {module.simple_name}"


def _remedy(module: JaasModule, is_of_certificates: bool) -> str:
    if is_of_certificates and module.simple_name in _OF_PASSWORDS:
        return " where clients show certificates"
    return ": name the users in a properties file, or in an LDAP directory"


def _are_alternatives(reading: Reading, element: XmlElement, path: Path, modules: Sequence[JaasModule]) -> bool:
    names = [each.simple_name for each in modules]
    if len(set(names)) < len(names):
        reading.findings.refuse(element, f"{path}: a section may have a module once")
        return False
    for each in modules[:-1]:
        # A client must pass every module that is required, and pybroker asks the one that knows its name.
        if each.flag is not ModuleFlag.SUFFICIENT:
            reading.findings.refuse(
                element,
                f"{_where(path, each)} is {each.flag.value}, and others follow: all but the last must be sufficient",
            )
            return False
        if anonymous_clients.takes_all(each):
            reading.findings.refuse(
                element, f"{_where(path, each)} without credentialsInvalidate=true takes all, so that none follows it"
            )
            return False
    return True


def _note_order(reading: Reading, element: XmlElement, path: Path, modules: Sequence[JaasModule]) -> None:
    names = [each.simple_name for each in modules]
    if {"PropertiesLoginModule", "LDAPLoginModule"} <= set(names):
        reading.findings.warn(
            element, f"{path}: a user who is in the properties file is verified by that alone, and not by LDAP as well"
        )


# ---------------------------------------------------------------- properties files


def file_of(reading: Reading, path: Path, module: JaasModule, option: str, default: str) -> Path:
    """Return the file that an option names, as Java does: below a directory even where it begins with a slash.

    Args:
        reading: knows ActiveMQ's directories.
        path: the `login.config`.
        module: the module.
        option: the option.
        default: the name if there is no such option.
    """
    base = module.options.get("baseDir")
    directory = path.parent if base is None else reading.file.directories.base / base
    return directory / module.options.get(option, default).lstrip("/")


def _content(reading: Reading, element: XmlElement, path: Path, module: JaasModule, file: Path) -> Content | None:
    try:
        return Content(file, reading.file.read_file(file))
    except OSError as error:
        reading.findings.refuse(element, f"{_where(path, module)}: {file} cannot be read: {error.strerror}")
        return None


def _unknown_options(
    reading: Reading, element: XmlElement, path: Path, module: JaasModule, known: frozenset[str]
) -> None:
    for each in sorted(module.options.keys() - known):
        reading.findings.warn(element, f"{_where(path, module)} has the option {each}, which has no effect")


def _properties(reading: Reading, element: XmlElement, path: Path, module: JaasModule) -> None:
    _unknown_options(reading, element, path, module, PROPERTIES_OPTIONS)
    users_file = file_of(reading, path, module, _USERS, "user")
    groups_file = file_of(reading, path, module, _GROUPS, "group")
    users = _content(reading, element, path, module, users_file)
    groups = _content(reading, element, path, module, groups_file)
    if users is None or groups is None:
        return
    algorithm = module.options.get("algorithm", jasypt.ALGORITHMS[0])
    decrypts = module.options.get("decrypt", "false").lower() == "true"
    try:
        warnings = users_properties.read(users, groups, _unchanged).warnings
        encrypted = [value for value, _ in parse(users.data).values() if encrypted_part(value) is not None]
    except (ConfigError, MalformedProperties) as error:
        reading.findings.refuse(element, f"{_where(path, module)}: {error}")
        return
    for each in warnings:
        reading.findings.warn(element, each)
    if encrypted and not decrypts:
        reading.findings.refuse(
            element,
            f"{users_file} has values ENC(…), which are passwords as they are without decrypt=true, and which pybroker "
            "would decrypt",
        )
        return
    if encrypted:
        exact = {each.lower(): each for each in jasypt.ALGORITHMS}.get(algorithm.lower())
        if exact is None:
            reading.findings.refuse(element, f"{_where(path, module)}: the algorithm {algorithm} is not supported")
            return
        reading.set("encryption_algorithm", exact, element)
    reading.set("users_file", str(users_file), element)
    reading.set("groups_file", str(groups_file), element)


def _unchanged(text: str) -> str:
    """Return an encrypted value as it is: no master password is needed to look at the names."""
    return text


def _text_file_certificates(reading: Reading, element: XmlElement, path: Path, module: JaasModule) -> None:
    _unknown_options(reading, element, path, module, CERTIFICATE_OPTIONS)
    users_file = file_of(reading, path, module, _CERTIFICATES, "")
    groups_file = file_of(reading, path, module, _CERTIFICATE_GROUPS, "")
    if not {_CERTIFICATES, _CERTIFICATE_GROUPS} <= module.options.keys():
        reading.findings.refuse(
            element, f"{_where(path, module)} needs the options {_CERTIFICATES} and {_CERTIFICATE_GROUPS}"
        )
        return
    users = _content(reading, element, path, module, users_file)
    groups = _content(reading, element, path, module, groups_file)
    if users is None or groups is None:
        return
    try:
        warnings = certificate_users.read(users, groups).warnings
    except ConfigError as error:
        reading.findings.refuse(element, f"{_where(path, module)}: {error}")
        return
    for each in warnings:
        reading.findings.warn(element, each)
    reading.set("certificate_users_file", str(users_file), element)
    reading.set("certificate_groups_file", str(groups_file), element)
    reading.protection = replace(reading.protection, has_certificate_users=True)


# ---------------------------------------------------------------- guests and LDAP


def _guest(reading: Reading, element: XmlElement, path: Path, module: JaasModule) -> None:
    _unknown_options(reading, element, path, module, anonymous_clients.GUEST_OPTIONS)
    anonymous_clients.read_guest(reading, element, _where(path, module), module)


def _ldap(reading: Reading, element: XmlElement, path: Path, module: JaasModule) -> None:
    ldap_module.read(reading, element, _where(path, module), module)


_Module = Callable[[Reading, XmlElement, Path, JaasModule], None]

_OF_PASSWORDS: Final[Mapping[str, _Module]] = {
    "PropertiesLoginModule": _properties,
    "GuestLoginModule": _guest,
    "LDAPLoginModule": _ldap,
}
_OF_CERTIFICATES: Final[Mapping[str, _Module]] = {"TextFileCertificateLoginModule": _text_file_certificates}


def _of(*, is_of_certificates: bool) -> Mapping[str, _Module]:
    return _OF_CERTIFICATES if is_of_certificates else _OF_PASSWORDS
