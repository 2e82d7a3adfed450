"""The judgement of `moving_clients`: each fault of a lane is found, and what a failover explains is none."""

import pytest

from tests.java.moving_clients import LaneRecord, Span

SECOND = 1_000_000_000
OUTAGE, LATER = (100 * SECOND, 200 * SECOND), (400 * SECOND, 500 * SECOND)


def faults(*events: str, producer: Span = LATER, unmarked: tuple[Span, ...] = ()) -> list[str]:
    """Return the faults of a lane whose consumer lost its connection at `OUTAGE`; events begin with seconds."""
    lane = LaneRecord()
    for event in events:
        moment, word, *rest = event.split()
        lane.record(round(float(moment) * SECOND), word, rest)
    return list(lane.faults({"producer": [producer], "consumer": [OUTAGE]}, unmarked))


SENT = ("10 confirmed 1 1", "11 confirmed 2 2")


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        ([*SENT, "20 received 1 false"], "lost: [2]"),
        ([*SENT, "20 received 2 false", "21 received 1 true"], "1 came after 2"),
        (["10 doubt 1 5", "20 received 1 false"], "a part of a transaction: {1} of range(1, 6)"),
        (
            [*SENT[:1], "20 received 1 false", "30 acknowledged 1", "210 received 1 true"],
            "1 came again, after its acknowledgement was confirmed",
        ),
        ([*SENT[:1], "20 received 1 false", "210 received 1 false"], "1 came again, unmarked"),
        ([*SENT[:1], "220 received 1 false", "230 again 1", "240 received 1 false"], "1 came again, unmarked"),
    ],
    ids=["lost", "order", "transaction", "acknowledged", "unmarked", "rolled back"],
)
def test_a_fault_is_found(events: list[str], fault: str) -> None:
    [found] = faults(*events)
    assert found.startswith(fault)


def test_redelivery_in_a_failover_is_no_fault() -> None:
    events = (*SENT, "20 received 1 false", "21 received 2 false", "22 again 2", "210 received 2 true")
    assert faults(*events, "220 acknowledged 2", "221 acknowledged 1") == []
    assert faults(SENT[0], "20 received 1 false", "205 acknowledged 1", "210 received 1 true") == []


@pytest.mark.parametrize(("acknowledged", "count"), [("99.96", 0), ("99.9", 1)])
def test_an_interruption_may_be_reported_late(acknowledged: str, count: int) -> None:
    events = (SENT[0], "20 received 1 false", f"{acknowledged} acknowledged 1", "210 received 1 true")
    assert len(faults(*events)) == count


def test_a_broker_that_does_not_mark_is_allowed_its_failover_alone() -> None:
    events = (SENT[0], "20 received 1 false", "210 received 1 false")
    assert faults(*events, unmarked=(OUTAGE,)) == []
    assert faults(*events, unmarked=(LATER,)) == ["1 came again, unmarked"]


def test_a_send_without_its_answer_may_be_delivered_twice() -> None:
    events = (
        "90 confirmed 1 1",
        "95 received 2 false",
        "96 acknowledged 2",
        "210 received 2 false",
        "215 confirmed 2 2",
    )
    assert faults("91 received 1 false", *events, producer=OUTAGE) == []
    came_again, unmarked = faults("91 received 1 false", *events)
    assert came_again.startswith("2 came again, after its acknowledgement was confirmed")
    assert unmarked == "2 came again, unmarked"
