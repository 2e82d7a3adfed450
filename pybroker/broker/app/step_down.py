"""Stepping down: a master gives its lock to a standby on request, and does not win it back at once."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from pybroker import blocking
from pybroker.broker.app.config import Config
from pybroker.broker.app.database_status import read as read_database
from pybroker.broker.app.layout import layout_of
from pybroker.broker.app.machine import clock
from pybroker.broker.app.stores import MEMORY_STORE, is_database
from pybroker.broker.app.wiring import is_locked, lock_name
from pybroker.broker.domain.errors import BrokerError
from pybroker.broker.domain.role import Role
from pybroker.store.members import SILENT_MS, MemberStatus, read_members

ANSWER_SECONDS: Final = 5.0
"""The time in which the store answers that lists the members; otherwise a request is refused."""

HOLD_OFF_SECONDS: Final = 5.0
"""The time for which a member that stepped down leaves the lock to others, unless it sees before that one has it."""

_LOOK_SECONDS: Final = 0.05

MayStepDown = Callable[[], Coroutine[Any, Any, str]]
"""Returns the reason why a master had better not step down; empty if there is none."""


async def standby_is_unknown() -> str:
    """Return the reason of a run that knows of no other members."""
    return "no other member is known"


def permission(config: Config, name: str) -> MayStepDown:
    """Return what decides if a member of that name may step down: it looks at the members as they are then."""

    async def may_step_down() -> str:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await blocking.call(partial(problem_of, config, name), "members")
        except TimeoutError:
            return f"the store has not answered for {ANSWER_SECONDS:.0f} s"
        except BrokerError as error:
            return f"the members cannot be read ({error})"

    return may_step_down


def problem_of(config: Config, name: str) -> str:
    """Return the reason why no standby would take over; empty if one would. Blocks.

    Raises:
        BrokerError: the members cannot be read.
    """
    if config.store == MEMORY_STORE:
        return "a store in memory has no standby"
    if is_database(config.store):
        found = {
            each.name: each.obstacle for each in read_database(config.store).members if each.role == Role.STANDBY.value
        }
    else:
        members = read_members(layout_of(config).members)
        found = {each.name: reason for each in members if (reason := _problem_of_standby(each)) is not None}
    problems = {each: reason for each, reason in found.items() if each != name}
    if not problems:
        return "there is no standby"
    if "" in problems.values():
        return ""
    return "; ".join(f"the standby {each} could not serve: {reason}" for each, reason in sorted(problems.items()))


def _problem_of_standby(entry: MemberStatus) -> str | None:
    """Return the reason why a standby would not take over; None for a member that is no standby."""
    member = entry.member
    if not entry.alive or member is None or member.role is not Role.STANDBY:
        return None
    if (age_ms := clock() - member.updated_ms) > SILENT_MS:
        return f"it has been silent for {age_ms // 1000} s"
    return member.obstacle


async def leave_lock_to_others(config: Config, is_stopping: Callable[[], bool]) -> None:
    """Wait until another member has the lock, for `HOLD_OFF_SECONDS` at most, or until a stop is requested.

    A look at the lock that does not end, as the share of the store hangs, is not waited for.
    """
    deadline = asyncio.get_running_loop().time() + HOLD_OFF_SECONDS
    look = _look(config)
    while asyncio.get_running_loop().time() < deadline and not is_stopping():
        await asyncio.sleep(_LOOK_SECONDS)
        if look.done():
            if look.result():
                return
            look = _look(config)
    look.cancel()


def _look(config: Config) -> "asyncio.Task[bool]":
    """Begin to look if another member has the lock."""
    return asyncio.create_task(blocking.call(partial(_is_taken, config), "lock look"))


def _is_taken(config: Config) -> bool:
    """Return True if a member holds the lock file; False if that is not known."""
    if config.store == MEMORY_STORE or not config.is_in_directory:
        return False
    lock = lock_name(config)
    try:
        return not isinstance(lock, str) and is_locked(lock)
    except BrokerError:  # the next run tries the lock, and says what is wrong
        return False
