"""Converts the configuration of an ActiveMQ installation to pybroker settings, for `pybroker adopt`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from pybroker.activemq_xml import derived_files, installation, networks
from pybroker.activemq_xml.data_source import PASSWORD
from pybroker.activemq_xml.derived_files import DerivedFiles
from pybroker.activemq_xml.findings import ConfigurationFinding, FindingKind
from pybroker.activemq_xml.installation import Installation
from pybroker.activemq_xml.reading import Reading
from pybroker.broker.app import status as store_status
from pybroker.broker.app.activemq_configuration import ActivemqXml
from pybroker.broker.app.config import SETTINGS, Config
from pybroker.broker.app.toml_text import comment, toml_lines
from pybroker.broker.domain.errors import ConfigError
from pybroker.security import files

HEADINGS: Final[Mapping[FindingKind, str]] = {
    FindingKind.REFUSED: "Not supported: pybroker does not start with these",
    FindingKind.WARNING: "Different",
    FindingKind.IGNORED: "No effect: clients see no difference",
    FindingKind.SAME: "The same by default",
}
"""The parts of the report, the worst first."""


class AdoptionExit(IntEnum):
    """Exit codes of `pybroker adopt --check`, for pipelines."""

    READY = 0
    DIFFERENT = 3
    """It starts, and something differs."""
    NOT_SUPPORTED = 4
    """It does not start from this configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """The result of examining an ActiveMQ installation.

    Attributes:
        installation: its parts.
        reading: its configuration.
        refused: findings that keep pybroker from starting.
        store: a line about the store and who holds its lock; empty if it is no directory.
        unused: a sentence for each place that was accepted, and at which nothing is refused.
        files: the files of users, rights and certificates, as far as they are to be written.
    """

    installation: Installation
    reading: Reading
    refused: Sequence[ConfigurationFinding]
    store: str
    unused: Sequence[str] = ()
    files: DerivedFiles | None = None

    @property
    def exit(self) -> AdoptionExit:
        """The exit code of `--check`."""
        if self.refused:
            return AdoptionExit.NOT_SUPPORTED
        kinds = {each.kind for each in self.reading.findings}
        differs = not kinds.isdisjoint((FindingKind.WARNING, FindingKind.REFUSED))
        return AdoptionExit.DIFFERENT if differs else AdoptionExit.READY

    def findings(self, kind: FindingKind) -> list[ConfigurationFinding]:
        """Return the findings of a kind; what the operator has accepted is different, and not refused."""
        refused = set(self.refused)
        if kind is FindingKind.REFUSED:
            return list(self.refused)
        kinds = (kind, FindingKind.REFUSED) if kind is FindingKind.WARNING else (kind,)
        return [each for each in self.reading.findings if each.kind in kinds and each not in refused]

    def toml(self) -> list[str]:
        """Return the lines of `pybroker.toml`, with the place that each setting came from."""
        comments = {name: f"line {origin.line}: {origin.at}" for name, origin in self.reading.origins.items()}
        in_order = {each: self.reading.settings[each] for each in SETTINGS if each in self.reading.settings}
        return [
            comment(f"Settings of pybroker, made from the lines of {self.reading.file.path}"),
            *toml_lines(in_order, comments),
        ]

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        origins = self.reading.origins
        return {
            "configuration": str(self.installation.configuration),
            "script": _text(self.installation.script),
            "service": _text(self.installation.service),
            "store": self.store or None,
            "settings": {
                name: {"value": value, "line": origins[name].line, "at": origins[name].at}
                for name, value in self.reading.settings.items()
                if name in origins
            },
            "findings": [
                {"kind": kind.value, "line": each.line, "at": each.at, "why": each.why}
                for kind in HEADINGS
                for each in self.findings(kind)
            ],
            "accept_without_effect": list(self.unused),
            "exit_code": int(self.exit),
        }

    def write(self, directory: Path) -> None:
        """Write `pybroker.toml` and the files that it names into a directory, which is made if there is none.

        Raises:
            ConfigError: it is not supported, or a file cannot be written, or is there already. Nothing is written
                then, or what comes before that file.
        """
        if self.refused:
            raise ConfigError(
                "pybroker does not start with this configuration: see the report, and accept each place with --accept",
                setting="--out",
            )
        path = directory / "pybroker.toml"
        data = _encoded(self.toml())
        try:
            if path.is_symlink() or path.exists():
                raise FileExistsError
            if self.files is not None:
                self.files.require_absent()
                self.files.write()
            directory.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.write(data)
        except FileExistsError:
            raise ConfigError(f"{path} is there already: name another directory", setting="--out") from None
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}", setting="--out") from error


