"""Which broker is tried next, and when: decides only, and opens, waits for and logs nothing.

Its driver asks `next_step`, does that, tells what came of it, and asks again; while connected it asks `spare_step`
the same way, if the URI wants spares. Source: ActiveMQ 5.17, `FailoverTransport`:

```text
            connected                       lost
    ┌─────────────────────► CONNECTED ────────────────┐      round: every broker once, the one that was lost last
    │                                                 ▼      pause: initial delay, then × exponent up to the maximum
 Connect ◄── Connect … ◄── ReadList? ◄── Pause ◄── (round)   a first connection begins without a pause
    │ failed, all of them                             ▲
    └──────────► rounds left? ── yes ─────────────────┘
                              └─ no ──► GiveUp
```

Where it differs from ActiveMQ: preferred brokers are tried first, instead of being moved to right afterwards; and one
that never stays is gone back to ever more rarely, where ActiveMQ would go back and forth at once.
"""

import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pybroker.client.conversation import Redirected
from pybroker.client.uri import Address, BrokerURI, FailoverOptions, parse_list


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to a broker, then tell `connected` or `failed`; of a spare, `spare_ready` or `spare_failed`.

    Attributes:
        address: where to.
        is_spare: a connection that is held ready, if it still is: no new one is needed.
    """

    address: Address
    is_backup: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait.

    Attributes:
        seconds: how long.
        warning: what to log first.
    """

    seconds: float
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class ReadList:
    """Read a file with brokers, then tell `listed`; if it cannot be read, ask for the next step all the same.

    Attributes:
        url: its path or `file:` URL.
    """

    url: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Stop trying: the connection has failed.

    Attributes:
        rounds: how often every broker was tried in vain; 0 when a broken connection must stay so.
        error: the last failure.
        is_final: trying again would not help.
    """

    rounds: int
    error: Exception
    is_final: bool = False


Step = Connect | Pause | ReadList | GiveUp

PAUSE_SECONDS_MIN: Final = 0.01
"""The shortest pause before a round, ActiveMQ's default: with none, a client whose brokers refuse it is a busy loop."""

_WITHOUT_FAILOVER = FailoverOptions(max_reconnect_attempts=0)
"""How a URI without `failover:` behaves."""


