# mypy: disable-error-code="arg-type"
"""Deliveries pause at the first jam and go on after the last."""

from pybroker.transports.stomp.flow import BackpressureReason, Flow


class Connection:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def pause(self) -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")


def flow_over(connection: Connection) -> Flow:
    flow = Flow()
    flow.attach(connection)
    return flow


def test_clearing_what_is_clear_does_nothing() -> None:
    connection = Connection()
    flow = flow_over(connection)
    flow.clear(BackpressureReason.LINK)
    assert connection.calls == []


def test_only_the_last_jam_cleared_resumes() -> None:
    connection = Connection()
    flow = flow_over(connection)
    flow.jam(BackpressureReason.LINK)
    flow.jam(BackpressureReason.RECEIPT)
    flow.clear(BackpressureReason.LINK)
    assert "resume" not in connection.calls
    flow.clear(BackpressureReason.RECEIPT)
    assert connection.calls[-1] == "resume"


def test_a_jam_older_than_the_connection_pauses_it_from_the_start() -> None:
    flow, connection = Flow(), Connection()
    flow.jam(BackpressureReason.LINK)
    flow.attach(connection)
    assert connection.calls == ["pause"]


def test_a_jam_within_a_resumption_is_a_jam() -> None:
    class Overflowing(Connection):
        def resume(self) -> None:
            super().resume()
            flow.jam(BackpressureReason.RECEIPT)

    connection = Overflowing()
    flow = flow_over(connection)
    flow.jam(BackpressureReason.LINK)
    flow.clear(BackpressureReason.LINK)
    assert connection.calls == ["pause", "resume", "pause"]
    flow.clear(BackpressureReason.LINK)
    assert connection.calls == ["pause", "resume", "pause"]
