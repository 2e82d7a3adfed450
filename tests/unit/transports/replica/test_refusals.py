"""The log of peers that are refused as followers, by a clock of its own."""

import pytest

from pybroker.transports.replica.refusals import AGAIN_SECONDS, KNOWN_MAX, RefusalLog

SECRET = "the other side has another secret"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_peer_that_is_refused_again_and_again_is_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    log = RefusalLog(clock)
    for port in range(100):
        log.refused(f"10.0.0.2:{40_000 + port}", SECRET)
        clock.now += AGAIN_SECONDS / 60
    assert caplog.messages == [
        f"10.0.0.2:40000: refused as a follower: {SECRET}",
        f"10.0.0.2:40060: refused as a follower: {SECRET} (59 more since the last such line)",
    ]


def test_other_addresses_and_reasons_are_lines_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    log = RefusalLog(Clock())
    for peer, reason in (("10.0.0.2:1", SECRET), ("10.0.0.3:1", SECRET), ("10.0.0.2:2", "no HELLO came")):
        log.refused(peer, reason)
    assert len(caplog.messages) == 3


def test_no_more_is_remembered_than_has_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    log = RefusalLog(Clock())
    for number in range(KNOWN_MAX + 1):
        log.refused("10.0.0.2:1", f"reason {number}")
    log.refused("10.0.0.2:1", "reason 0")  # forgotten
    log.refused("10.0.0.2:1", f"reason {KNOWN_MAX}")  # known
    assert len(caplog.messages) == KNOWN_MAX + 2
