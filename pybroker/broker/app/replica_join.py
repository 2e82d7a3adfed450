"""A standby that was given only its master's address: `replicate = "tcp://a.example:61620"`.

It asks the master for the cluster, its election store and its settings, and keeps them in `replica/store.json`. So it
also starts while the master is down, or is another one. What its own settings give is not replaced.

Source: specification of replication, 8.2.
"""

import asyncio
import logging
import secrets
import threading
from dataclasses import replace
from pathlib import Path
from typing import Final

from pybroker.broker.app.config import Config
from pybroker.broker.app.layout import layout_of
from pybroker.broker.app.replica_peers import peer_certificates_of, read_secret
from pybroker.broker.domain.errors import ConfigError, MalformedData
from pybroker.broker.domain.replica.election_place import ElectionPlace, without_password
from pybroker.broker.domain.replica.ports import ReplicaMember
from pybroker.errors import PybrokerError
from pybroker.store.members import ReplicaReport
from pybroker.store.replica.identity import IdentityFile, boot_id
from pybroker.transports.replica.inquiry import ask_master
from pybroker.transports.replica.peer_certificates import described

SCHEME: Final = "tcp://"
PAUSE_SECONDS: Final = 1.0

_log = logging.getLogger(__name__)


def names_master(config: Config) -> bool:
    """Return True if `replicate` is a master's address, and no election store."""
    return config.replicate is not None and config.replicate.startswith(SCHEME)


def election_place(config: Config, register: str) -> ElectionPlace:
    """Return what a master tells its members, by its settings.

    Args:
        config: the settings.
        register: the name of its register, which in Kubernetes has the namespace, also where the setting has none.
    """
    url = config.replicate or ""
    url = register if url.startswith("kubernetes://") else without_password(url)
    return ElectionPlace(
        url=url, lease=config.replicate_lease, timeout=config.replicate_timeout, grace=config.replicate_grace
    )


class MasterInquiry:
    """Finds out where the register is. Used on the event loop.

    Args:
        config: the settings, whose `replicate` is a master's address.
        name: the member's name.

    Raises:
        ConfigError: a setting is not valid.
    """

    def __init__(self, config: Config, name: str) -> None:
        self._config = config
        self._name = name
        self._address = address_of_master(config.replicate or "")
        self._secret = b"" if config.replicate_secret_file is None else read_secret(config.replicate_secret_file)
        self._tls = peer_certificates_of(config)
        self._root: Path = layout_of(config).root
        self._stopping = threading.Event()
        self._problem = ""

    def report(self) -> ReplicaReport:
        """Return what it waits for, for the status."""
        host, port = self._address
        problem = f"waiting for the master at {host}:{port}, from which it learns where the election store is"
        problem = f"{problem}; {self._problem}" if self._problem else problem
        return ReplicaReport(cluster="", epoch=0, master="", is_in_sync=False, in_sync=0, minimum=0, problem=problem)

    @property
    def is_stopping(self) -> bool:
        """True after `stop`, also where it came too late to end the wait."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """End the wait."""
        self._stopping.set()

    async def learn(self) -> Config | None:
        """Return the settings with the election store; None if `stop` ended the wait.

        Raises:
            BrokerError: the store's directory cannot be used, or the master's PLAN names no usable election store.
        """
        return await asyncio.to_thread(self._learn)

    def _learn(self) -> Config | None:
        file = IdentityFile(self._root, boot=boot_id())
        known = file.peek()
        text = "" if known is None else known.election
        if not text:
            told = self._ask("" if known is None else known.cluster)
            if told is None:
                return None
            text = told
            identity = file.load(is_durable=self._config.sync == "always")
            file.keep(replace(identity, election=text))
        place = ElectionPlace.decode(text)
        _log.info("the election store of the cluster is %s, as its master has told", place.url)
        return self._with(place)

    def _with(self, place: ElectionPlace) -> Config:
        told: dict[str, object] = {
            "replicate_lease": place.lease,
            "replicate_timeout": place.timeout,
            "replicate_grace": place.grace,
        }
        left = {name: value for name, value in told.items() if name not in self._config.given}
        return self._config.replace(replicate=place.url, **left)

    def _ask(self, cluster: str) -> str | None:
        """Ask until there is an answer; None if `stop` ended that."""
        while not self._stopping.is_set():
            problem = self._problem
            try:
                return self._ask_once(cluster)
            except ConfigError:
                raise
            except OSError as error:
                self._problem = described(error)
            except PybrokerError as error:  # of the stream too
                self._problem = str(error)
            if self._problem != problem:
                _log.warning("%s", self.report().problem)
            self._stopping.wait(PAUSE_SECONDS)
        return None

    def _ask_once(self, cluster: str) -> str:
        asking = ReplicaMember(
            cluster=cluster, store=f"s-{secrets.token_hex(12)}", run=f"l-{secrets.token_hex(8)}", name=self._name
        )
        timeout = 2 * self._config.replicate_timeout
        plan = ask_master(self._address, asking, timeout=timeout, secret=self._secret, tls=self._tls)
        if not plan.register.election:
            raise MalformedData("the master does not tell where its election store is")
        ElectionPlace.decode(plan.register.election)
        return plan.register.election


def address_of_master(url: str) -> tuple[str, int]:
    """Return host and port of `tcp://HOST:PORT`.

    Raises:
        ConfigError: it is not such a URL.
    """
    host, _, port = url.removeprefix(SCHEME).rstrip("/").rpartition(":")
    if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ConfigError(
            f"{url!r} is no address of a master",
            setting="replicate",
            hint="write tcp://HOST:61620 with its replicate_port, or the URL of the election store",
        )
    return host.strip("[]"), int(port)
