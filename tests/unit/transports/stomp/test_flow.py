# mypy: disable-error-code="arg-type"
"""Deliveries pause at the first reason and go on after the last."""

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


def test_resume_without_reason_does_nothing() -> None:
    connection = Connection()
    flow = flow_over(connection)
    flow.resume(BackpressureReason.LINK)
    assert connection.calls == []


def test_resume_of_last_reason_resumes_connection() -> None:
    connection = Connection()
    flow = flow_over(connection)
    flow.pause(BackpressureReason.LINK)
    flow.pause(BackpressureReason.RECEIPT)
    flow.resume(BackpressureReason.LINK)
    assert "resume" not in connection.calls
    flow.resume(BackpressureReason.RECEIPT)
    assert connection.calls[-1] == "resume"


def test_attach_with_reason_pauses_connection() -> None:
    flow, connection = Flow(), Connection()
    flow.pause(BackpressureReason.LINK)
    flow.attach(connection)
    assert connection.calls == ["pause"]


def test_pause_during_resume_pauses_again() -> None:
    class Overflowing(Connection):
        def resume(self) -> None:
            super().resume()
            flow.pause(BackpressureReason.RECEIPT)

    connection = Overflowing()
    flow = flow_over(connection)
    flow.pause(BackpressureReason.LINK)
    flow.resume(BackpressureReason.LINK)
    assert connection.calls == ["pause", "resume", "pause"]
    flow.resume(BackpressureReason.LINK)
    assert connection.calls == ["pause", "resume", "pause"]
