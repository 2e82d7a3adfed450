# mypy: disable-error-code="arg-type"
"""A replay without its broker: it remembers, it holds back, and it reports what it cannot send."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, encode
from pybroker.broker.domain.openwire.values import Short, encode_map

pytest.importorskip("pyspark", reason="Spark is not installed; pip install 'pybroker[spark]'")

from pybroker.spark_jobs.replay import REPLAY_OF, Ledger, Pace, Repeated, main, repeated

Q = queue("Q")
NOW = 1_790_000_000_000


def stored(kind: MessageType, content: bytes | None = None, **fields: int) -> bytes:
    message_id = OpenWireMessageId(None, ProducerId("ID:a-1-2-3:4", 1, 1), 7)
    properties = encode_map({"small": Short(3)})
    message = OpenWireMessage(
        type=kind, content=content, marshalled_properties=properties, message_id=message_id, **fields
    )
    message.destination = Q
    return encode(message)


def test_a_message_keeps_its_type_its_properties_and_its_name() -> None:
    message = repeated(Q, "m", stored(MessageType.TEXT, encode_text("hällo"), priority=7), NOW)

    assert message is not None
    assert message.body == "hällo"
    assert message.headers["priority"] == 7
    properties = message.headers["properties"]
    assert properties == {"small": 3, REPLAY_OF: "m"}
    assert type(properties["small"]) is Short


@pytest.mark.parametrize(
    ("kind", "content", "body"),
    [
        (MessageType.BYTES, b"\x00\xff", b"\x00\xff"),
        (MessageType.MAP, encode_map({"n": 1}), {"n": 1}),
        (MessageType.MESSAGE, None, None),
    ],
)
def test_bodies_are_what_they_were(kind: MessageType, content: bytes | None, body: object) -> None:
    message = repeated(Q, "m", stored(kind, content), NOW)

    assert message is not None
    assert message.body == body


@pytest.mark.parametrize("data", [b"", b"\x1c", stored(MessageType.OBJECT, b"x"), stored(MessageType.TEXT, b"\x00")])
def test_what_cannot_be_sent_is_left(data: bytes) -> None:
    assert repeated(Q, "m", data, NOW) is None


def test_an_expiration_that_has_passed_is_left_out() -> None:
    late, early = (repeated(Q, "m", stored(MessageType.MESSAGE, expiration=each), NOW) for each in (NOW + 1, NOW - 1))

    assert late is not None
    assert early is not None
    assert late.headers["expiration"] == NOW + 1
    assert "expiration" not in early.headers


def test_ledger_lists_sends_without_a_torn_last_line(tmp_path: Path) -> None:
    one, two, elsewhere = (Repeated(each, name, None, {}) for each, name in ((Q, "1"), (Q, "2"), (queue("R"), "1")))
    book = Ledger(tmp_path / "sent")
    book.record([one])
    with book.path.open("a") as file:
        file.write("queue://Q\t2")

    again = Ledger(book.path)

    assert one in again
    assert two not in again
    assert elsewhere not in again
    again.record([two])
    assert two in Ledger(book.path)
    assert book.path.read_text() == "queue://Q\t1\nqueue://Q\t2\n"


def test_a_pace_holds_back_and_does_not_catch_up() -> None:
    now, slept = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(10, clock=lambda: now[0], sleep=sleep)
    pace.wait(5)
    pace.wait(5)
    now[0] = 9.0
    pace.wait(5)
    pace.wait(5)

    assert slept == [0.5, 0.5]


def test_no_rate_is_no_pace() -> None:
    def sleep(_: float) -> None:
        raise AssertionError("there is nothing to wait for")

    pace = Pace(None, clock=lambda: 0.0, sleep=sleep)
    pace.wait(1000)
    pace.wait(1000)


@pytest.mark.parametrize("rate", ["nan", "inf", "0", "-1"])
def test_rate_outside_its_range_is_refused(tmp_path: Path, rate: str) -> None:
    done = CliRunner().invoke(main, [str(tmp_path), "tcp://127.0.0.1:1", "--rate", rate])
    assert done.exit_code == 2
    assert f"Invalid value for '--rate': it must be above 0 and at most 1000000; given was {rate}\n" in done.output
