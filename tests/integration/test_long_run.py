"""The long run: its clients do what they count, and its slope is that of memory over work."""

from pathlib import Path

import pytest

from benchmarks.long_run import STREAMS, Ports, Sample, cycle_work, message_work, run_round, slope
from benchmarks.side_by_side.brokers import start_pybroker
from benchmarks.side_by_side.rows import Protocol


def test_a_round_of_cycles_and_messages_reaches_the_broker(tmp_path: Path) -> None:
    with start_pybroker(tmp_path, Protocol.OPENWIRE) as broker:
        broker.wait_until_listening()
        ports = Ports(openwire=broker.ports[Protocol.OPENWIRE], stomp=broker.ports[Protocol.STOMP])
        assert run_round(cycle_work(12), ports, together=6) == 12
        assert run_round(message_work(1), ports, together=6) == 500 * len(STREAMS)


def test_a_round_fails_with_its_clients(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with start_pybroker(tmp_path, Protocol.STOMP) as broker:
        broker.wait_until_listening()
        port = broker.ports[Protocol.STOMP]
        with pytest.raises(RuntimeError, match="a client failed"):
            run_round(cycle_work(2)[:1], Ports(openwire=port, stomp=port), together=1)
    assert "ConnectionError" in capfd.readouterr().err


def test_slope_is_growth_per_unit_of_work() -> None:
    samples = [Sample(done=done, rss_mb=50 + done / 1000, journal_mb=0, rate=1) for done in (1000, 2000, 3000)]
    assert slope(samples, 100_000) == pytest.approx(100)
    assert slope(samples[:1], 100_000) == 0
