"""The registry of attacks: each an asynchronous function, with its name, its reason and the settings of its broker."""

import importlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.hostile.target import Target

THEMES: Final = (
    "floods",
    "selectors",
    "bodies",
    "growth",
    "memory",
    "backpressure",
    "identity",
    "logs",
    "acknowledgements",
    "extremes",
    "multipliers",
    "crowds",
    "combinations",
    "large",
    "lasting",
    "mqtt",
    "websockets",
    "amqp",
)
"""Modules of this package that declare attacks."""

MEMORY_LIMIT_MB: Final = 128
PATIENCE_SECONDS: Final = 60.0

Run = Callable[[Target], Awaitable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One attack.

    Attributes:
        name: by which `--attack` chooses it.
        theme: the module that declares it.
        what: one line for `--list`.
        run: performs it, and returns what came of it.
        memory_limit_mb: the broker's `memory_limit`.
        frame_mb: the length of its frames where they come near `frame_max`, which the verdict allows for; else 0.
        index_mb: the memory of the ids of what waits in the store, where that is much, which the verdict allows for.
        quick: it belongs to the short form.
        seconds_max: time after which it is ended, still under way.
        extra: further arguments of `pybroker start`.
        refused: regular expression for the reasons with which the broker is to refuse parts of it; None: it refuses
            nothing. An attack that is refused otherwise, or in its full form not at all, has not reached its depth.
        fills: it uses up `connections_max`, so that connections of others are refused meanwhile.
        tls: the broker has a STOMP listener with TLS as well.
        mqtt: the broker has listeners for MQTT and WebSocket as well.
        amqp: the broker has a listener for AMQP as well.
    """

    name: str
    theme: str
    what: str
    run: Run
    memory_limit_mb: int
    frame_mb: int
    index_mb: int
    quick: bool
    seconds_max: float
    extra: Sequence[str]
    refused: str | None
    fills: bool
    tls: bool
    mqtt: bool
    amqp: bool


_REGISTRY: dict[str, Attack] = {}


def attack(
    name: str,
    *,
    memory_limit_mb: int = MEMORY_LIMIT_MB,
    frame_mb: int = 0,
    index_mb: int = 0,
    quick: bool = False,
    seconds_max: float = PATIENCE_SECONDS,
    extra: Sequence[str] = (),
    refused: str | None = None,
    fills: bool = False,
    tls: bool = False,
    mqtt: bool = False,
    amqp: bool = False,
) -> Callable[[Run], Run]:
    """Register the decorated function, whose docstring's first line says what it does."""

    def register(run: Run) -> Run:
        what = (run.__doc__ or "").splitlines()[0]
        theme = run.__module__.rpartition(".")[2]
        assert name not in _REGISTRY, name
        _REGISTRY[name] = Attack(
            name=name,
            theme=theme,
            what=what,
            run=run,
            memory_limit_mb=memory_limit_mb,
            frame_mb=frame_mb,
            index_mb=index_mb,
            quick=quick,
            seconds_max=seconds_max,
            extra=extra,
            refused=refused,
            fills=fills,
            tls=tls,
            mqtt=mqtt,
            amqp=amqp,
        )
        return run

    return register


def all_attacks() -> dict[str, Attack]:
    """Return every attack by name, in the order of themes and of their modules."""
    for theme in THEMES:
        importlib.import_module(f"benchmarks.hostile.{theme}")
    order = {theme: index for index, theme in enumerate(THEMES)}
    return dict(sorted(_REGISTRY.items(), key=lambda item: order[item[1].theme]))


def chosen(names: Sequence[str], *, quick: bool) -> list[Attack]:
    """Return the named attacks, or all of them; of all, the short form takes those marked `quick`.

    A name may be a theme, or end in `*`.

    Raises:
        ValueError: there is no such attack; with those that there are.
    """
    known = all_attacks()
    if not names:
        return [each for each in known.values() if each.quick or not quick]
    found: dict[str, Attack] = {}
    for name in names:
        matching = {
            key: each
            for key, each in known.items()
            if name in (key, each.theme) or (name.endswith("*") and key.startswith(name[:-1]))
        }
        if not matching:
            raise ValueError(f"no attack {name}; there are {', '.join(known)}")
        found |= matching
    return list(found.values())
