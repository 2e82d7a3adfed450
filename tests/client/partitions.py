"""Partitions of a replicated cluster under load: some links lose everything in one direction or both, or are bad.

    unshare --net python -m tests.client.partitions [COUNT]      as root

Each member, and the election store, is in a network namespace of its own; the packets between them go through
`tests.integration.packet_router`, which loses or delays those of chosen pairs. Clients reach every member by links of
their own, which are never cut: so a master that goes on beside another one would be seen. With COUNT each kind happens
that often, else some of them happen once. Prints what happened, and fails as a test does.

Source: specification of replication, section 14, check 5.
"""

import os
import random
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Protocol

from tests.client.kills import SEED
from tests.client.replicated_load import SETTINGS, ReplicatedLoad
from tests.etcd_cluster import EtcdCluster, EtcdHost
from tests.integration.cluster import BrokerProcess
from tests.integration.linked_cluster import LinkedCluster
from tests.integration.replicated import LEASE
from tests.integration.replicated_register import ObservedCluster

ROOT: Final = Path(__file__).parents[2]
STORE: Final = "etcd"
CUT: Final = (1.0, 0.0)
LOSS: Final = (0.3, 0.0)
DELAY: Final = (0.0, 0.1)

Pair = tuple[str, str]
Rules = Mapping[Pair, tuple[float, float]]
"""By sender and receiver: the share that is lost, and seconds of delay."""


class CuttableCluster(Protocol):
    """A cluster whose links can be made bad."""

    def apply(self, rules: Rules) -> None:
        """Have these rules hold from now on, and no others."""
        ...


class PartitionKind:
    """What happens to the links of some hosts, of which the master and its follower are known only then."""

    def __init__(self, one: str, others: Sequence[str], direction: str, rule: tuple[float, float]) -> None:
        self.one = one
        self.others = others
        self.direction = direction
        self.rule = rule

    def __str__(self) -> str:
        what = {CUT: "cut", LOSS: "loss 30 %", DELAY: "delay 100 ms"}[self.rule]
        sign = {"forth": ">", "back": "<", "both": "|"}[self.direction]
        return f"{self.one} {sign} {' and '.join(self.others)}: {what}"

    def rules(self, names: Mapping[str, str]) -> Rules:
        """Return the rules, given the hosts' names by their parts."""
        forth = [(names[self.one], names[other]) for other in self.others]
        back = [(there, here) for here, there in forth]
        chosen = {"forth": forth, "back": back, "both": forth + back}[self.direction]
        return dict.fromkeys(chosen, self.rule)


GROUPS: Final = (
    ("master", ("follower",)),
    ("master", (STORE,)),
    ("follower", (STORE,)),
    ("master", ("follower", STORE)),
)
CUTS: Final = [PartitionKind(one, others, way, CUT) for one, others in GROUPS for way in ("forth", "back", "both")]
WEATHER: Final = [PartitionKind(one, others, "both", rule) for one, others in GROUPS for rule in (LOSS, DELAY)]


def some_kinds(chooser: random.Random) -> list[PartitionKind]:
    """Return a cut of each group, in a direction by chance, and a bad link."""
    found = [chooser.choice([kind for kind in CUTS if (kind.one, kind.others) == group]) for group in GROUPS]
    return [*found, chooser.choice(WEATHER)]


def disturb(
    cluster: ObservedCluster, links: CuttableCluster, load: ReplicatedLoad, kinds: Sequence[PartitionKind]
) -> None:
    """Let each kind happen for half a lease to three of them, and heal the links again.

    Args:
        cluster: of the members `a` and `b`.
        links: the same.
        load: on it, which goes on after each.
        kinds: the kinds, in their order.
    """
    chooser = random.Random(SEED)
    for kind in kinds:
        load.wait_received()
        cluster.wait_recorded("a", "b")
        master = cluster.wait_serving()
        names = {"master": master, "follower": "b" if master == "a" else "a", STORE: STORE}
        seconds = chooser.uniform(0.5, 3.0) * LEASE
        epoch, began = cluster.record()["epoch"], time.monotonic()
        links.apply(kind.rules(names))
        threading.Event().wait(seconds)
        links.apply({})
        healed = time.monotonic()
        load.wait_received()
        served = time.monotonic()
        cluster.wait_recorded("a", "b")
        change = cluster.record()["epoch"] - epoch
        print(
            f"{kind}: {healed - began:.1f} s, messages after {served - healed:.1f} s, in sync after "
            f"{time.monotonic() - healed:.1f} s, {'the same master' if not change else 'another epoch'}",
            flush=True,
        )


# ---------------------------------------------------------------- behind proxies


class ProxiedCluster(LinkedCluster):
    """Members behind proxies, for a machine without network namespaces: what is lost there arrives in the end."""

    def apply(self, rules: Rules) -> None:
        for one, other in (
            ("a", "b"),
            ("b", "a"),
            *((name, STORE) for name in "ab"),
            *((STORE, name) for name in "ab"),
        ):
            loss, delay = rules.get((one, other), (0.0, 0.0))
            if STORE in (one, other):
                link = self.to_store[one if other == STORE else other]
                ways = [link.forth if other == STORE else link.back]
            else:
                ways = [self.to_member[other].forth, self.to_member[one].back]
            for way in ways:
                # TCP repeats what was lost after a fifth of a second.
                way.delay = lambda loss=loss, delay=delay: delay + (0.2 if random.random() < loss else 0.0)  # type: ignore[misc]
                (way.stall if loss == 1.0 else way.flow)()


