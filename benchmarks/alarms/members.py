"""A pair that is disturbed as operators and accidents do, and the facts about it.

A disturbance returns when the pair is complete again: a master serves, and the other member has read all of its
journal.
"""

import http.client
import signal
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.alarms.truth import Facts, Span
from benchmarks.driver import PATIENCE_SECONDS, BrokerProcess
from benchmarks.failover import free_port
from pybroker.broker.domain.security import User
from pybroker.management_client.address import ApiAddress
from pybroker.management_client.client import ManagementClient
from pybroker.management_client.exchange import ApiLogin
from pybroker.security import hashes, users_toml
from pybroker.security.accounts import Account

NAMES: Final = ("a", "b")
CLIENT: Final = "client"
OPERATOR: Final = "operator"
MONITOR: Final = "prometheus"
_GROUPS: Final = {CLIENT: "clients", OPERATOR: "admins", MONITOR: "monitors"}

_LISTENING: Final = "listening on"
_WARM: Final = "standby: following"
_STEPPED_DOWN: Final = "standing by again after stepping down"
_POLL_SECONDS: Final = 0.01


class Member:
    """One member, which is started again and again under the same name and ports."""

    def __init__(self, name: str, directory: Path, users: Path) -> None:
        self.name = name
        self.stomp, self.openwire, self.management = free_port(), free_port(), free_port()
        self.logs: list[Path] = []
        self._directory = directory
        self._users = users
        self._process: BrokerProcess | None = None

    @property
    def instance(self) -> str:
        """Its address for Prometheus."""
        return f"127.0.0.1:{self.management}"

    @property
    def process(self) -> BrokerProcess:
        """Its process."""
        assert self._process is not None
        return self._process

    def start(self) -> None:
        """Start it, and wait for nothing."""
        self.logs.append(self._directory / f"{self.name}-{len(self.logs)}.log")
        extra = ["--openwire", str(self.openwire), "--management", self.instance, "--users-file", str(self._users)]
        self._process = BrokerProcess(
            self._directory / "store", name=self.name, port=self.stomp, log=self.logs[-1], extra=extra
        )

    def wait_until_managed(self) -> None:
        """Wait until its management answers."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                urllib.request.urlopen(f"http://{self.instance}/live", timeout=PATIENCE_SECONDS).close()
            except (OSError, http.client.HTTPException) as error:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"management of {self.name} does not answer") from error
                time.sleep(_POLL_SECONDS)
            else:
                return

    def close(self) -> None:
        """Kill it, if it runs."""
        if self._process is not None:
            self._process.kill()


class Pair:
    """Both members, of which one is the master, and what has happened to them.

    Attributes:
        facts: recorded as they are made.
        members: by name.
    """

    def __init__(self, directory: Path) -> None:
        """Write the users; start no member yet."""
        users = directory / "users.toml"
        self.passwords = {name: hashes.generated() for name in _GROUPS}
        accounts = {
            name: Account(User(name, frozenset((group,))), hashes.hashed_generated(self.passwords[name]))
            for name, group in _GROUPS.items()
        }
        users.write_text(users_toml.written(accounts))
        self.facts = Facts()
        self.members = {name: Member(name, directory, users) for name in NAMES}
        self.master, self.standby = self.members.values()
        self._client = ManagementClient(
            [ApiAddress.of(member.instance) for member in self.members.values()],
            ApiLogin(user=OPERATOR, password=self.passwords[OPERATOR]),
            wait_seconds=PATIENCE_SECONDS,
        )

    def start(self) -> None:
        """Start both, one after the other."""
        self.master.start()
        self.master.process.wait_until_logged(_LISTENING)
        self.master.wait_until_managed()
        self._start_standby()

    def close(self) -> None:
        """End both."""
        for member in self.members.values():
            member.close()

    def kill(self, pause: float) -> None:
        """Kill the master, and start it again after a pause, in seconds."""
        self._take_over(self.master.process.kill, lambda: self._return(pause))

    def stop(self, pause: float) -> None:
        """End the master by SIGTERM, and start it again after a pause."""
        process = self.master.process

        def come_back() -> None:
            _require_exit(process)
            self._return(pause)

        self._take_over(lambda: process.send_signal(signal.SIGTERM), come_back)

    def step_down(self, pause: float) -> None:
        """Have the master give its lock to the standby. There is no pause."""
        former = self.master.process
        before = len(former.log_text())

        def come_back() -> None:
            former.wait_until_logged(_STEPPED_DOWN, after=before)
            former.wait_until_logged(_WARM, after=before)

        self._take_over(lambda: self._client.change("POST", "stepdown", body={}), come_back, is_down=False)

    def restart_standby(self, pause: float) -> None:
        """End the standby by SIGTERM, and start it again after a pause."""
        began_at = time.time()
        self._stop_standby()
        self._return(pause)
        self._record_return(self.standby, began_at, is_down=True)

    def hang_standby(self, wait: Callable[[], None]) -> None:
        """Stop the process of the standby for as long as a function takes."""
        began_at = time.time()
        self.standby.process.send_signal(signal.SIGSTOP)
        try:
            wait()
        finally:
            self.standby.process.send_signal(signal.SIGCONT)
            self.facts.hung.setdefault(self.standby.instance, []).append(Span(began_at, time.time()))

    def lose_standby(self, wait: Callable[[], None]) -> None:
        """End the standby, and leave it ended for as long as a function takes."""
        began_at = time.time()
        self._stop_standby()
        try:
            wait()
        finally:
            self._record_return(self.standby, began_at, is_down=True)

    def left_over(self) -> dict[str, int]:
        """Return the queues that hold messages, and how many."""
        found = self._client.get("queues", page_size=100)
        return {each["name"]: each["size"] for each in found["items"] if each["size"]}

    def promotion_count(self) -> int:
        """Return how often a member began to serve, as the logs have it."""
        return sum(log.read_text().count(_LISTENING) for member in self.members.values() for log in member.logs)

    def require_running(self) -> None:
        """Raise `RuntimeError` if a member has ended by itself."""
        for member in self.members.values():
            if not member.process.is_running:
                raise RuntimeError(f"{member.name} has ended:\n{member.process.log_text()[-5000:]}")

    def _take_over(self, cause: Callable[[], object], come_back: Callable[[], None], *, is_down: bool = True) -> None:
        new, former = self.standby, self.master
        before = len(new.process.log_text())
        began_at = time.time()
        cause()
        new.process.wait_until_logged(_LISTENING, after=before)
        now = time.time()
        self.facts.without_master.append(Span(began_at, now))
        self.facts.promotions.append(now)
        self.master, self.standby = new, former
        come_back()
        self._record_return(former, began_at, is_down=is_down)

    def _return(self, pause: float) -> None:
        time.sleep(pause)
        self._start_standby()

    def _start_standby(self) -> None:
        self.standby.start()
        self.standby.process.wait_until_warm()
        self.standby.wait_until_managed()

    def _stop_standby(self) -> None:
        self.standby.process.send_signal(signal.SIGTERM)
        _require_exit(self.standby.process)

    def _record_return(self, member: Member, began_at: float, *, is_down: bool) -> None:
        span = Span(began_at, time.time())
        self.facts.without_standby.append(span)
        if is_down:
            self.facts.down.setdefault(member.instance, []).append(span)


def _require_exit(process: BrokerProcess) -> None:
    code = process.wait_until_ended()
    if code:
        raise RuntimeError(f"{process.name} ended with {code}:\n{process.log_text()[-5000:]}")
