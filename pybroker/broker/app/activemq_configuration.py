"""The options of commands that take an ActiveMQ's `activemq.xml`, and the settings that it stands for.

What reads such a file is imported when there is one.
"""

import logging
import os
import re
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import click

from pybroker.broker.domain.errors import ConfigError, InvalidSelector

if TYPE_CHECKING:  # imported when there is a file
    from pybroker.activemq_xml.findings import ConfigurationFinding
    from pybroker.activemq_xml.installation import DebianPackage
    from pybroker.activemq_xml.reading import Reading

_log = logging.getLogger(__name__)

_SETTING: Final = "--activemq-xml"

_OF_DESTINATIONS: Final = (
    "policies",
    "destinations",
    "virtual_topics",
    "composite_queues",
    "composite_topics",
    "mirrored_queues",
    "redelivery",
)
"""The settings whose values are checked one by one; others need files, or depend on one another."""


class FoundSettings(NamedTuple):
    """Settings that an `activemq.xml` stands for.

    Attributes:
        values: by name, as TOML has them.
        origins: their places, by name.
        findings: those that do not keep a broker from starting.
        base: `activemq.base`, to which names in the file are relative; empty without a file.
        unused: a sentence for each place that was accepted, and at which nothing is refused.
    """

    values: Mapping[str, object]
    origins: Mapping[str, str]
    findings: "Sequence[ConfigurationFinding]"
    base: str = ""
    unused: Sequence[str] = ()

    def log(self) -> None:
        """Log the base directory, the findings, and the `--accept` options without effect, once."""
        for sentence in self.unused:
            _log.warning("activemq.xml, %s", sentence)
        if self.base:
            _log.info("activemq.xml, activemq.base is %s", self.base)
        for each in self.findings:
            _log.log(
                logging.WARNING if each.kind.value in ("warning", "refused") else logging.DEBUG,
                "activemq.xml, %s",
                each,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivemqXml:
    """The path of an `activemq.xml`, and the command line's options for it.

    Attributes:
        path: the file.
        properties: properties for its placeholders, by name.
        accepted: the places of findings that are refused otherwise.
        are_all_connectors_required: a connector that is not served is refused.
        is_network_left_out: connectors to other brokers are not refused.
        members: the OpenWire addresses of the pair's members, `HOST:PORT`: a connector to these is no network.
    """

    path: Path
    properties: Mapping[str, str]
    accepted: frozenset[str]
    are_all_connectors_required: bool = False
    is_network_left_out: bool = False
    members: frozenset[str] = frozenset()

    def of_installation(self, debian: "DebianPackage | None" = None) -> "ActivemqXml":
        """Return the same with the directories of the installation that the file belongs to, as `adopt` finds them.

        By default `activemq.base` is the directory above the file's. An instance of Debian's package has its store
        elsewhere, and so has an installation whose start script names other directories: a broker on the default would
        begin an empty store.

        Args:
            debian: the directories of Debian's package; None: those that it has.
        """
        from pybroker.activemq_xml import installation

        if not self.path.is_file():
            return self  # `read` says why it cannot be read
        found = installation.find(self.path, (), debian or installation.DEBIAN)
        return replace(self, properties={**found.properties, **self.properties})

    def read(self, environment: Mapping[str, str] = os.environ) -> "Reading":
        """Interpret the file.

        Raises:
            ConfigError: it cannot be read.
        """
        from pybroker.activemq_xml.broker_element import Demands
        from pybroker.activemq_xml.interpretation import interpret

        demands = Demands(
            are_all_connectors_required=self.are_all_connectors_required,
            is_network_left_out=self.is_network_left_out,
            members=self.members,
        )
        reading = interpret(
            self.path,
            self.properties,
            environment,
            demands,
            find_others=_journals_nearby,
            check_selector=_check_selector,
        )
        _refuse_invalid_entries(reading)
        return reading

    def refused(self, findings: "Iterable[ConfigurationFinding]") -> "list[ConfigurationFinding]":
        """Return the findings that keep a broker from starting, and that the operator has not accepted."""
        return [each for each in findings if each.kind.value == "refused" and not self._accepts(each)]

    def unused(self, findings: "Iterable[ConfigurationFinding]") -> list[str]:
        """Return a sentence for each accepted place at which nothing is refused, with the nearest one that is."""
        places = {name for each in findings if each.kind.value == "refused" for name in _names_of(each)}
        return [_unused(each, places) for each in sorted(self.accepted - places)]

    def settings_of(self, reading: "Reading") -> FoundSettings:
        """Return the settings that a broker starts with, those that are not written down among them.

        Raises:
            ConfigError: a broker must not start from it; names each reason with its line.
        """
        from pybroker.activemq_xml.database import with_password
        from pybroker.activemq_xml.networks import with_passwords

        findings = list(reading.findings)
        unused = self.unused(findings)
        if refused := self.refused(findings):
            raise ConfigError(
                f"{self.path} is not started as it is:\n"
                + "\n".join(f"  {each}" for each in refused)
                + "\nTo start without these, name each place with --accept."
                + "".join(f"\n{each}" for each in unused),
                setting=_SETTING,
            )
        values: Mapping[str, object] = with_passwords(reading.settings, reading.secrets)
        if (password := reading.secrets.get("PGPASSWORD")) is not None:
            values = with_password(values, password)
        origins = {name: f"{name} ({self.path}, line {each.line}: {each.at})" for name, each in reading.origins.items()}
        return FoundSettings(dict(values), origins, findings, str(reading.file.directories.base), unused)

    def _accepts(self, found: "ConfigurationFinding") -> bool:
        return not self.accepted.isdisjoint(_names_of(found))


def _names_of(found: "ConfigurationFinding") -> tuple[str, ...]:
    """Return the texts that accept a finding: its place, and its element with and without a name."""
    element = found.at.partition("@")[0]
    return found.at, element, element.partition("[")[0]


def _unused(accepted: str, places: Collection[str]) -> str:
    lower = {each.lower(): each for each in sorted(places)}
    near = get_close_matches(accepted.lower(), lower, n=1)
    return f"--accept {accepted}: nothing is refused there" + (f"; did you mean {lower[near[0]]}?" if near else "")


def _property(_context: click.Context, _parameter: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in given:
        name, separator, value = each.partition("=")
        if not name or not separator:
            raise click.BadParameter(f"write NAME=VALUE, such as activemq.data=/mnt/shared; given was {each!r}")
        found[name] = value
    return found


_FILE: Final = click.option(
    _SETTING,
    "xml",
    type=click.Path(path_type=Path),
    help="An ActiveMQ's configuration to run as it is; --config, the environment and flags come after it.",
)
_OTHERS: Final = (
    click.option(
        "--property",
        "properties",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_property,
        help="A property for ${NAME} in activemq.xml, such as activemq.data=/mnt/shared. Repeatable.",
    ),
    click.option(
        "--accept",
        "accepted",
        multiple=True,
        metavar="PLACE",
        help="Start though this place of activemq.xml is refused, such as networkConnector. Repeatable.",
    ),
    click.option("--without-network", is_flag=True, help="Start without activemq.xml's connectors to other brokers."),
    click.option(
        "--require-all-connectors", is_flag=True, help="Refuse an activemq.xml with a connector that is not served."
    ),
)


def activemq_file_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--activemq-xml` and what goes with it; the command gets an `ActivemqXml`, or None without a file."""

    @wraps(command)
    def run(*, xml: Path | None, **given: Any) -> None:
        others = _taken(given)
        if xml is None and any(others.values()):
            raise ConfigError("they go with --activemq-xml", setting="--property, --accept and the like")
        members = addresses_in(given["openwire_brokers"] or os.environ.get("PYBROKER_OPENWIRE_BROKERS", ""))
        command(activemq=None if xml is None else ActivemqXml(path=xml, members=members, **others), **given)

    return _FILE(_with_options(run))


def activemq_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add what goes with an `activemq.xml` that the command finds itself; it gets an `ActivemqXml` without a path."""

    @wraps(command)
    def run(**given: Any) -> None:
        others = _taken(given)
        command(activemq=ActivemqXml(path=Path(), **others), **given)

    return _with_options(run)


def addresses_in(urls: str) -> frozenset[str]:
    """Return the addresses, `HOST:PORT`, of the URLs in `openwire_brokers`; those without a port are left out."""
    return frozenset(re.findall(r"//([^/?#,\s]+:\d+)", urls))


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    for each in reversed(_OTHERS):
        command = each(command)
    return command


def _taken(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the options from those given; return them as the arguments of `ActivemqXml`."""
    return {
        "properties": given.pop("properties"),
        "accepted": frozenset(given.pop("accepted")),
        "are_all_connectors_required": given.pop("require_all_connectors"),
        "is_network_left_out": given.pop("without_network"),
    }


NO_SETTINGS: Final = FoundSettings({}, {}, ())


@contextmanager
def opened(activemq: ActivemqXml | None) -> Generator[FoundSettings]:
    """Return the settings of a file, with the files made of it, which are there until the end.

    Raises:
        ConfigError: it cannot be read, or a broker must not start from it; names each reason with its line.
    """
    if activemq is None:
        yield NO_SETTINGS
        return
    reading = activemq.of_installation().read()
    activemq.settings_of(reading)  # so that nothing is written for what is refused
    with _derived_files(reading):
        yield activemq.settings_of(reading)


@contextmanager
def _derived_files(reading: "Reading") -> Generator[None]:
    """Write users, rights and certificates of a file into a private directory, which is there until the end."""
    from datetime import UTC, datetime

    from pybroker.activemq_xml import derived_files
    from pybroker.broker.app.private_directory import private_directory
    from pybroker.security.hashes import hashed_alike

    if not derived_files.needs_files(reading):
        yield
        return
    with closing(private_directory()) as directory:
        derived_files.write(reading, directory.path, datetime.now(UTC), hashed_alike)
        yield


def require_store(activemq: ActivemqXml | None, given: Mapping[str, object]) -> None:
    """Check that settings have a store: that of a file may be one that pybroker has not, and that was accepted.

    Raises:
        ConfigError: there is none; the default would be a new, empty one.
    """
    if activemq is not None and "store" not in given:
        raise ConfigError(f"{activemq.path} has no store that pybroker has: name one", setting="--store")


def _check_selector(text: str) -> None:
    from pybroker.broker.core.selector import compile_selector

    try:
        compile_selector(text)
    except InvalidSelector as error:
        raise ValueError(error.sentence) from error


def _refuse_invalid_entries(reading: "Reading") -> None:
    """Refuse what pybroker's settings cannot have, each with its place in the file, and leave it out."""
    from pybroker.activemq_xml.findings import ConfigurationFinding, FindingKind

    for name in filter(reading.settings.__contains__, _OF_DESTINATIONS):
        value: object = reading.settings[name]
        if not _problem(name, value):
            continue
        entries = list(zip(cast("list[object]", value), reading.entry_origins.get(name, ()), strict=False))
        problems = [(origin, _problem(name, [entry])) for entry, origin in entries]
        if any(why for _, why in problems):
            reading.settings[name] = [entry for (entry, _), (_, why) in zip(entries, problems, strict=True) if not why]
            reading.entry_origins[name] = [origin for origin, why in problems if not why]
        else:  # no list, or its entries do not go together
            problems = [(reading.origins[name], _problem(name, value))]
            del reading.settings[name]
        refused = {(each.at, each.line) for each in reading.findings if each.kind is FindingKind.REFUSED}
        for origin, why in problems:
            if why and (origin.at, origin.line) not in refused:
                reading.findings.add(ConfigurationFinding(FindingKind.REFUSED, origin.at, why, origin.line))


def _problem(name: str, value: object) -> str:
    """Return why a setting cannot have a value; empty if it can."""
    from pybroker.broker.app.config import SETTINGS
    from pybroker.broker.app.setting import read_values

    try:
        read_values({name: SETTINGS[name]}, {name: value}, str)
    except ConfigError as error:
        return error.reason.partition("\n")[0]
    return ""


def _journals_nearby(journal: Path) -> Iterable[Path]:
    """Return the directories that have a journal and this one's name in another case, if this one has none."""
    from pybroker.store.directories import differing_in_case, has_data_files

    return [] if has_data_files(journal) else differing_in_case(journal)
