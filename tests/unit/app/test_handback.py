"""Findings of `pybroker handback`, and the lines that it prints for activemq.xml."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from pybroker.broker.app.activemq_target import FRAME_BYTES, VERSIONS, BrokerElement, version, xml_lines
from pybroker.broker.app.handback import (
    DatabaseFacts,
    HandbackFacts,
    JournalFacts,
    Readiness,
    StoreContents,
    Urgency,
    commands,
    element,
    judge,
    readiness,
)
from pybroker.broker.domain.errors import ConfigError
from pybroker.store.journal.tools.findings import Finding, Level

ROOT = Path("/mnt/shared")
JOURNAL, SCHEDULER, OTHER = ROOT / "kahadb", ROOT / "scheduler", ROOT / "localhost" / "scheduler"
TODO, SETTING, NOTE = Urgency.TODO, Urgency.SETTING, Urgency.NOTE
CORE = "{http://activemq.apache.org/schema/core}"
BIG = FRAME_BYTES


def of_directory(contents: dict[str, Any] | None = None, **place: Any) -> HandbackFacts:
    given: dict[str, Any] = {"root": ROOT, "journal": JOURNAL, "scheduler": SCHEDULER} | place
    return facts(JournalFacts(**given), contents)


def of_database(contents: dict[str, Any] | None = None, **place: Any) -> HandbackFacts:
    return facts(DatabaseFacts(name="db:5432/mq", **place), contents)


def facts(place: JournalFacts | DatabaseFacts, contents: dict[str, Any] | None) -> HandbackFacts:
    return HandbackFacts(
        store=str(ROOT),
        broker_name="localhost",
        target=version("5.17"),
        contents=StoreContents(**(contents or {})),
        place=place,
    )


def in_journal(kind: str, level: Level, remedy: str = "remedy") -> dict[str, Any]:
    finding = Finding(
        level=level,
        kind=kind,
        path="db-1.log",
        offset=7,
        what="what",
        activemq="loses it",
        pybroker="nothing",
        remedy=remedy,
    )
    return {"findings": [finding]}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (of_directory(), (NOTE, "version")),
        (of_directory(), (NOTE, "records")),
        (of_directory(), (NOTE, "index")),
        (of_directory({"in_doubt": ["XA:1"]}), (NOTE, "in doubt")),
        (of_directory({"scheduling": 1}), (TODO, "scheduling queue")),
        (of_directory({"scheduling_in_doubt": 1}), (TODO, "scheduling in doubt")),
        (of_directory({"refused": ["c:s (NOT i > 5)"]}), (TODO, "selectors")),
        (of_directory({"empty_queues": ["Consumer.a.VirtualTopic.X"]}), (SETTING, "empty queues")),
        (of_directory({"has_priorities": True}), (SETTING, "priorities")),
        (of_directory({"largest_bytes": BIG}), (SETTING, "large messages")),
        (of_directory({"owned": 2}), (NOTE, "owners")),
        (of_directory(**in_journal("damaged batch", Level.DAMAGE)), (TODO, "damaged batch")),
        (of_directory(**in_journal("newer record", Level.DAMAGE)), (TODO, "newer record")),
        (of_directory(**in_journal("updates", Level.HAZARD)), (TODO, "updates")),
        (of_directory(**in_journal("torn tail", Level.NOTICE)), (NOTE, "torn tail")),
        (of_directory(stale_indexes=[JOURNAL / "db.data"]), (TODO, "index")),
        (of_directory(own_indexes=[JOURNAL / "db.data"]), (NOTE, "index")),
        (of_directory(jobs={SCHEDULER: 3}), (SETTING, "scheduled messages")),
        (of_directory(jobs={SCHEDULER: 0, OTHER: 3}), (SETTING, "scheduled messages")),
        (of_directory(jobs={SCHEDULER: 1, OTHER: 3}), (TODO, "other scheduled messages")),
        (of_directory(own_files=[JOURNAL / "pybroker.index"]), (NOTE, "own files")),
        (of_directory(is_excluded=False), (NOTE, "lock")),
        (of_directory(foreign_owner="pybroker", activemq_user="activemq"), (TODO, "owner")),
        (of_database(jobs=1), (TODO, "scheduled messages")),
        (of_database(scheduler=OTHER, exported_jobs=1), (SETTING, "scheduled messages")),
        (of_database(apart=1), (TODO, "acknowledged apart")),
        (of_database(unmarked=1), (TODO, "in doubt without rows")),
        (of_database(no_local=1), (NOTE, "noLocal")),
        (of_database({"has_priorities": True}, has_priority_key=False), (TODO, "key")),
        (of_database(own_tables=["pybroker_epoch"]), (NOTE, "own tables")),
        (of_database({"in_doubt": ["XA:1"]}), (NOTE, "JAXB")),
        (of_database(lock="postgres-advisory"), (NOTE, "lock")),
    ],
)
def test_each_fact_has_its_finding(given: HandbackFacts, expected: tuple[Urgency, str]) -> None:
    findings = judge(given)
    assert expected in [(each.urgency, each.kind) for each in findings]
    assert readiness(findings) is (Readiness.TODO if expected[0] is TODO else Readiness.READY)


@pytest.mark.parametrize("given", [of_directory(), of_database()])
def test_a_plain_store_has_notes_alone(given: HandbackFacts) -> None:
    assert {each.urgency for each in judge(given)} == {NOTE}


def test_findings_of_the_journal_that_are_told_otherwise_are_not_repeated() -> None:
    given = of_directory({"in_doubt": ["XA:1"]}, **in_journal("in doubt", Level.NOTICE))
    assert [each.kind for each in judge(given)].count("in doubt") == 1
    assert "leftovers" not in [each.kind for each in judge(of_directory(**in_journal("leftovers", Level.NOTICE)))]


def test_updates_are_compacted_since_activemq_gets_no_index() -> None:
    (found,) = [each for each in judge(of_directory(**in_journal("updates", Level.HAZARD))) if each.urgency is TODO]
    assert "compact" in found.remedy


def test_the_most_urgent_comes_first_and_what_is_accepted_is_a_note() -> None:
    given = of_directory({"scheduling": 1, "has_priorities": True})
    order = [each.urgency for each in judge(given)]
    assert order[:2] == [TODO, SETTING]
    assert set(order[2:]) == {NOTE}
    findings = judge(given, ["scheduling queue"])
    assert readiness(findings) is Readiness.READY
    assert "scheduling queue" in [each.kind for each in findings]


def test_a_store_in_use_has_a_note() -> None:
    findings = judge(replace(of_directory(), is_in_use=True))
    assert "in use" in [each.kind for each in findings]
    assert readiness(findings) is Readiness.READY


def test_an_untried_version_says_so() -> None:
    given = replace(of_directory(), target=version("6.1"))
    (found,) = [each for each in judge(given) if each.kind == "version"]
    assert "no ActiveMQ 6.1 has opened" in found.what
    assert "copy" in found.remedy


def test_versions_are_known_by_their_line() -> None:
    assert version("5.17.6") is VERSIONS["5.17"]
    assert version("5.17").tried == "5.17.2"
    assert [version(f"{line}.9").java for line in ("5.15", "5.18", "6.1")] == [8, 11, 17]
    with pytest.raises(ConfigError, match=r"--activemq-version: nothing is known of ActiveMQ 4\.1; known are 5\.15, "):
        version("4.1")


# ---------------------------------------------------------------- activemq.xml


def broker_of(given: HandbackFacts) -> ElementTree.Element:
    """Return the element of the report, which has to be XML."""
    return ElementTree.fromstring("".join(xml_lines(element(given))))


def test_the_journal_is_named() -> None:
    broker = broker_of(of_directory())
    assert broker.tag == f"{CORE}broker"
    assert broker.attrib == {"brokerName": "localhost"}
    (journal,) = broker.iter(f"{CORE}kahaDB")
    assert journal.attrib == {"directory": str(JOURNAL)}


def test_all_settings_are_in_the_lines() -> None:
    contents = {"empty_queues": ["Consumer.<a>.X"], "has_priorities": True, "largest_bytes": BIG}
    given = of_directory(contents, jobs={SCHEDULER: 1}, attributes={"archiveDataLogs": "true"})
    broker = broker_of(given)
    assert broker.get("schedulerSupport") == "true"
    assert broker.get("schedulerDirectory") == str(SCHEDULER)
    assert [each.attrib for each in broker.iter(f"{CORE}policyEntry")] == [
        {"queue": ">", "prioritizedMessages": "true"}
    ]
    assert [each.get("physicalName") for each in broker.iter(f"{CORE}queue")] == ["Consumer.<a>.X"]
    assert [each.get("archiveDataLogs") for each in broker.iter(f"{CORE}kahaDB")] == ["true"]
    (connector,) = broker.iter(f"{CORE}transportConnector")
    assert connector.get("uri") == f"tcp://0.0.0.0:61616?wireFormat.maxFrameSize={BIG + (1 << 20)}"


def test_the_directory_with_scheduled_messages_is_named() -> None:
    assert broker_of(of_directory(jobs={SCHEDULER: 0, OTHER: 3})).get("schedulerDirectory") == str(OTHER)
    assert broker_of(of_directory(jobs={SCHEDULER: 1, OTHER: 3})).get("schedulerDirectory") == str(SCHEDULER)
    assert broker_of(of_directory(jobs={SCHEDULER: 0})).get("schedulerSupport") is None


def test_a_database_has_a_data_source_without_a_password() -> None:
    lines = "".join(xml_lines(element(of_database())))
    both = ElementTree.fromstring(f"<beans>{lines}</beans>")
    (source,) = both.iter("bean")
    values = {each.get("name"): each.get("value") for each in source}
    assert values["url"] == "jdbc:postgresql://db:5432/mq"
    assert values["password"] == "${database.password}"
    (adapter,) = both.iter(f"{CORE}jdbcPersistenceAdapter")
    assert adapter.get("dataSource") == f"#{source.get('id')}"
    assert not list(adapter)


def test_a_lease_stays_a_lease() -> None:
    lines = "".join(xml_lines(element(of_database(lock="postgres-lease", lease_ms=9000))))
    both = ElementTree.fromstring(f"<beans>{lines}</beans>")
    (locker,) = both.iter(f"{CORE}lease-database-locker")
    assert locker.get("lockAcquireSleepInterval") == "9000"
    (adapter,) = both.iter(f"{CORE}jdbcPersistenceAdapter")
    assert adapter.get("lockKeepAlivePeriod") == "4500"


def test_files_of_another_user_are_given_to_activemqs() -> None:
    given = of_directory(foreign_owner="pybroker", activemq_user="activemq", jobs={SCHEDULER: 1})
    assert commands(given)[0] == f"chown -R activemq: {JOURNAL} {SCHEDULER}"
    assert commands(of_directory()) == ["bin/activemq console xbean:file:/etc/activemq/activemq.xml"]


def test_names_are_escaped() -> None:
    lines = xml_lines(BrokerElement(broker_name='a"<&', journal=Path("/a&b")))
    assert ElementTree.fromstring("".join(lines)).get("brokerName") == 'a"<&'
