"""The directories of an ActiveMQ, and the files that its configuration names."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Directories:
    """The directories that ActiveMQ's launcher knows.

    Attributes:
        base: `activemq.base`, to which names in the file are relative.
        conf: `activemq.conf`, where `classpath:` looks first.
    """

    base: Path
    conf: Path

    def path(self, name: str) -> Path:
        """Return the file of a name: a path, or a URL with `file:` or `classpath:`."""
        scheme, _, rest = name.strip().partition(":")
        if scheme == "classpath":
            return self.conf / rest.lstrip("/")
        if scheme == "file":
            name = f"/{rest.lstrip('/')}" if rest.startswith("//") else rest
        return self.base / name.strip()


def launcher_properties(file: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that ActiveMQ's launcher sets, by the place of the file: `BASE/conf/activemq.xml`.

    Args:
        file: the configuration.
        given: what the operator sets, which counts first.
    """
    conf = file.absolute().parent
    found = {
        "activemq.conf": str(conf),
        "activemq.base": str(conf.parent),
        "activemq.home": given.get("activemq.base", str(conf.parent)),
        "activemq.data": str(Path(given.get("activemq.base", conf.parent)) / "data"),
    }
    return found | dict(given)
