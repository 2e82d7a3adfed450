"""What `pybroker doctor` concludes about bridges."""

from typing import Any

import pytest

from pybroker.broker.app.config import Config
from pybroker.broker.app.diagnosis import Diagnosis, Severity
from pybroker.broker.app.doctor import judge
from pybroker.broker.app.examination import Facts
from pybroker.broker.domain.role import Role
from pybroker.store.members import Load, StoreIdentity
from pybroker.transports.network import discovery
from pybroker.transports.network.probe import ProbeAnswer
from tests.unit.app.test_doctor import member

ERROR, WARNING, ADVICE = Severity.ERROR, Severity.WARNING, Severity.ADVICE

HUB = {"name": "to-hub", "uri": "static:(ssl://hub:61617)"}
TWIN = {"name": "to-b", "uri": "static:(ssl://b:61617)", "dynamically_included": ["queue://B"]}
FAR = ProbeAnswer(broker_id="ID:far", broker_name="far")
REFUSED = ProbeAnswer(problem="connection refused")
UNKNOWN = ProbeAnswer(problem="the host name hub has no address", is_resolved=False)
WAY = {"consumer_ttl": 2, "message_ttl": 2, "suppress_duplicate_queue_subscriptions": True}


def facts(
    *tables: dict[str, Any],
    answers: dict[str, ProbeAnswer] | None = None,
    load: Load | None = None,
    **settings: Any,
) -> Facts:
    config = Config(**({"store": "/mnt/s", "broker_name": "here", "network": list(tables)} | settings))
    probes = {
        (each.name, address): (answers or {}).get(address.host, ProbeAnswer(broker_id=address.host, broker_name="x"))
        for each in config.network
        for target in discovery.parse(each.uri)
        for address in target.addresses
    }
    master = member(
        "a", Role.MASTER, host="here", load=load, identity=StoreIdentity(broker_id="ID:own", journal_inode=1)
    )
    return Facts(config=config, host="here", probes=probes, members=[master], is_locked=True)


def findings(given: Facts) -> list[Diagnosis]:
    return [each for each in judge(given) if each.check in ("network", "bridges")]


def load(**fields: Any) -> Load:
    return Load(connections=1, waiting=1, in_flight=1, is_full=False, **fields)


def test_bridges_that_are_well_have_no_findings() -> None:
    assert findings(facts(HUB, TWIN, load=load(bridges=2, bridges_up=2, incoming=1))) == []


@pytest.mark.parametrize(
    ("attributes", "severity", "evidence"),
    [
        ({"message_ttl": 0}, ERROR, "with message_ttl = 0 it forwards nothing"),
        ({"consumer_ttl": 2}, WARNING, "demand comes from further away"),
        ({"consumer_ttl": -1, "message_ttl": 3}, WARNING, "demand comes from further away"),
        ({"static_bridge": True}, ERROR, "without statically_included forwards nothing"),
        ({"static_bridge": True, "statically_included": ["queue://A"], "dynamically_included": ["queue://B"]},
         WARNING, "dynamically_included has no effect"),
        ({"dynamically_included": ["queue://A.B"], "excluded": ["queue://A.>"]},
         WARNING, "queue://A.B is included, and excluded"),
        ({"user_name": "u"}, WARNING, "user_name = u has no password"),
        ({"remote_user_name": "u"}, WARNING, "remote_user_name = u has no remote_password"),
        ({"password": "secret"}, WARNING, "password has no user_name"),
        ({"remote_password": "secret"}, WARNING, "remote_password has no remote_user_name"),
        ({"uri": "tcp://hub:61616", "user_name": "u", "password": "secret"}, WARNING, "in clear to tcp://hub:61616"),
    ],
)  # fmt: skip
def test_each_finding_of_a_table(attributes: dict[str, Any], severity: Severity, evidence: str) -> None:
    (found,) = findings(facts(HUB | attributes))
    assert found.severity is severity
    assert found.evidence.startswith("to-hub: ")
    assert evidence in found.evidence
    assert "secret" not in found.evidence + found.remedy
    assert found.remedy


@pytest.mark.parametrize(
    "settings",
    [
        {"update_cluster_clients": True},
        {"listeners": [{"protocol": "openwire", "port": 1, "update_cluster_clients": True}]},
    ],
)
def test_bridge_that_carries_addresses_alone_is_well(settings: dict[str, Any]) -> None:
    assert findings(facts(HUB | {"static_bridge": True}, **settings)) == []


@pytest.mark.parametrize(
    "attributes",
    [
        {"user_name": "u", "password": "p"},
        {"user_name": "u", "remote_password": "p", "password": "q"},
        {"uri": "tcp://127.0.0.1:61617", "user_name": "u", "password": "p"},
        {"network_ttl": -1},
        {"consumer_ttl": 1, "message_ttl": 3},
        {"dynamically_included": ["queue://A.>"], "excluded": ["queue://A.B"]},
    ],
)
def test_tables_that_are_sound(attributes: dict[str, Any]) -> None:
    assert findings(facts(HUB | attributes)) == []


