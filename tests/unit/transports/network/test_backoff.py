"""The delays between the attempts of a bridge."""

import pytest

from pybroker.transports.network.backoff import BackOff, BridgeDelays


def test_delays_of_failures_double_up_to_the_maximum() -> None:
    back_off = BackOff(BridgeDelays())
    assert [back_off.after(0.1) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert back_off.failure_count == 7


def test_long_run_starts_over_with_the_initial_delay() -> None:
    back_off = BackOff(BridgeDelays())
    for _ in range(3):
        back_off.after(0)
    assert back_off.after(5) == 1
    assert back_off.failure_count == 0
    assert [back_off.after(0), back_off.after(0)] == [1, 2]


def test_without_exponential_back_off_the_delay_stays() -> None:
    back_off = BackOff(BridgeDelays(use_exponential_back_off=False, initial_reconnect_delay_seconds=0.5))
    assert [back_off.after(0) for _ in range(3)] == [0.5, 0.5, 0.5]


def test_limit_of_attempts_ends_the_attempts() -> None:
    back_off = BackOff(BridgeDelays(max_reconnect_attempts=2))
    assert [back_off.after(0), back_off.after(0)] == [1, None]


@pytest.mark.parametrize("lived", [0, 10])
def test_initial_delay_above_the_maximum_is_cut(lived: float) -> None:
    delays = BridgeDelays(initial_reconnect_delay_seconds=9, max_reconnect_delay_seconds=3)
    assert BackOff(delays).after(lived) == 3
