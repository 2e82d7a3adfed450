"""Records of a journal that are no commands, or none that this version knows."""

from pybroker.broker.domain.errors import MalformedData


class MalformedRecord(MalformedData):
    """A payload that is no journal command: unknown type, truncated, or a field that is missing or does not decode."""


class UnknownCommand(MalformedRecord):
    """A sound record of a type that this version does not know: what wrote it is newer."""
