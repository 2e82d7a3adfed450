"""Compares the configured store with directories on disk, by a function of the caller: this module opens nothing."""

from collections.abc import Callable, Iterable
from pathlib import Path

from pybroker.activemq_xml.findings import ConfigurationFinding, FindingKind
from pybroker.activemq_xml.persistence import JOURNAL
from pybroker.activemq_xml.reading import Reading

FindOthers = Callable[[Path], Iterable[Path]]
"""Returns the directories that have a journal and a given one's name in another case, if the given one has none.

Raises:
    OSError: they cannot be listed.
"""


def check(reading: Reading, find_others: FindOthers) -> None:
    """Add a warning for each directory that may be the one that was meant: `KahaDB` beside an empty `kahadb`."""
    if not reading.is_in_directory:
        return
    journal = Path(reading.settings["store"]) / reading.settings.get("journal_directory", JOURNAL)
    origin = reading.origins["store"]
    try:
        others = [*find_others(journal)]
    except OSError as error:
        why = f"the directories beside {journal} cannot be listed: {error.strerror}"
        reading.findings.add(ConfigurationFinding(FindingKind.WARNING, origin.at, why, origin.line))
        return
    for other in others:
        why = f"{journal} has no journal, and {other} has one: name that directory if its messages are to be served"
        reading.findings.add(ConfigurationFinding(FindingKind.WARNING, origin.at, why, origin.line))
