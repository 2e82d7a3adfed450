"""The findings of `pybroker doctor` about bridges: their tables, who answers at their addresses, and those that run."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, Protocol

from pybroker.broker.app.config import Config
from pybroker.broker.app.diagnosis import Diagnosis, advice, error, warning
from pybroker.broker.domain.addresses import is_loopback
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.permission import Permissions
from pybroker.store.members import Load
from pybroker.transports.network import discovery
from pybroker.transports.network.discovery import BridgeTarget, RemoteAddress
from pybroker.transports.network.probe import ProbeAnswer, ProbeKey

NETWORK: Final = "network"
"""The check of tables and addresses."""

BRIDGES: Final = "bridges"
"""The check of what runs."""

_OWN_NAME: Final = "give each broker of the network a broker_name of its own, and all members of a pair the same one"


class SeenNetwork(Protocol):
    """The facts that these findings are made of; see `examination.Facts`."""

    @property
    def config(self) -> Config:
        """The settings."""
        ...

    @property
    def host(self) -> str:
        """The name of this machine."""
        ...

    @property
    def probes(self) -> Mapping[ProbeKey, ProbeAnswer]:
        """The answers of the addresses."""
        ...

    @property
    def broker_ids(self) -> frozenset[str]:
        """The ids under which this broker is known."""
        ...


def of_tables(facts: SeenNetwork, loads: Sequence[Load]) -> Iterator[Diagnosis]:
    """Yield what is wrong with the tables `network`, and with what answers at their addresses.

    Args:
        facts: what was examined.
        loads: the loads of living masters: of a bridge that one of them reports as down, the reason is said there.
    """
    config = facts.config
    reported = {problem for load in loads for problem in load.bridge_problems}
    if config.network and config.broker_name == "localhost":
        yield warning(
            NETWORK,
            "broker_name is localhost, the default: brokers of one name replace each other's bridges",
            _OWN_NAME,
        )
    sends_addresses = any(each.cluster.update_clients for each in config.listeners)
    for each in config.network:
        yield from _of_table(each, sends_addresses=sends_addresses)
        yield from _of_login(each)
        yield from _of_ways(each, sum(len(discovery.parse(other.uri)) for other in config.network))
        yield from _of_addresses(facts, each, reported)
    yield from _of_shared_addresses(config.network)


def of_running(loads: Sequence[Load]) -> Iterator[Diagnosis]:
    """Yield the bridges of living masters that are not up, and those of other brokers that have no right to be ones."""
    for load in loads:
        for problem in load.bridge_problems:
            yield warning(BRIDGES, problem, "see the reason; `pybroker network` shows the next attempt")
        for problem in load.incoming_problems:
            yield error(BRIDGES, problem, "see the reason: its messages are refused, and wait at the other broker")
        if load.bridges - load.bridges_up > len(load.bridge_problems):
            left = load.bridges - load.bridges_up - len(load.bridge_problems)
            yield warning(BRIDGES, f"{left} further bridges are not up", "see `pybroker network`")


def _of_table(connector: NetworkConnector, *, sends_addresses: bool) -> Iterator[Diagnosis]:
    """Yield what is wrong with a table; `sends_addresses`: clients get those of the brokers that bridges lead to."""
    name = connector.name
    for attribute in ("consumer_ttl", "message_ttl"):
        if getattr(connector, attribute) == 0:
            yield error(NETWORK, f"{name}: with {attribute} = 0 it forwards nothing", "set it to 1 or more, or to -1")
    consumers, messages = connector.consumer_ttl, connector.message_ttl
    if messages > 0 and (consumers > messages or consumers < 0):
        yield warning(
            NETWORK,
            f"{name}: consumer_ttl = {consumers} and message_ttl = {messages}: demand comes from further away than "
            "messages may go, and these strand on the way",
            "set network_ttl, which is both",
        )
    if connector.static_bridge and not connector.statically_included and not sends_addresses:
        yield error(
            NETWORK,
            f"{name}: static_bridge without statically_included forwards nothing",
            "list destinations in statically_included, or leave static_bridge out; if it is for the addresses that "
            "clients get, set update_cluster_clients = true",
        )
    if connector.static_bridge and connector.dynamically_included:
        yield warning(
            NETWORK,
            f"{name}: dynamically_included has no effect with static_bridge",
            "leave one of them out",
        )
    permissions = Permissions(connector)
    for each in _listed(connector):
        if not permissions.admits(each):
            yield warning(
                NETWORK, f"{name}: {each} is included, and excluded, which comes first", "leave one of them out"
            )


def _listed(connector: NetworkConnector) -> Iterator[Destination]:
    return (each for each in (*connector.statically_included, *connector.dynamically_included) if not each.is_temporary)


def _of_login(connector: NetworkConnector) -> Iterator[Diagnosis]:
    name = connector.name
    for user, password in (("user_name", "password"), ("remote_user_name", "remote_password")):
        has_user, has_password = bool(getattr(connector, user)), bool(getattr(connector, password))
        if has_user and not has_password:
            given = getattr(connector, user)
            yield warning(
                NETWORK,
                f"{name}: {user} = {given} has no {password}: a broker with logins refuses it",
                f"set {password}, or leave {user} out for a bridge without a login",
            )
        elif has_password and not has_user and not (user == "remote_user_name" and connector.user_name):
            yield warning(NETWORK, f"{name}: {password} has no {user}", f"set {user}, or leave {password} out")
    if connector.remote_login[1] is not None:
        clear = [each for each in _addresses(connector) if not each.is_tls and not is_loopback(each.host)]
        if clear:
            yield warning(
                NETWORK,
                f"{name}: its password crosses the network in clear to {', '.join(map(str, clear))}",
                "write ssl:// and the port of a listener with TLS",
            )


def _of_ways(connector: NetworkConnector, ways: int) -> Iterator[Diagnosis]:
    """Yield what multiplies demand where several ways may lead to one consumer."""
    name = connector.name
    if ways < 2 or connector.consumer_ttl in (0, 1):
        return
    if not connector.suppress_duplicate_topic_subscriptions:
        yield warning(
            NETWORK,
            f"{name}: with {ways} bridges, consumer_ttl = {connector.consumer_ttl} and without "
            "suppress_duplicate_topic_subscriptions, each message of a topic goes every way to a consumer",
            "leave suppress_duplicate_topic_subscriptions at true",
        )
    if not connector.suppress_duplicate_queue_subscriptions:
        yield advice(
            NETWORK,
            f"{name}: with {ways} bridges and consumer_ttl = {connector.consumer_ttl}, a consumer of a queue that "
            "several ways lead to counts once for each, and gets more than its share",
            "set suppress_duplicate_queue_subscriptions = true, if the brokers are connected in a ring or a mesh",
        )


def _of_addresses(facts: SeenNetwork, connector: NetworkConnector, reported: set[str]) -> Iterator[Diagnosis]:
    name = connector.name
    brokers: dict[str, BridgeTarget] = {}
    targets = discovery.parse(connector.uri)
    for target in targets:
        own = [each for each in target.addresses if _is_own(facts, connector, each)]
        for each in own:
            yield error(
                NETWORK,
                f"{name}: {each} is this broker itself, or a member of its pair, to which a bridge is needless",
                "write the address of the other broker, or remove the table",
            )
        others = [each for each in target.addresses if each not in own]
        yield from _of_answers(facts, connector, others, is_reported=_is_reported(connector, target, reported))
        for each in others:
            answer = facts.probes.get((name, each))
            if answer is None or not answer.broker_id:
                continue
            first = brokers.setdefault(answer.broker_id, target)
            if first is not target:
                yield error(
                    NETWORK,
                    f"{name}: {first} and {target} are the same broker, {answer.broker_name}: its two bridges have one "
                    "name there, and replace each other",
                    "leave one of the addresses out; for the members of a pair write masterslave:(…)",
                )


def _is_reported(connector: NetworkConnector, target: BridgeTarget, reported: set[str]) -> bool:
    return any(problem.startswith(f"{connector.name} to {target}: ") for problem in reported)


def _is_own(facts: SeenNetwork, connector: NetworkConnector, address: RemoteAddress) -> bool:
    """Return True for an address of this broker: by its id, by a listener, or by its list of members."""
    answer = facts.probes.get((connector.name, address))
    if answer is not None and answer.broker_id:
        return answer.broker_id in facts.broker_ids
    config = facts.config
    is_here = is_loopback(address.host) or address.host == facts.host
    if is_here and any(each.port == address.port for each in config.listeners):
        return True
    members = (each.strip().partition("?")[0].rstrip("/") for each in config.openwire_brokers.split(","))
    return str(address) in members


def _of_answers(
    facts: SeenNetwork, connector: NetworkConnector, addresses: Sequence[RemoteAddress], *, is_reported: bool
) -> Iterator[Diagnosis]:
    """Yield the addresses of one bridge that cannot be used. Of a pair only the master answers, so one is enough."""
    name = connector.name
    answers = [(each, facts.probes[name, each]) for each in addresses if (name, each) in facts.probes]
    is_answered = any(answer.broker_id for _, answer in answers)
    for address, answer in answers:
        if not answer.is_resolved and not is_reported:
            yield warning(
                NETWORK, f"{name}: {address}: {answer.problem}", "correct the uri, or make the name known to this host"
            )
        elif answer.broker_name == facts.config.broker_name and answer.broker_id not in facts.broker_ids:
            yield error(
                NETWORK,
                f"{name}: the broker at {address} has the same broker_name as this one, {answer.broker_name}",
                _OWN_NAME,
            )
        elif answer.problem and not is_answered and not is_reported:
            yield warning(
                NETWORK,
                f"{name}: {address}: {answer.problem}",
                "start the broker there, correct the uri, or let this host through the firewall",
            )


def _of_shared_addresses(connectors: Sequence[NetworkConnector]) -> Iterator[Diagnosis]:
    for one, other in combinations(connectors, 2):
        shared = [str(each) for each in _addresses(one) if each in set(_addresses(other))]
        if shared and not (one.dynamically_included and other.dynamically_included):
            yield advice(
                NETWORK,
                f"{one.name} and {other.name} both lead to {', '.join(shared)}: a consumer there counts once for each",
                "remove one of the tables, or give each a dynamically_included list of its own",
            )


def _addresses(connector: NetworkConnector) -> list[RemoteAddress]:
    return [address for target in discovery.parse(connector.uri) for address in target.addresses]
