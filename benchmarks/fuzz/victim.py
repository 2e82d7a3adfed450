"""The broker under test: a process with every listener, with users or without, its log, and what it has stored.

The broker without users syncs each batch to disk, the other one leaves that to the operating system: the first answers
persistent sends later, which are other orders of events.
"""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.fuzz.conversations import PASSWORD, POOR_USER, USER
from benchmarks.hostile.processes import certificate
from benchmarks.hostile.target import FORMAT, Target, message, topic
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.openwire.objects import decode_subscription_info
from pybroker.broker.domain.security import User
from pybroker.security import hashes, users_toml
from pybroker.security.accounts import Account
from pybroker.store.journal.replay import replay
from pybroker.store.journal.state import StoreState

ADMIN: Final = "admin"
BYSTANDER: Final = "bystander"
_USERS: Final = (USER, POOR_USER, BYSTANDER, ADMIN)
MEMORY_LIMIT_MB: Final = 64
_SCHEMES: Final = {
    "stomp": "stomp", "tcp": "openwire", "auto": "auto", "stomp+ssl": "stomp+ssl", "ssl": "openwire+ssl",
    "auto+ssl": "auto+ssl", "ws": "ws", "wss": "ws+ssl", "mqtt": "mqtt", "mqtts": "mqtt+ssl", "amqp": "amqp",
    "amqp+ssl": "amqp+ssl",
}  # fmt: skip
_RULES: Final = f"""
[[rules]]
queue = "FUZZ.>"
read = ["{USER}", "{POOR_USER}"]
write = ["{USER}"]
admin = ["{USER}"]

[[rules]]
topic = ">"
read = ["{USER}"]
write = ["{USER}"]
admin = ["{USER}"]

[[rules]]
queue = "BYSTANDER.>"
read = ["{BYSTANDER}"]
write = ["{BYSTANDER}"]
admin = ["{BYSTANDER}"]

[[rules]]
topic = "BYSTANDER.>"
read = ["{BYSTANDER}"]
write = ["{BYSTANDER}"]
admin = ["{BYSTANDER}"]

[default]
read = ["{ADMIN}"]
write = ["{ADMIN}"]
admin = ["{ADMIN}"]
"""
_START_SECONDS: Final = 60.0
_SETTLE_SECONDS: Final = 20.0
_SWEEP_SECONDS: Final = 120.0
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Victim:
    """A broker on an empty store.

    Attributes:
        logins: it has users.
        ports: by listener.
        log: the file with its log, a JSON object a line.
        store: its directory.
    """

    def __init__(self, directory: Path, *, logins: bool, variables: Mapping[str, str]) -> None:
        """Start it, and wait until it serves.

        Args:
            directory: an empty one.
            logins: with users.
            variables: of its environment, such as where the compiled package is.
        """
        self.logins = logins
        self.store = directory / "store"
        self.log = directory / "log"
        command = [sys.executable, "-m", "pybroker.broker.app.cli", "start", "--store", str(self.store)]
        for listener in ("stomp", "openwire", "auto", "ws", "mqtt", "amqp"):
            command += [f"--{listener}", "0", f"--{listener}-ssl", "0"]
        command += ["--tls-certificate", str(certificate(directory)), "--log-format", "json", "--name", "victim"]
        command += ["--memory-limit", f"{MEMORY_LIMIT_MB}mb", "--disk-reserve", "0"]
        if logins:
            command += ["--sync", "never", *_users(directory)]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYBROKER_")}
        with self.log.open("wb") as stream:
            self.process = subprocess.Popen(command, stdout=stream, stderr=stream, env=environment | dict(variables))
        try:
            self.ports = self._listening()
            if logins:
                asyncio.run(self._log_in())
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> "Victim":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Of its process."""
        return self.process.pid

    @property
    def resident_mb(self) -> float:
        """Its resident memory."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE / (1 << 20)

    def sockets(self, at_most: int) -> int:
        """Return how many sockets it has open, once they are few enough or have had time to close."""
        until = time.monotonic() + _SETTLE_SECONDS
        while (count := self._sockets()) > at_most and time.monotonic() < until:
            time.sleep(0.1)
        return count

    def bystander(self) -> list[str]:
        """Return the arguments of `benchmarks.hostile.bystander`."""
        ports = ["--exclusive"]
        for each in ("openwire", "stomp", "mqtt", "amqp"):
            ports += [f"--{each}", str(self.ports[each])]
        return [*ports, "--user", BYSTANDER, "--password", PASSWORD] if self.logins else ports

    def sweep(self) -> None:
        """Remove what cases have left: jobs, prepared branches, durable subscriptions, destinations and messages."""
        asyncio.run(asyncio.wait_for(self._sweep(), _SWEEP_SECONDS))

    def stop(self) -> int:
        """Request an orderly end, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_START_SECONDS)

    def kill(self) -> None:
        """End it at once, if it still runs."""
        self.process.kill()
        self.process.wait()

    def _listening(self) -> dict[str, int]:
        until = time.monotonic() + _START_SECONDS
        while (found := re.search(r'"listening on ([^"]*)"', self.log.read_text())) is None:
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the broker does not serve; its log:\n{self.log.read_text()}")
            time.sleep(0.02)
        return {_SCHEMES[scheme]: int(port) for scheme, port in re.findall(r"([a-z+]+)://[\d.]+:(\d+)", found[1])}

    def _sockets(self) -> int:
        count = 0
        for each in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed since the directory was read
                count += str(each.readlink()).startswith("socket:")
        return count

    async def _log_in(self) -> None:
        """Log in as every user at a time.

        One who has done so is not refused for the failures of others, and both threads that verify passwords have the
        memory that a hash takes, 19 MiB each, from now on.
        """
        target = self._target()
        clients = await asyncio.gather(*(target.openwire(user_name=name, password=PASSWORD) for name in _USERS))
        for each in clients:
            await each.leave()

    def _target(self) -> Target:
        return Target(openwire_port=self.ports["openwire"], stomp_port=0, tls_port=0, quick=True)

    async def _sweep(self) -> None:
        target = self._target()
        login = {"user_name": ADMIN, "password": PASSWORD} if self.logins else {}
        client = await target.openwire(**login)
        name = wire.ConnectionId(client.id)
        found: set[Destination] = set()
        client.dispatches = lambda frame: _collect(frame, found)
        jobs = topic("ActiveMQ.Scheduler.Management")
        await client.request(
            message(jobs, producer=client.producer, sequence=1, values={"AMQ_SCHEDULER_ACTION": "REMOVEALL"})
        )
        recovered: Any = await client.request(
            wire.TransactionInfo(connection_id=name, type=int(wire.TransactionType.RECOVER))
        )
        branches = [client.transaction(wire.TransactionType.ROLLBACK, each) for each in recovered.data or ()]
        await client.requests(branches)
        state = StoreState()
        replay(self.store / "kahadb", state)
        await client.requests(
            wire.RemoveSubscriptionInfo(connection_id=name, client_id=info.client_id, subscription_name=info.name)
            for info in (decode_subscription_info(each.info) for _, _, each in state.subscriptions())
        )
        await client.consume(topic("ActiveMQ.Advisory.Queue,ActiveMQ.Advisory.Topic"), prefetch=32_000)
        await client.settle()
        await client.requests(
            wire.DestinationInfo(connection_id=name, destination=each, operation_type=wire.DestinationOperation.REMOVE)
            for each in found
            if not each.name.startswith(("BYSTANDER.", "ActiveMQ.Advisory."))
        )
        await client.leave()


def _collect(frame: bytes, found: set[Destination]) -> None:
    dispatch: Any = FORMAT.decode(frame)
    if dispatch.message is not None and isinstance(info := dispatch.message.data_structure, wire.DestinationInfo):
        found.add(info.destination)


def _users(directory: Path) -> list[str]:
    """Write the files of users and rules; return the arguments that name them."""
    secret = hashes.hashed(PASSWORD)
    accounts = {name: Account(User(name, frozenset((name,))), secret) for name in _USERS}
    users, rules = directory / "users.toml", directory / "rules.toml"
    users.write_text(users_toml.written(accounts))
    users.chmod(0o600)
    rules.write_text(_RULES)
    return ["--users-file", str(users), "--rules-file", str(rules)]