@pytest.mark.parametrize(
    ("attributes", "severity"),
    [
        ({"suppress_duplicate_queue_subscriptions": False}, ADVICE),
        ({"suppress_duplicate_topic_subscriptions": False}, WARNING),
    ],
)
def test_several_ways_to_a_consumer_multiply_demand(attributes: dict[str, Any], severity: Severity) -> None:
    (found,) = findings(facts(HUB | WAY | attributes, TWIN))
    assert found.severity is severity
    assert "with 2 bridges" in found.evidence
    assert findings(facts(HUB | WAY | attributes)) == []  # one way


def test_default_broker_name_is_a_finding() -> None:
    (found,) = findings(facts(HUB, broker_name="localhost"))
    assert "broker_name is localhost" in found.evidence
    assert findings(facts(broker_name="localhost")) == []


@pytest.mark.parametrize(
    ("uri", "answers", "evidence"),
    [
        ("static:(ssl://hub:1)", {"hub": REFUSED}, ["to-hub: ssl://hub:1: connection refused"]),
        ("static:(ssl://hub:1)", {"hub": UNKNOWN}, ["to-hub: ssl://hub:1: the host name hub has no address"]),
        ("masterslave:(ssl://hub:1,ssl://b:1)", {"hub": REFUSED, "b": FAR}, []),
        ("masterslave:(ssl://hub:1,ssl://b:1)", {"hub": UNKNOWN, "b": FAR},
         ["to-hub: ssl://hub:1: the host name hub has no address"]),
        ("masterslave:(ssl://hub:1,ssl://b:1)", {"hub": REFUSED, "b": REFUSED},
         ["to-hub: ssl://hub:1: connection refused", "to-hub: ssl://b:1: connection refused"]),
        ("static:(ssl://hub:1,ssl://b:1)", {"hub": FAR, "b": FAR},
         ["to-hub: ssl://hub:1 and ssl://b:1 are the same broker, far: its two bridges have one name there, and "
          "replace each other"]),
        ("static:(ssl://hub:1)", {"hub": ProbeAnswer(broker_id="ID:own", broker_name="here")},
         ["to-hub: ssl://hub:1 is this broker itself, or a member of its pair, to which a bridge is needless"]),
        ("static:(ssl://hub:1)", {"hub": ProbeAnswer(broker_id="ID:x", broker_name="here")},
         ["to-hub: the broker at ssl://hub:1 has the same broker_name as this one, here"]),
        ("static:(tcp://localhost:61616)", {"localhost": REFUSED},
         ["to-hub: tcp://localhost:61616 is this broker itself, or a member of its pair, to which a bridge is "
          "needless"]),
    ],
)  # fmt: skip
def test_each_finding_of_addresses(uri: str, answers: dict[str, ProbeAnswer], evidence: list[str]) -> None:
    assert [each.evidence for each in findings(facts(HUB | {"uri": uri}, answers=answers))] == evidence


def test_standby_of_the_own_pair_is_found_by_the_list_of_members() -> None:
    given = facts(
        HUB | {"uri": "static:(tcp://b:61616)"},
        answers={"b": REFUSED},
        openwire_brokers="tcp://a:61616,tcp://b:61616?x=1",
    )
    (found,) = findings(given)
    assert "a member of its pair" in found.evidence


def test_two_tables_for_one_broker_are_advice() -> None:
    (found,) = findings(facts(HUB, HUB | {"name": "again"}))
    assert (found.severity, found.evidence) == (
        ADVICE,
        "to-hub and again both lead to ssl://hub:61617: a consumer there counts once for each",
    )
    lists = [{"dynamically_included": [f"queue://{each}"]} for each in "AB"]
    assert findings(facts(HUB | lists[0], HUB | {"name": "again"} | lists[1])) == []


def test_bridges_that_are_down_have_their_reason_once() -> None:
    problem = "to-hub to ssl://hub:61617: waiting to connect again, connection refused"
    given = facts(HUB, answers={"hub": REFUSED}, load=load(bridges=3, bridges_up=1, bridge_problems=(problem,)))
    assert [each.evidence for each in findings(given)] == [problem, "1 further bridges are not up"]


def test_incoming_bridges_without_the_right_are_errors() -> None:
    given = facts(load=load(incoming=1, incoming_problems=("edge from d at 10.0.0.8:1: no right",)))
    (found,) = findings(given)
    assert (found.severity, found.evidence) == (ERROR, "edge from d at 10.0.0.8:1: no right")
