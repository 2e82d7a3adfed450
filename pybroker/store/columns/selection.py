"""Selects rows before their messages are decoded."""

from dataclasses import dataclass

from pybroker.store.columns.rows import Row


@dataclass(frozen=True, slots=True)
class Selection:
    """Rows of some record types, of some destinations. None means all; a row without the value is in no selection.

    Attributes:
        record_types: as in the column of that name.
        destinations: physical names.
    """

    record_types: frozenset[str] | None = None
    destinations: frozenset[str] | None = None

    @property
    def is_everything(self) -> bool:
        """True when no row is left out."""
        return self.record_types is None and self.destinations is None

    def takes(self, row: Row) -> bool:
        """Return True for a row that is wanted."""
        if self.record_types is not None and row.get("record_type") not in self.record_types:
            return False
        return self.destinations is None or row.get("destination") in self.destinations


EVERYTHING = Selection()