class Reconnector:
    """The way from broker to broker of one connection. Not for several threads at once.

    Attributes:
        current: the broker that the connection is with; None while there is none.
        failures: the last failure of each broker tried since there was a connection, and why that was lost.
        warnings: the URI's, and about brokers that could not be understood; to be logged, and emptied, by the driver.
    """

    def __init__(self, uri: BrokerURI, chooser: random.Random) -> None:
        """Begin without a connection.

        Args:
            uri: brokers and options.
            chooser: the source of randomness.
        """
        self.current: Address | None = None
        self.failures: dict[Address, Exception] = {}
        self.warnings = list(uri.warnings)
        self._options = uri.failover or _WITHOUT_FAILOVER
        self._chooser = chooser
        self._configured = uri.addresses
        self._announced: tuple[Address, ...] = ()
        self._is_first = True
        self._rounds_failed = 0
        self._delay = _first_delay(self._options)
        self._can_try_again = False  # of a broker of this round
        self._final_error: Exception | None = None  # of this round
        self._steps: deque[Step] = deque()
        self._attempted: Address | None = None
        self._last: Address | None = None
        self._next_order: list[Address] = []
        self._last_error: Exception = ConnectionError("no broker was tried")
        self._backups = _Backups(self._options)
        self._plan_round()

    # ------------------------------------------------------------ a connection

    def next_step(self) -> Step:
        """Return what to do next, while there is no connection."""
        assert self.current is None, "there is a connection"
        assert self._attempted is None, "nobody told what came of the last step"
        if not self._steps:
            self._fill_round()
        step = self._steps[0]
        if isinstance(step, GiveUp):
            return step
        self._steps.popleft()
        if isinstance(step, Connect):
            self._attempted = step.address
            if step.is_backup:
                self._backups.held.pop(step.address, None)
        return step

    def failed(self, error: Exception, *, is_final: bool = False) -> None:
        """Note that the broker last tried could not be reached, or did not take what was to be restored.

        Args:
            error: why.
            is_final: trying this broker again would not help. No other round begins when that is so of every broker;
                before the first connection, of one, as the others may be standbys that never answer.
        """
        assert self._attempted is not None, "nothing was tried"
        self.failures.pop(self._attempted, None)  # so that the latest stands last
        self.failures[self._attempted] = self._last_error = error
        self._attempted = None
        if is_final:
            self._final_error = error
        else:
            self._can_try_again = True
        if self._steps:
            return
        self._rounds_failed += 1
        limit = self._limit()
        if self._final_error is not None and (self._is_first or not self._can_try_again):
            self._steps.append(GiveUp(self._rounds_failed, self._final_error, is_final=True))
        elif limit != -1 and self._rounds_failed >= limit:
            self._steps.append(GiveUp(self._rounds_failed, error))
        else:
            self._plan_round(self._warning())

    def connected(self, now: float) -> None:
        """Note that the broker last tried serves this connection, and that everything is restored.

        Args:
            now: a clock's seconds.
        """
        assert self._attempted is not None, "nothing was tried"
        self.current = self._last = self._attempted
        self._attempted = None
        self._steps.clear()
        self._is_first = False
        self._rounds_failed = 0
        self._delay = _first_delay(self._options)
        self.failures.clear()
        self._backups.connected(self.current, self._is_preferred(self.current), now)

    def lost(self, error: Exception, now: float) -> None:
        """Note that the connection is gone: broken, or closed in order to move.

        Args:
            error: why; what `GiveUp` shows if it must stay so.
            now: a clock's seconds.
        """
        assert self.current is not None, "there is no connection"
        self._backups.lost(now)
        self.failures[self.current] = self._last_error = error
        self.current = None
        if self._limit() == 0 and not self._next_order:
            self._steps.append(GiveUp(0, error))
        else:
            self._plan_round()

    def report(self) -> str:
        """Return each broker tried since there was a connection with its last failure, for an error's message.

        May be called in another thread; empty while there is a connection.
        """
        failures, trying = dict(self.failures), self._attempted
        troubles = [f"{address}: {_cause(address, error)}" for address, error in failures.items()]
        if trying is not None and trying not in failures:
            troubles.append(f"{trying}: no answer yet")
        return "; ".join(troubles)

    # ------------------------------------------------------------ the list of brokers

    def redirected(self, event: Redirected) -> bool:
        """Take what a broker says about brokers: others to know, or one to go to and no other from now on.

        Brokers told of replace those told of before, not the URI's own.

        Returns:
            True when the connection should be closed in order and `lost` be told: another broker is to serve it.
        """
        moves = self._redirect(event.reconnect_to)
        return self._update_list(",".join(event.brokers), event.rebalance) or moves

    def list_read(self, text: str) -> bool:
        """Take the content of the file that `ReadList` named, or that was read at another time.

        Returns:
            As `told`.
        """
        return self._update_list(",".join(text.splitlines()), self._options.rebalance_update_uris)

    def _redirect(self, text: str) -> bool:
        if not text.strip() or not self._options.reconnect_supported:
            return False
        addresses = self._usable(text)
        if not addresses:
            return False
        self._configured, self._announced = addresses, ()
        if self.current is None or self.current in addresses:
            return False
        self._next_order = list(addresses)
        return True

    def _update_list(self, text: str, rebalance: bool) -> bool:
        if not text.strip() or not self._options.update_uris_supported:
            return False
        addresses = self._usable(text)
        if not addresses or set(addresses) == set(self._announced):
            return False
        self._announced = addresses
        return rebalance and self._rebalance()

    def _usable(self, text: str) -> tuple[Address, ...]:
        """Return the usable brokers of a list: those that speak what this connection speaks."""
        addresses, errors = parse_list(text, self._options.nested)
        self.warnings.extend(f"a broker was announced that cannot be used: {error}" for error in errors)
        protocol = self._configured[0].scheme.protocol
        return tuple(address for address in addresses if address.scheme.protocol is protocol)

    def _rebalance(self) -> bool:
        if self.current is None or self._is_preferred(self.current):
            return False
        order = self._order()
        if order[0] == self.current:
            return False
        self._next_order = order
        return True

    def _order(self) -> list[Address]:
        """Return every broker once: preferred ones first, then those told of; the one that was lost last of all."""
        known = list(dict.fromkeys((*self._announced, *self._configured)))
        lost = [self._last] if self.current is None and self._last in known else []
        order = [address for address in known if address not in lost]
        if self._options.randomize:
            self._chooser.shuffle(order)
        return [*self._preferred_first(order), *filter(None, lost)]

    def _is_preferred(self, address: Address) -> bool:
        if not self._options.priority_backup:
            return False
        return address in (self._options.priority_uris or self._configured[:1])

    # ------------------------------------------------------------ rounds

    def _plan_round(self, warning: str | None = None) -> None:
        """Plan what comes before a round's first broker; the brokers follow when that is done."""
        self._steps.clear()
        is_very_first = self._is_first and not self._rounds_failed
        if not is_very_first and not self._backup_to_use():
            self._steps.append(Pause(self._delay, warning))
            self._delay = _next_delay(self._delay, self._options)
        if self._options.update_uris_url and self._options.update_uris_supported:
            self._steps.append(ReadList(self._options.update_uris_url))

    def _fill_round(self) -> None:
        """Decide the order only now: the list may have changed during the pause."""
        order, self._next_order = self._next_order or self._order(), []
        self._can_try_again, self._final_error = False, None
        self._steps.extend(Connect(address, is_backup=True) for address in self._backup_to_use())
        self._steps.extend(Connect(address) for address in order)

    def _backup_to_use(self) -> list[Address]:
        """Return the spare to go on with; none after a failed round, when its brokers are no better than others."""
        return [] if self._rounds_failed else self._preferred_first(self._backups.held)[:1]

    def _limit(self) -> int:
        if self._is_first and self._options.startup_max_reconnect_attempts != -1:
            return self._options.startup_max_reconnect_attempts
        return self._options.max_reconnect_attempts

    def _warning(self) -> str | None:
        every = self._options.warn_after_reconnect_attempts
        if every <= 0 or (self._rounds_failed != 1 and self._rounds_failed % every):
            return None
        attempts = "1 attempt" if self._rounds_failed == 1 else f"{self._rounds_failed} attempts"
        return f"no connection to a broker after {attempts}, trying on: {self.report()}"

    # ------------------------------------------------------------ spares

    def backup_step(self, now: float) -> Connect | Pause | None:
        """Return what to do next for connections beside the one in use; None: nothing, until something changes.

        A spare is connected and greeted, as far as a broker lets anybody in: it is no login.

        Args:
            now: a clock's seconds.
        """
        if self.current is None:
            return None
        wanted = self._wanted_backups(self.current)
        if not wanted:
            self._backups.sweep.clear()
            return None
        if not self._backups.sweep:
            if now < self._backups.due_at:
                return Pause(self._backups.due_at - now)
            self._backups.sweep.extend(wanted)
        address = self._backups.sweep.popleft()
        return Connect(address, is_backup=True)

    def backup_ready(self, address: Address) -> bool:
        """Note that the connection `spare_step` asked for stands; it is held from now on.

        Returns:
            As `told`: True when it leads to a preferred broker, and the present one is none.
        """
        self._backups.held[address] = None
        if self.current is None or self._is_preferred(self.current) or not self._is_preferred(address):
            return False
        self._next_order = [address, *(other for other in self._order() if other != address)]
        return True

    def backup_failed(self, now: float) -> None:
        """Note that a connection `spare_step` asked for could not be made."""
        if not self._backups.sweep:
            self._backups.wait(now)

    def backup_lost(self, address: Address, now: float) -> None:
        """Note that a connection held ready is gone."""
        self._backups.held.pop(address, None)
        self._backups.sweep.clear()
        self._backups.wait(now)

    def _wanted_backups(self, current: Address) -> list[Address]:
        """Return the brokers to try, best first: preferred ones while the present one is none, others for the pool."""
        is_searching = self._options.priority_backup and not self._is_preferred(current)
        is_filling = self._options.backup and len(self._backups.held) < self._options.backup_pool_size
        candidates = dict.fromkeys((*self._options.priority_uris, *self._order()))
        return [
            address
            for address in self._preferred_first(candidates)
            if address != current
            and address not in self._backups.held
            and (is_filling or (is_searching and self._is_preferred(address)))
        ]

    def _preferred_first(self, addresses: Iterable[Address]) -> list[Address]:
        return sorted(addresses, key=lambda address: not self._is_preferred(address))  # stable: otherwise as they were