def _encoded(lines: Iterable[str]) -> bytes:
    """Return the lines of a file of TOML, which is UTF-8.

    Raises:
        ConfigError: a line has half a surrogate pair, as Python's form of a byte that is no UTF-8.
    """
    encoded: list[bytes] = []
    for line in lines:
        try:
            encoded.append(line.encode() + b"\n")
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"{line.partition(' #')[0]!a} cannot be written: TOML has only what is Unicode",
                setting="--out",
                hint="a file name, property or variable of the environment has bytes that are no UTF-8: change it",
            ) from error
    return b"".join(encoded)


def adopt(directory: Path, given: ActivemqXml, out: Path | None = None) -> Adoption:
    """Look at an installation. Changes nothing, and writes nothing.

    Args:
        directory: the installation, or its `activemq.xml`.
        given: what the command line says of the configuration; its path does not count.
        out: the directory of the files of users, rights and certificates, which `Adoption.write` writes; None: there
            are none, and settings name them beside the configuration.

    Raises:
        ConfigError: there is no configuration, or it cannot be read, or its settings do not go together.
        RequirementMissing: a package is not installed that reads key stores, or hashes passwords.
    """
    found = installation.find(directory, installation.SERVICES)
    xml = replace(given, path=found.configuration, properties={**found.properties, **given.properties})
    reading = xml.read()
    now = datetime.now(UTC)
    _check_users(reading)
    # Without `out` they are made as well, for what is found in key stores.
    if out is None:
        derived_files.prepare(reading, found.configuration.parent, now, hashed=_not_hashed)
        derived = None
    else:
        derived = derived_files.prepare(reading, out.absolute(), now)
    refused = xml.refused(reading.findings)
    if not refused:
        Config(**reading.settings)
    return Adoption(
        installation=found,
        reading=reading,
        refused=refused,
        store=_store(reading),
        unused=xml.unused(reading.findings),
        files=derived,
    )


def _not_hashed(password: str) -> str:  # hashes take some tens of milliseconds each
    return ""


def _check_users(reading: Reading) -> None:
    """Refuse a properties file of users as the start does: others may read its passwords."""
    given = reading.settings.get("users_file")
    if given is None:
        return
    try:
        files.read(Path(given), setting="users_file", has_passwords=True)
    except ConfigError as error:
        remedy = f": {error.hint}" if error.hint else ""
        element = reading.protection.login_plugin or reading.file.broker
        reading.findings.refuse(element, f"{error.reason}{remedy}")


def _store(reading: Reading) -> str:
    """Return a line about the store and who holds its lock."""
    if not reading.is_in_directory:
        return ""
    store = str(reading.settings["store"])
    try:
        return store_status.describe(store_status.read(store))[0]
    except ConfigError as error:
        return error.reason if store in error.reason else f"{store}: {error.reason}"


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def report(adoption: Adoption) -> Iterator[str]:
    """Return the lines of the report."""
    found = adoption.installation
    yield f"configuration: {found.configuration}"
    yield f"start script:  {found.script or 'none found'}"
    yield f"service:       {found.service or 'none found'}"
    if adoption.store:
        yield f"store:         {adoption.store}"
    if PASSWORD in adoption.reading.secrets:
        yield "password:      that of the database is not in pybroker.toml: put it into a file that PGPASSFILE names"
    if networks.has_passwords(adoption.reading.secrets):
        yield "passwords:     those of network connectors are not in pybroker.toml: write them into its tables"
    count = len(adoption.reading.settings)
    yield ""
    yield f"Carried over: {count} settings, see below or pybroker.toml"
    for kind, heading in HEADINGS.items():
        listed = adoption.findings(kind)
        if listed:
            yield ""
            yield f"{heading}:"
            yield from (f"  {each}" for each in listed)
    if adoption.unused:
        yield ""
        yield "Without effect, of --accept:"
        yield from (f"  {each}" for each in adoption.unused)
    if adoption.files is not None and derived_files.USERS in adoption.files.texts:
        yield ""
        yield (
            f"For a pair, copy {derived_files.USERS} to the other member, in place of its own: the same passwords have "
            "other hashes in each file that is made"
        )
