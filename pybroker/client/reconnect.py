"""`Reconnector` decides which broker a client tries next, and when. It does no I/O, waiting or logging.

The caller gets the next step from `next_step`, carries it out, reports the result, and repeats this. While it is
connected, it does the same with `backup_step` if the URI wants backups. Source: ActiveMQ 5.17, `FailoverTransport`:

```text
            connected                       lost
    ┌─────────────────────► CONNECTED ────────────────┐      round: every broker once, the one that was lost last
    │                                                 ▼      pause: initial delay, then × exponent up to the maximum
 Connect ◄── Connect … ◄── ReadList? ◄── Pause ◄── (round)   a first connection begins without a pause
    │ failed, all of them                             ▲
    └──────────► rounds left? ── yes ─────────────────┘
                              └─ no ──► GiveUp
```

Differences from ActiveMQ:

- A round tries preferred brokers first, where ActiveMQ connects to any broker and then moves.
- The delay before the return to a preferred broker grows if its connections do not last; ActiveMQ returns at once.
- The client that a broker sends to another one keeps the brokers of its URI, which ActiveMQ forgets.
- Rebalancing moves a client from one preferred broker to another one, where ActiveMQ leaves it alone. The brokers of a
  site may be announced instead of listed, see `redirected`.
"""

import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pybroker.client.conversation import Redirected
from pybroker.client.uri import Address, BrokerURI, FailoverOptions, parse_list
from pybroker.counted import counted


@dataclass(frozen=True, slots=True)
class Connect:
    """The step to connect to a broker. The caller reports `connected` or `failed`.

    Attributes:
        address: the broker's address.
        is_backup: from `next_step`: use the backup connection to this broker. From `backup_step`: open one, and report
            `backup_ready` or `backup_failed`.
    """

    address: Address
    is_backup: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """The step to wait.

    Attributes:
        seconds: the time to wait.
        warning: a warning to log before; None for none.
    """

    seconds: float
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class ReadList:
    """The step to read a file with brokers. The caller reports `list_read`, or continues if it cannot read the file.

    Attributes:
        url: the path or `file:` URL of the file.
    """

    url: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The last step: the connection has failed.

    Attributes:
        rounds: the number of failed rounds; 0 if a broken connection may not be replaced.
        error: the last failure.
        is_final: another attempt does not help.
    """

    rounds: int
    error: Exception
    is_final: bool = False


Step = Connect | Pause | ReadList | GiveUp

PAUSE_SECONDS_MIN: Final = 0.01
"""The shortest pause before a round, ActiveMQ's default. Without a pause, refused connections make a busy loop."""

_WITHOUT_FAILOVER = FailoverOptions(max_reconnect_attempts=0, update_uris_supported=False, reconnect_supported=False)
"""The options of a URI without `failover:`."""


