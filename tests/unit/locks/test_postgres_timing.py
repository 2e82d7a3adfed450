"""Order of timeouts: the old master first, then the database, whatever the lease."""

import math

import pytest

from pybroker.broker.app.config import load
from pybroker.broker.domain.errors import ConfigError
from pybroker.locks.postgres.timing import LEASE_SECONDS, LEASE_SECONDS_MIN, Timing

URL = "postgresql://u@h/d"
LEASES = [LEASE_SECONDS_MIN, 1.5, 3.0, LEASE_SECONDS, 10.0, 60.0, 3600.0]


@pytest.mark.parametrize("lease_seconds", LEASES)
def test_renewal_interval_allows_two_attempts(lease_seconds: float) -> None:
    timing = Timing.of(lease_seconds)
    assert timing.renew_seconds == lease_seconds / 3
    assert 2 * timing.renew_seconds < timing.hold_seconds


@pytest.mark.parametrize("lease_seconds", LEASES)
def test_master_gives_up_before_the_server_frees_its_lock(lease_seconds: float) -> None:
    timing = Timing.of(lease_seconds)
    settings = {name: value for name, value in timing.server_settings().items() if value.isdecimal()}
    keepalive = int(settings["tcp_keepalives_idle"])
    keepalive += int(settings["tcp_keepalives_count"]) * int(settings["tcp_keepalives_interval"])
    assert timing.hold_seconds < keepalive
    for name in ("tcp_user_timeout", "idle_in_transaction_session_timeout", "statement_timeout"):
        assert math.isclose(int(settings[name]) / 1000, lease_seconds)
        assert timing.hold_seconds < int(settings[name]) / 1000


def test_default_frees_a_cut_off_masters_lock_within_ten_seconds() -> None:
    """Keepalives come in steps, so the last step before the lease's end may be up to one interval late."""
    settings = Timing.of().server_settings()
    assert int(settings["idle_in_transaction_session_timeout"]) < 10_000
    assert int(settings["tcp_user_timeout"]) < 10_000


@pytest.mark.parametrize("renew_seconds", [4.6, 9.0, 30.0, 0.0, -1.0])
def test_renewal_that_is_not_well_below_the_lease_is_refused(renew_seconds: float) -> None:
    """ActiveMQ's own defaults, a lease of 10 s and a renewal every 30 s, are such a pair."""
    with pytest.raises(
        ConfigError, match=r"may run out in between; leave it out, which makes it 3s, or .* at most 4.5s"
    ):
        Timing.of(9.0, renew_seconds)


def test_lease_too_short_to_be_renewed_is_refused() -> None:
    with pytest.raises(ConfigError, match="too short to be renewed in time; write 1s or more"):
        Timing.of(0.9)


# ---------------------------------------------------------------- settings


def test_settings_of_a_lock_in_a_database() -> None:
    config = load(None, {"lock": "postgres-lease", "lock_url": URL, "lock_lease": "6s"}, {})
    assert (config.lock, config.lock_lease, config.lock_renew) == ("postgres-lease", 6.0, None)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"lock": "postgres-row"}, "lock = postgres-row needs a database: set lock_url"),
        ({"lock_url": URL}, "set lock to postgres-row, not file"),
        ({"lock": "flock", "lock_url": URL}, "set lock to postgres-row, not flock"),
        ({"lock": "postgres-row", "lock_url": "http://u:secret@h/d"}, "write postgresql://USER@HOST"),
        (
            {"lock": "postgres-lease", "lock_url": URL, "lock_lease": "9s", "lock_renew": "9s"},
            "lock_renew: a lease of 9 s",
        ),
        ({"lock": "postgres-lease", "lock_url": URL, "lock_lease": "0.5s"}, "lock-lease"),
    ],
)
def test_settings_that_contradict_each_other(flags: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, flags, {})
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_url_is_not_in_the_settings_as_they_are_printed() -> None:
    config = load(None, {"lock": "postgres-row", "lock_url": "postgresql://u:hunter2@h/d"}, {})
    assert "hunter2" not in repr(config)