class _Backups:
    """Connections held ready, and when to look for more.

    Attributes:
        held: the brokers they lead to.
        sweep: brokers still to be tried in this search.
        due_at: when the next search may begin.
    """

    __slots__ = ("_connected_at", "_delay", "_is_at_preferred", "_options", "due_at", "held", "sweep")

    def __init__(self, options: FailoverOptions) -> None:
        self.held: dict[Address, None] = {}
        self.sweep: deque[Address] = deque()
        self.due_at = 0.0
        self._options = options
        self._delay = _first_delay(options)
        self._is_at_preferred = False
        self._connected_at = 0.0

    def connected(self, address: Address, is_preferred: bool, now: float) -> None:
        """Look for spares soon, but for a preferred broker that did not stay only after a pause."""
        self.held.pop(address, None)
        self.sweep.clear()
        self._is_at_preferred, self._connected_at = is_preferred, now
        if self._delay > _first_delay(self._options):
            self.wait(now)

    def lost(self, now: float) -> None:
        """Forget pauses when a preferred broker stayed for as long as the longest; lengthen them when it did not."""
        self.sweep.clear()
        if not self._is_at_preferred:
            return
        if now - self._connected_at >= self._options.max_reconnect_delay_seconds:
            self._delay = _first_delay(self._options)
        else:
            self._delay = _next_delay(self._delay, self._options)

    def wait(self, now: float) -> None:
        """Have the next search begin after a pause, and the one after that later."""
        self.due_at = now + self._delay
        self._delay = _next_delay(self._delay, self._options)


def _first_delay(options: FailoverOptions) -> float:
    return max(options.initial_reconnect_delay_seconds, PAUSE_SECONDS_MIN)


def _next_delay(seconds: float, options: FailoverOptions) -> float:
    """Return the pause that follows one."""
    if not options.use_exponential_back_off:
        return seconds
    longer = min(seconds * options.reconnect_delay_exponent, options.max_reconnect_delay_seconds)
    return max(longer, PAUSE_SECONDS_MIN)


def _cause(address: Address, error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text.removeprefix(str(address)).lstrip(": ")