class Reconnector:
    """The decisions of one connection about its brokers. Not thread-safe.

    Attributes:
        current: the broker of the present connection; None while there is none.
        failures: the last failure of each broker since the last connection, with the reason of its loss.
        warnings: the URI's warnings, and those about unusable announced brokers; the caller logs and clears them.
    """

    def __init__(self, uri: BrokerURI, chooser: random.Random) -> None:
        """Start without a connection.

        Args:
            uri: the brokers and options.
            chooser: the source of randomness.
        """
        self.current: Address | None = None
        self.failures: dict[Address, Exception] = {}
        self.warnings = list(uri.warnings)
        self._options = uri.failover or _WITHOUT_FAILOVER
        self._chooser = chooser
        self._configured = uri.addresses
        self._announced: tuple[Address, ...] = ()
        self._requested: tuple[Address, ...] = ()
        """The brokers that the last `reconnectTo` named."""
        self._site: tuple[Address, ...] = ()
        """The brokers that the last preferred one announced, if they are those of its site."""
        self._pending: Redirected | None = None
        """The brokers, or the new connection, that the broker announced during the login; None: nothing."""
        self._is_first = True
        self._rounds_failed = 0
        self._delay = _first_delay(self._options)
        self._can_try_again = False  # a broker of this round failed in a way that may pass
        self._final_error: Exception | None = None  # the last final failure of this round
        self._steps: deque[Step] = deque()
        self._attempted: Address | None = None
        self._last: Address | None = None
        self._next_order: list[Address] = []
        self._last_error: Exception = ConnectionError("no broker was tried")
        self._backups = _Backups(self._options)
        self._plan_round()

    # ------------------------------------------------------------ a connection

    def next_step(self) -> Step:
        """Return the next step. Called only while there is no connection."""
        assert self.current is None, "there is a connection"
        assert self._attempted is None, "the result of the last step was not reported"
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
        """Record that the last broker tried was not reachable, or refused the login.

        Args:
            error: the reason.
            is_final: another attempt on this broker does not help. There is no further round if all brokers of a round
                fail so; before the first connection one is enough, because the others may be standbys, which never
                answer.
        """
        assert self._attempted is not None, "nothing was tried"
        self._pending = None
        self.failures.pop(self._attempted, None)  # so that the latest failure is the last entry
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

    def connected(self, now: float) -> bool:
        """Record that the last broker tried serves the connection, and that the state is restored.

        Args:
            now: seconds of a monotonic clock.

        Returns:
            True if the broker has sent the client to another one during the login, as from `redirected`.
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
        pending, self._pending = self._pending, None
        return pending is not None and self.redirected(pending)

    def lost(self, error: Exception, now: float) -> None:
        """Record that the connection broke, or was closed in order to move to another broker.

        Args:
            error: the reason, which `GiveUp` has if the connection may not be replaced.
            now: seconds of a monotonic clock.
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
        """Return the last failure of each broker tried since the last connection, for an error message.

        The text is empty while there is a connection. Any thread may call this.
        """
        failures, trying = dict(self.failures), self._attempted
        troubles = [f"{address}: {_cause(address, error)}" for address, error in failures.items()]
        if trying is not None and trying not in failures:
            troubles.append(f"{trying}: no answer yet")
        return "; ".join(troubles)

    # ------------------------------------------------------------ the list of brokers

    def redirected(self, event: Redirected) -> bool:
        """Process a broker's announcement of other brokers, or its request to connect to another one only.

        Announced brokers replace those announced before, not those of the URI.

        With `priorityBackup` a list from a preferred broker is that of its site, and its brokers are preferred too,
        if the URI has other brokers than preferred ones and the list has none of these. A broker with an
        `updateClusterFilter` for its site sends such lists. Rebalancing then stays within the site, and a client that
        was at another one returns to any broker of it.

        Returns:
            True if another broker should serve the connection: the caller closes it in order, and reports `lost`.
        """
        if self.current is None:
            self._defer(event)
            return False
        moves = self._redirect(event.reconnect_to)
        return self._update_list(",".join(event.brokers), event.rebalance, event.sender) or moves

    def _defer(self, event: Redirected) -> None:
        """Keep an announcement until the login has succeeded."""
        if self._attempted is None:
            return
        before = self._pending or Redirected()
        self._pending = Redirected(
            event.brokers or before.brokers,
            event.reconnect_to or before.reconnect_to,
            event.rebalance or before.rebalance,
            event.sender or before.sender,
        )

    def list_read(self, text: str) -> bool:
        """Process the content of the file that `ReadList` names.

        Returns:
            The same as `redirected`.
        """
        return self._update_list(",".join(text.splitlines()), self._options.rebalance_update_uris)

    def _redirect(self, text: str) -> bool:
        if not text.strip() or not self._options.reconnect_supported:
            return False
        addresses = self._usable(text)
        if not addresses:
            return False
        self._requested = addresses
        if self.current is None or self.current in addresses:
            return False
        self._leave_for(addresses)
        return True

    def _update_list(self, text: str, rebalance: bool, sender: str = "") -> bool:
        if not text.strip() or not self._options.update_uris_supported:
            return False
        addresses = self._usable(text)
        if not addresses:
            return False
        if self.current is not None and self._is_preferred(self.current):
            self._site = addresses if self._is_site(addresses) else ()
        if set(addresses) == set(self._announced):
            return False
        self._announced = addresses
        return rebalance and self._rebalance(sender)

    def _is_site(self, announced: Iterable[Address]) -> bool:
        """Return True if a list that a preferred broker announces is limited to its site, see `redirected`."""
        others = [address for address in self._configured if address not in self._named_preferred]
        return bool(others) and not any(address in others for address in announced)

    def _usable(self, text: str) -> tuple[Address, ...]:
        """Return the brokers of a list that speak this connection's protocol."""
        addresses, errors = parse_list(text, self._options.nested)
        self.warnings.extend(f"a broker was announced that cannot be used: {error}" for error in errors)
        protocol = self._configured[0].scheme.protocol
        return tuple(address for address in addresses if address.scheme.protocol is protocol)

    def _rebalance(self, sender: str) -> bool:
        """Choose another broker, among preferred ones if the present one is preferred, and among others if not.

        Args:
            sender: the present broker's own address, which may differ from the client's name of it.
        """
        if self.current is None:
            return False
        here, is_preferred = {self.current, *parse_list(sender, ())[0]}, self._is_preferred(self.current)
        order = self._order()
        alike = [address for address in order if self._is_preferred(address) is is_preferred]
        if not alike or alike[0] in here:
            return False
        self._leave_for((*alike, *order))
        return True

    def _leave_for(self, first: Iterable[Address]) -> None:
        """Try some brokers next, then all others, and the present one last."""
        order = dict.fromkeys((*first, *self._order()))
        self._next_order = [address for address in order if address != self.current]
        self._next_order += filter(None, (self.current,))

    def _order(self) -> list[Address]:
        """Return every broker once: preferred ones first, then announced ones; the broker that was lost comes last."""
        known = list(dict.fromkeys((*self._announced, *self._site, *self._requested, *self._configured)))
        lost = [self._last] if self.current is None and self._last in known else []
        order = [address for address in known if address not in lost]
        if self._options.randomize:
            self._chooser.shuffle(order)
        return [*self._preferred_first(order), *filter(None, lost)]

    def _is_preferred(self, address: Address) -> bool:
        if not self._options.priority_backup:
            return False
        return address in self._named_preferred or address in self._site

    @property
    def _named_preferred(self) -> tuple[Address, ...]:
        """The preferred brokers by the URI alone."""
        return self._options.priority_uris or self._configured[:1]

    # ------------------------------------------------------------ rounds

    def _plan_round(self, warning: str | None = None) -> None:
        """Add the steps before the first broker of a round; `_fill_round` adds the brokers afterwards."""
        self._steps.clear()
        is_very_first = self._is_first and not self._rounds_failed
        if not is_very_first and not self._backup_to_use():
            self._steps.append(Pause(self._delay, warning))
            self._delay = _next_delay(self._delay, self._options)
        if self._options.update_uris_url and self._options.update_uris_supported:
            self._steps.append(ReadList(self._options.update_uris_url))

    def _fill_round(self) -> None:
        """Add the brokers of a round: after the pause, because the list may change during it."""
        order, self._next_order = self._next_order or self._order(), []
        self._can_try_again, self._final_error = False, None
        self._steps.extend(Connect(address, is_backup=True) for address in self._backup_to_use())
        self._steps.extend(Connect(address) for address in order)

    def _backup_to_use(self) -> list[Address]:
        """Return the backup to use next; none after a failed round, as backups are then no better than others."""
        return [] if self._rounds_failed else self._preferred_first(self._backups.held)[:1]

    def _limit(self) -> int:
        if self._is_first and self._options.startup_max_reconnect_attempts != -1:
            return self._options.startup_max_reconnect_attempts
        return self._options.max_reconnect_attempts

    def _warning(self) -> str | None:
        every = self._options.warn_after_reconnect_attempts
        if every <= 0 or (self._rounds_failed != 1 and self._rounds_failed % every):
            return None
        return f"no connection to a broker after {counted(self._rounds_failed, 'attempt')}, trying on: {self.report()}"

    # ------------------------------------------------------------ backups

    def backup_step(self, now: float) -> Connect | Pause | None:
        """Return the next step for the backup connections; None if there is none until a connection changes.

        A backup is a connection without a login: only the greetings are exchanged.

        Args:
            now: seconds of a monotonic clock.
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
        """Record a new backup connection.

        Returns:
            True if its broker is preferred and the present one is not: the caller moves, as after `redirected`.
        """
        self._backups.held[address] = None
        if self.current is None or self._is_preferred(self.current) or not self._is_preferred(address):
            return False
        self._next_order = [address, *(other for other in self._order() if other != address)]
        return True

    def backup_failed(self, now: float) -> None:
        """Record that a backup connection could not be opened."""
        if not self._backups.sweep:
            self._backups.wait(now)

    def backup_lost(self, address: Address, now: float) -> None:
        """Record that a backup connection is lost."""
        self._backups.held.pop(address, None)
        self._backups.sweep.clear()
        self._backups.wait(now)

    def _wanted_backups(self, current: Address) -> list[Address]:
        """Return the brokers to open backups to, best first.

        Those are preferred brokers while the present one is not preferred, and any broker while the pool is not full.
        """
        is_searching = self._options.priority_backup and not self._is_preferred(current)
        is_filling = self._options.backup and len(self._backups.held) < self._options.backup_pool_size
        named, order = self._options.priority_uris, self._order()
        # In a random order, clients that return to their site do not all take its first broker.
        candidates = dict.fromkeys((*order, *named) if self._options.randomize else (*named, *order))
        return [
            address
            for address in self._preferred_first(candidates)
            if address != current
            and address not in self._backups.held
            and (is_filling or (is_searching and self._is_preferred(address)))
        ]

    def _preferred_first(self, addresses: Iterable[Address]) -> list[Address]:
        return sorted(addresses, key=lambda address: not self._is_preferred(address))  # the sort is stable


class _Backups:
    """The backup connections, and the time of the next search for more.

    Attributes:
        held: the brokers of the open backup connections.
        sweep: the brokers that the present search has not tried yet.
        due_at: the earliest time of the next search.
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
        """Start a search soon; after a pause if the last connection to a preferred broker was short."""
        self.held.pop(address, None)
        self.sweep.clear()
        self._is_at_preferred, self._connected_at = is_preferred, now
        if self._delay > _first_delay(self._options):
            self.wait(now)

    def lost(self, now: float) -> None:
        """Lengthen the pause if the connection to a preferred broker was short; reset it if it was long."""
        self.sweep.clear()
        if not self._is_at_preferred:
            return
        if now - self._connected_at >= self._options.max_reconnect_delay_seconds:
            self._delay = _first_delay(self._options)
        else:
            self._delay = _next_delay(self._delay, self._options)

    def wait(self, now: float) -> None:
        """Start the next search after a pause, and lengthen the pause."""
        self.due_at = now + self._delay
        self._delay = _next_delay(self._delay, self._options)


def _first_delay(options: FailoverOptions) -> float:
    return max(options.initial_reconnect_delay_seconds, PAUSE_SECONDS_MIN)


def _next_delay(seconds: float, options: FailoverOptions) -> float:
    """Return the pause that follows a pause of so many seconds."""
    if not options.use_exponential_back_off:
        return seconds
    longer = min(seconds * options.reconnect_delay_exponent, options.max_reconnect_delay_seconds)
    return max(longer, PAUSE_SECONDS_MIN)


def _cause(address: Address, error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text.removeprefix(str(address)).lstrip(": ")
