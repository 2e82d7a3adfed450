# mypy: disable-error-code="arg-type"
"""Composite destinations in STOMP headers."""

import pytest

from pybroker.broker.domain.destination import PARTS_MAX, Destination, DestinationType, parts, queue, topic
from pybroker.broker.domain.errors import RequestError
from pybroker.transports.stomp.destinations import DestinationNames


class Connection:
    """Makes temporary destinations."""

    def __init__(self) -> None:
        self.made = 0

    def create_temporary(self, kind: DestinationType) -> Destination:
        self.made += 1
        return Destination(kind, f"ID:x:{self.made}")


@pytest.fixture
def names() -> DestinationNames:
    return DestinationNames(Connection(), temporaries_max=2)


@pytest.mark.parametrize(
    ("text", "destination", "listed"),
    [
        ("/queue/A,/queue/B", queue("A,queue://B"), [queue("A"), queue("B")]),
        ("/queue/A,/topic/B", queue("A,topic://B"), [queue("A"), topic("B")]),
        ("/topic/A,/topic/B,/queue/C", topic("A,topic://B,queue://C"), [topic("A"), topic("B"), queue("C")]),
        ("A,B", queue("A,queue://B"), [queue("A"), queue("B")]),
        ("/topic/A,B", topic("A,queue://B"), [topic("A"), queue("B")]),
        (" /queue/A , /queue/B ", queue("A,queue://B"), [queue("A"), queue("B")]),
        ("/queue/A,,/queue/A,", queue("A"), [queue("A")]),
        ("/queue/A?x=1,/queue/B", queue("A,queue://B"), [queue("A"), queue("B")]),
        ("/topic/A.>,/topic/*", topic("A.>,topic://*"), [topic("A.>"), topic("*")]),
        (
            "/queue/A,/remote-temp-queue/ID:y:1",
            queue("A,temp-queue://ID:y:1"),
            [queue("A"), Destination(DestinationType.TEMP_QUEUE, "ID:y:1")],
        ),
    ],
)
def test_a_composite_is_named_as_activemq_names_it(
    names: DestinationNames, text: str, destination: Destination, listed: list[Destination]
) -> None:
    assert names.parse(text) == names.parse(text) == destination
    assert list(parts(destination)) == listed


def test_its_temporary_parts_are_made_once(names: DestinationNames) -> None:
    own = names.parse("/temp-queue/replies")
    assert parts(names.parse("/temp-queue/replies,/queue/A")) == (own, queue("A"))
    assert parts(names.parse("/queue/A,/temp-queue/replies")) == (queue("A"), own)


def test_composite_is_written_as_activemq_writes_it(names: DestinationNames) -> None:
    assert names.write(names.parse("/queue/c17a,/queue/c17b")) == "/queue/c17a,queue://c17b"


@pytest.mark.parametrize(
    "text", [",", " , ", "/queue/A,/queue/", ",".join(f"/queue/{n}" for n in range(PARTS_MAX + 1))]
)
def test_unusable_composites_are_refused(names: DestinationNames, text: str) -> None:
    with pytest.raises(RequestError):
        names.parse(text)
