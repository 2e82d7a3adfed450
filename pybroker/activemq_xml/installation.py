"""Finds the parts of an ActiveMQ's installation: its configuration, what its start script sets, its service.

An installation is a directory with `conf/activemq.xml` and `bin/env`, or one of Debian's instances, which have
`activemq.xml` and `options` themselves.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pybroker import regular
from pybroker.broker.domain.errors import ConfigError

_CONFIGURATIONS: Final = ("conf/activemq.xml", "activemq.xml", "etc/activemq.xml")
_SCRIPTS: Final = ("bin/env", "bin/setenv", "options")
SERVICES: Final = ("/etc/systemd/system", "/lib/systemd/system", "/usr/lib/systemd/system", "/etc/init.d")
"""The directories of units of systemd, and of scripts of older systems."""

_ASSIGNMENT: Final = re.compile(r"\s*(?:export\s+)?(ACTIVEMQ_[A-Z_]+)=(.*)")
_VARIABLE: Final = re.compile(r"\$\{?(\w+)\}?")
_DIRECTORIES: Final[Mapping[str, str]] = {
    "ACTIVEMQ_BASE": "activemq.base",
    "ACTIVEMQ_HOME": "activemq.home",
    "ACTIVEMQ_CONF": "activemq.conf",
    "ACTIVEMQ_DATA": "activemq.data",
}
_TEXT_MAX: Final = 1 << 18
"""Characters that are read of a script or unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DebianPackage:
    """The directories of Debian's package, which has one service for all instances.

    Attributes:
        instances: the directory of configurations; the last part of a configuration's directory is the instance's name.
        home: the programs, with the options of instances that have none of their own.
        state: the directory of stores.
    """

    instances: Path = Path("/etc/activemq")
    home: Path = Path("/usr/share/activemq")
    state: Path = Path("/var/lib/activemq")

    @property
    def options(self) -> Path:
        """The options of instances that have none of their own."""
        return self.home / "activemq-options"

    def properties(self) -> dict[str, str]:
        """Return what the launcher sets before it reads the options of an instance."""
        return {
            "activemq.base": str(self.state),
            "activemq.home": str(self.home),
            "activemq.data": str(self.state / "data"),
        }


DEBIAN: Final = DebianPackage()


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """The configuration, start script and service of an ActiveMQ.

    Attributes:
        configuration: the file `activemq.xml`.
        properties: what the start script sets for it, by name.
        script: that script; None if there is none.
        service: the unit or script that starts it with the machine; None if none was found.
    """

    configuration: Path
    properties: Mapping[str, str]
    script: Path | None
    service: Path | None


def find(directory: Path, units: Iterable[str], debian: DebianPackage = DEBIAN) -> Installation:
    """Return the installation in a directory; the name of a configuration is fine too.

    Args:
        directory: the installation, its directory of configurations, or `activemq.xml` itself.
        units: the directories of services, such as `SERVICES`.
        debian: the directories of Debian's package.

    Raises:
        ConfigError: there is no configuration.
    """
    candidates = [directory] if directory.is_file() else [directory / each for each in _CONFIGURATIONS]
    configuration = next((each for each in candidates if each.is_file()), None)
    if configuration is None:
        raise ConfigError(
            f"there is no activemq.xml in {directory} or its conf: name the directory of an ActiveMQ, or the file",
            setting="adopt",
        )
    absolute = configuration.absolute()
    base = absolute.parent.parent if absolute.parent.name == "conf" else absolute.parent
    is_of_debian = base.is_relative_to(debian.instances)
    scripts = [base / each for each in _SCRIPTS] + ([debian.options] if is_of_debian else [])
    script = next((each for each in scripts if each.is_file()), None)
    properties: dict[str, str] = debian.properties() if is_of_debian else {}
    variables = {"ACTIVEMQ_BASE": str(base), "ACTIVEMQ_HOME": str(base)}
    if is_of_debian:
        variables = {"ACTIVEMQ_BASE": str(debian.state), "ACTIVEMQ_HOME": str(debian.home), "INSTANCE": base.name}
    if script is not None:
        properties |= _properties(_text(script), variables)
    return Installation(
        configuration=configuration,
        properties=properties,
        script=script,
        service=next(_services("" if is_of_debian else str(base), units), None),
    )


def _properties(script: str, variables: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Return the properties that a script sets: directories, and the `-D` options of Java.

    Of the shell's language, assignments are read whose variables are set before; all others are left out.

    Args:
        script: its text.
        variables: what is set before; gets what the script sets.
    """
    for line in script.splitlines():
        match = _ASSIGNMENT.fullmatch(line)
        if match is None:
            continue
        try:
            words = shlex.split(match[2], comments=True)
        except ValueError:
            continue  # a text of several lines
        value = _VARIABLE.sub(lambda found: variables.get(found[1], found[0]), " ".join(words))
        variables[match[1]] = value
        if "$" in value:
            continue
        if match[1] in _DIRECTORIES:
            yield _DIRECTORIES[match[1]], value
        for word in value.split():
            name, separator, given = word.removeprefix("-D").partition("=")
            if word.startswith("-D") and separator:
                yield name, given


def _services(named: str, units: Iterable[str]) -> Iterator[Path]:
    """Return the services of an ActiveMQ whose texts contain a name; the empty one is in all."""
    for directory in map(Path, units):
        if not directory.is_dir():
            continue
        for each in sorted(directory.iterdir()):
            if "activemq" not in each.name.lower() or not each.is_file():
                continue
            if named in _text(each):
                yield each


def _text(path: Path) -> str:
    try:
        with open(path, "rb", opener=regular.opener) as file:
            return file.read(_TEXT_MAX).decode("utf-8", "replace")
    except OSError:
        return ""
