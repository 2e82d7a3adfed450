"""The options of the transport: in Celery's `broker_transport_options`, or in the URL's query."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Final

from pybroker.client import BadOption, UnknownOption


@dataclass(frozen=True, slots=True, kw_only=True)
class KombuOptions:
    """The options, with their defaults.

    Attributes:
        prefetch: the messages that the broker sends ahead to a consumer whose channel sets no limit.
        transient_ttl: the seconds until a message that is not persistent expires, if it has no expiration of its own;
            0 for never. So results for a client that was killed do not stay.
        scheduled_eta: a task with an `eta` waits in the broker, not in a worker. The broker needs `schedulerSupport`.
        reject_to_dlq: a message that is rejected without being requeued goes to the broker's dead letter queue.
    """

    prefetch: int = 1000
    transient_ttl: float = 86_400.0
    scheduled_eta: bool = False
    reject_to_dlq: bool = False


def parse_options(options: Mapping[str, Any], query: Mapping[str, str]) -> KombuOptions:
    """Return the options; those of the query come first. Options of Kombu and of other transports are ignored.

    Raises:
        UnknownOption: the name of an option is misspelt.
        BadOption: the value of an option is not possible.
    """
    for name in {**options, **query}:
        meant = similar(name, OPTION_NAMES)
        if meant not in (None, name):
            raise UnknownOption("the transport has no such option", part=name, hint=f"did you mean {meant}?")
    values: dict[str, Any] = {}
    for name in OPTION_NAMES:
        value = query.get(name, options.get(name))
        if value is not None:
            try:
                values[name] = _PARSERS[name](value)
            except (TypeError, ValueError) as error:
                raise BadOption(f"{name} is wrong", part=str(value), hint=f"write {error}") from None
    return KombuOptions(**values)


def similar(name: str, names: Iterable[str]) -> str | None:
    """Return the name itself if it is among them, else the one that it misspells; None for neither."""
    close = get_close_matches(name.lower(), names, n=1, cutoff=0.8)
    return close[0] if close else None


def _count(value: object) -> int:
    count = int(str(value))
    if count < 1:
        raise ValueError("1 or more")
    return count


def _seconds(value: object) -> float:
    seconds = float(str(value))
    if not 0 <= seconds < float("inf"):
        raise ValueError("a number of seconds, 0 for never")
    return seconds


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() not in ("true", "false"):
        raise ValueError("true or false")
    return str(value).lower() == "true"


_PARSERS: Final[Mapping[str, Callable[[object], object]]] = {
    "prefetch": _count,
    "transient_ttl": _seconds,
    "scheduled_eta": _flag,
    "reject_to_dlq": _flag,
}

OPTION_NAMES: Final = tuple(field.name for field in fields(KombuOptions))