# ---------------------------------------------------------------- in network namespaces


class NamespacedHost:
    """A network namespace, with one link to the other hosts by the router, and one to the test."""

    def __init__(self, name: str, number: int, held: ExitStack) -> None:
        self.name = name
        self.address = f"10.77.0.{number}"
        self.seen_at = f"10.78.{number}.2"
        self._number = number
        holder = held.enter_context(
            subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; read end"], stdin=-1, stdout=-1)
        )
        held.callback(holder.kill)
        assert holder.stdout is not None
        holder.stdout.readline()  # it is in its namespace
        self._pid = holder.pid
        self.enter = ("nsenter", "--target", str(holder.pid), "--net")

    def connect(self) -> None:
        """Make the links; the router is there."""
        inside = " ".join(self.enter)
        _shell(
            f"ip link set tun-{self.name} netns {self._pid};"
            f"ip link add seen-{self.name} type veth peer name client netns {self._pid};"
            f"ip addr add 10.78.{self._number}.1/24 dev seen-{self.name}; ip link set seen-{self.name} up;"
            f"{inside} sh -ec 'ip link set lo up; ip addr add {self.seen_at}/24 dev client; ip link set client up;"
            f"ip addr add {self.address}/24 dev tun-{self.name}; ip link set tun-{self.name} mtu 9000 up'"
        )


def _shell(command: str) -> None:
    subprocess.run(["sh", "-ec", command], check=True)


class NamespacedBroker(BrokerProcess):
    """A broker in a namespace."""

    module = "pybroker.broker.app.cli"

    def __init__(self, store: str, *, enter: tuple[str, ...], name: str, port: int, extra: tuple[str, ...]) -> None:
        self.prefix = enter
        super().__init__(store, name=name, port=port, extra=extra)


class Router:
    """The process that moves packets between the hosts."""

    def __init__(self, hosts: Mapping[str, NamespacedHost], held: ExitStack) -> None:
        command = [sys.executable, "-m", "tests.integration.packet_router"]
        command += [f"{name}={host.address}" for name, host in hosts.items()]
        self._process = held.enter_context(subprocess.Popen(command, cwd=ROOT, stdin=-1, stdout=-1, text=True))
        held.callback(self._process.kill)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def apply(self, rules: Rules) -> None:
        """Return once these rules hold."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pairs = ",".join(f'"{one}>{other}": [{loss}, {delay}]' for (one, other), (loss, delay) in rules.items())
        self._process.stdin.write(f"{{{pairs}}}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "ok\n"


class NamespacedCluster(ObservedCluster):
    """Members in network namespaces."""

    def __init__(
        self, etcd: EtcdCluster, directory: Path, hosts: Mapping[str, NamespacedHost], router: Router, *extra: str
    ) -> None:
        self._hosts = hosts
        self._router = router
        secret = directory / "secret"
        secret.write_text(secrets.token_hex(32))
        secret.chmod(0o600)
        common = ("--bind", "0.0.0.0", "--anonymous", "everywhere", "--replicate-secret-file", str(secret))
        super().__init__(etcd, directory, "".join(name for name in hosts if name != STORE), *common, *extra)

    def host(self, name: str) -> str:
        return self._hosts[name].seen_at

    def stream(self, name: str) -> str:
        return f"{self._hosts[name].address}:{self._ports[name][2]}"

    def launch(self, name: str, port: int, extra: tuple[str, ...]) -> BrokerProcess:
        enter = self._hosts[name].enter
        return NamespacedBroker(str(self.store(name)), enter=enter, name=name, port=port, extra=extra)

    def apply(self, rules: Rules) -> None:
        self._router.apply(rules)


@contextmanager
def namespaced_cluster(directory: Path, *extra: str) -> Iterator[NamespacedCluster]:
    """Start hosts, router, etcd and members, in the namespace of this process."""
    with ExitStack() as held:
        _shell("ip link set lo up")
        hosts = {name: NamespacedHost(name, number, held) for number, name in enumerate(("a", "b", STORE), 1)}
        router = Router(hosts, held)
        for host in hosts.values():
            host.connect()
        there = hosts[STORE]
        etcd = EtcdCluster(host=EtcdHost(there.address, there.seen_at, there.enter))
        held.callback(etcd.remove)
        yield held.enter_context(NamespacedCluster(etcd, directory, hosts, router, *extra))


def main(count: str = "0") -> None:
    """Run the program."""
    chooser = random.Random(SEED)
    kinds = [*CUTS, *WEATHER] * int(count) if int(count) else some_kinds(chooser)
    chooser.shuffle(kinds)
    with (
        tempfile.TemporaryDirectory(prefix="pybroker-partitions-") as directory,
        namespaced_cluster(Path(directory), *SETTINGS) as cluster,
        ReplicatedLoad(cluster) as load,
    ):
        disturb(cluster, cluster, load, kinds)
        load.finish("partitions", len(kinds))


if __name__ == "__main__":
    os.chdir(ROOT)
    main(*sys.argv[1:])
