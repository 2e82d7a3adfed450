# mypy: disable-error-code="assignment"
"""The reconnector: the effect of each of ActiveMQ's failover options."""

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.client.conversation import Redirected
from pybroker.client.errors import UntrustedBroker
from pybroker.client.reconnect import Connect, GiveUp, Pause, ReadList, Reconnector, Step
from pybroker.client.uri import parse

REFUSED = ConnectionRefusedError("refused")
BROKEN = ConnectionResetError("broken")


def reconnector(query: str = "randomize=false", hosts: str = "abc", seed: int = 7) -> Reconnector:
    listed = ",".join(f"tcp://{host}:1" for host in hosts)
    return Reconnector(parse(f"failover:({listed})?{query}"), random.Random(seed))


def name(step: Step | None) -> str:
    assert isinstance(step, Connect), step
    return step.address.host


def fail_round(subject: Reconnector, size: int = 3) -> str:
    """Let every broker of a round fail; return their names in order. A pause before them is an error."""
    tried = ""
    for _ in range(size):
        tried += name(subject.next_step())
        subject.failed(REFUSED)
    return tried


def pause(subject: Reconnector) -> float:
    step = subject.next_step()
    assert isinstance(step, Pause), step
    return step.seconds


def connect(subject: Reconnector, now: float = 0.0) -> str:
    """Connect to the next broker, and return its host."""
    step = subject.next_step()
    while isinstance(step, Pause):
        step = subject.next_step()
    host = name(step)
    subject.connected(now)
    return host


def lose(subject: Reconnector, now: float = 0.0) -> None:
    subject.lost(BROKEN, now)


# ---------------------------------------------------------------- rounds and pauses


def test_the_first_connection_begins_at_once_in_the_uris_order() -> None:
    assert fail_round(reconnector()) == "abc"


def test_pauses_grow_from_round_to_round_up_to_the_maximum() -> None:
    subject = reconnector("randomize=false&initialReconnectDelay=100&maxReconnectDelay=500")
    pauses = []
    for _ in range(5):
        fail_round(subject)
        pauses.append(pause(subject))
    assert pauses == [0.1, 0.2, 0.4, 0.5, 0.5]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("initialReconnectDelay=0", [0.01, 0.02, 0.04]),
        ("initialReconnectDelay=0&useExponentialBackOff=false", [0.01, 0.01, 0.01]),
        ("initialReconnectDelay=0&maxReconnectDelay=0", [0.01, 0.01, 0.01]),
    ],
)
def test_without_a_delay_rounds_are_a_little_apart(query: str, expected: list[float]) -> None:
    subject = reconnector(f"randomize=false&{query}")
    pauses = []
    for _ in range(3):
        fail_round(subject)
        pauses.append(pause(subject))
    assert pauses == expected


UNTRUSTED = UntrustedBroker("expired")


def test_one_final_failure_leaves_the_other_brokers() -> None:
    subject = reconnector(hosts="ab")
    connect(subject)
    lose(subject)
    pause(subject)
    assert name(subject.next_step()) == "b"
    subject.failed(UNTRUSTED, is_final=True)
    assert name(subject.next_step()) == "a"
    subject.failed(REFUSED)
    pause(subject)
    assert name(subject.next_step()) == "b", "it goes on: one broker may come back"


def test_a_round_of_final_failures_ends_the_attempts() -> None:
    subject = reconnector(hosts="ab")
    connect(subject)
    lose(subject)
    pause(subject)
    for _ in "ab":
        name(subject.next_step())
        subject.failed(UNTRUSTED, is_final=True)
    assert subject.next_step() == GiveUp(1, UNTRUSTED, is_final=True)


def test_a_first_round_with_a_final_failure_is_the_last() -> None:
    """The standby of a pair never answers, so the wrong certificate of the master would be tried without end."""
    subject = reconnector(hosts="ab")
    assert name(subject.next_step()) == "a"
    subject.failed(UNTRUSTED, is_final=True)
    assert name(subject.next_step()) == "b"
    subject.failed(REFUSED)
    assert subject.next_step() == GiveUp(1, UNTRUSTED, is_final=True)


def test_a_report_names_each_broker_and_its_failure() -> None:
    subject = reconnector(hosts="ab")
    subject.next_step()
    assert subject.report() == "tcp://a:1: no answer yet"
    subject.failed(UntrustedBroker("tcp://a:1: expired"))
    subject.next_step()
    assert subject.report() == "tcp://a:1: expired; tcp://b:1: no answer yet"
    subject.failed(REFUSED)
    assert subject.report() == "tcp://a:1: expired; tcp://b:1: refused"
    pause(subject)
    name(subject.next_step())
    subject.connected(0.0)
    assert subject.report() == ""


def test_defaults_are_10_ms_doubling_to_30_seconds() -> None:
    subject = reconnector()
    pauses = []
    for _ in range(14):
        fail_round(subject)
        pauses.append(pause(subject))
    assert pauses[:4] == [0.01, 0.02, 0.04, 0.08]
    assert pauses[-2:] == [30, 30]


@pytest.mark.parametrize("option", ["reconnectDelayExponent", "backOffMultiplier"])
def test_the_exponent_is_what_pauses_are_multiplied_by(option: str) -> None:
    subject = reconnector(f"{option}=3")
    pauses = []
    for _ in range(3):
        fail_round(subject)
        pauses.append(pause(subject))
    assert pauses == pytest.approx([0.01, 0.03, 0.09])


def test_without_exponential_back_off_every_pause_is_the_first() -> None:
    subject = reconnector("useExponentialBackOff=false&initialReconnectDelay=50")
    for _ in range(5):
        fail_round(subject)
        assert pause(subject) == 0.05


def test_pauses_after_a_loss_grow_from_the_initial_one() -> None:
    subject = reconnector()
    connect(subject)
    lose(subject)
    assert pause(subject) == 0.01
    fail_round(subject)
    assert pause(subject) == 0.02


def test_a_connection_resets_pauses_and_counts() -> None:
    subject = reconnector("maxReconnectAttempts=3")
    for _ in range(2):
        fail_round(subject)
        pause(subject)
    connect(subject)
    lose(subject)
    assert pause(subject) == 0.01
    fail_round(subject)
    fail_round_after_pause(subject)
    assert not isinstance(subject.next_step(), GiveUp)


def fail_round_after_pause(subject: Reconnector, size: int = 3) -> str:
    pause(subject)
    return fail_round(subject, size)


def test_the_broker_that_was_lost_is_tried_last() -> None:
    subject = reconnector()
    assert connect(subject) == "a"
    lose(subject)
    assert fail_round_after_pause(subject) == "bca"


def test_randomize_reorders_the_addresses_every_round() -> None:
    subject = reconnector("randomize=true", hosts="abcdef")
    rounds = [fail_round(subject, 6)] + [fail_round_after_pause(subject, 6) for _ in range(9)]
    assert len(set(rounds)) > 5
    assert {"".join(sorted(each)) for each in rounds} == {"abcdef"}


def test_randomize_is_the_default_and_false_keeps_the_uris_order() -> None:
    assert len({fail_round(reconnector("", hosts="abcdef", seed=seed), 6) for seed in range(10)}) > 5
    assert {fail_round(reconnector(seed=seed)) for seed in range(10)} == {"abc"}


# ---------------------------------------------------------------- limits


def test_max_reconnect_attempts_counts_rounds() -> None:
    subject = reconnector("maxReconnectAttempts=2")
    fail_round(subject)
    fail_round_after_pause(subject)
    assert subject.next_step() == GiveUp(2, REFUSED)
    assert subject.next_step() == GiveUp(2, REFUSED), "it stays so"


def test_no_reconnect_attempts_means_one_connection_only() -> None:
    subject = reconnector("maxReconnectAttempts=0")
    fail_round(subject)
    assert subject.next_step() == GiveUp(1, REFUSED)
    subject = reconnector("maxReconnectAttempts=0")
    connect(subject)
    lose(subject)
    assert subject.next_step() == GiveUp(0, BROKEN)


def test_without_a_limit_it_never_gives_up() -> None:
    subject = reconnector()
    fail_round(subject)
    for _ in range(200):
        fail_round_after_pause(subject)


def test_the_startup_limit_is_for_the_first_connection_only() -> None:
    subject = reconnector("startupMaxReconnectAttempts=1&maxReconnectAttempts=3")
    fail_round(subject)
    assert subject.next_step() == GiveUp(1, REFUSED)
    subject = reconnector("startupMaxReconnectAttempts=1&maxReconnectAttempts=3")
    connect(subject)
    lose(subject)
    for _ in range(3):
        fail_round_after_pause(subject)
    assert subject.next_step() == GiveUp(3, REFUSED)


def test_a_uri_without_failover_does_not_reconnect() -> None:
    for is_connected, rounds in ((False, 1), (True, 0)):
        subject = Reconnector(parse("tcp://a:1"), random.Random(1))
        assert name(subject.next_step()) == "a"
        if is_connected:
            subject.connected(0.0)
            lose(subject)
        else:
            subject.failed(REFUSED)
        step = subject.next_step()
        assert isinstance(step, GiveUp)
        assert step.rounds == rounds


# ---------------------------------------------------------------- warnings


def warnings(query: str, rounds: int = 10) -> list[int]:
    """Return the failed rounds after which there is a warning."""
    subject = reconnector(query)
    warned = []
    for number in range(1, rounds + 1):
        fail_round(subject)
        step = subject.next_step()
        assert isinstance(step, Pause)
        if step.warning is not None:
            assert all(f"tcp://{host}:1: refused" in step.warning for host in "abc")
            assert "refused" in step.warning
            warned.append(number)
    return warned


@pytest.mark.parametrize(
    ("query", "warned"),
    [
        ("randomize=false", [1, 10]),
        ("warnAfterReconnectAttempts=3", [1, 3, 6, 9]),
        ("warnAfterReconnectAttempts=0", []),
        ("warnAfterReconnectAttempts=-1", []),
    ],
)
def test_warnings_follow_the_first_and_each_nth_failed_round(query: str, warned: list[int]) -> None:
    assert warnings(query) == warned


# ---------------------------------------------------------------- announced brokers


def test_a_broker_adds_others_which_are_tried_first() -> None:
    subject = reconnector()
    connect(subject)
    assert not subject.redirected(Redirected(("tcp://d:1", "tcp://b:1")))
    lose(subject)
    assert fail_round_after_pause(subject, 4) == "dbca"


def test_the_next_list_replaces_the_last() -> None:
    subject = reconnector()
    connect(subject)
    subject.redirected(Redirected(("tcp://d:1",)))
    subject.redirected(Redirected(("tcp://e:1",)))
    lose(subject)
    assert fail_round_after_pause(subject, 4) == "ebca"


def test_an_empty_list_changes_nothing() -> None:
    subject = reconnector()
    connect(subject)
    subject.redirected(Redirected(("tcp://d:1",)))
    assert not subject.redirected(Redirected((), "", rebalance=True))
    lose(subject)
    assert fail_round_after_pause(subject, 4) == "dbca"


def test_lists_are_ignored_without_update_uris_supported() -> None:
    subject = reconnector("randomize=false&updateURIsSupported=false")
    connect(subject)
    assert not subject.redirected(Redirected(("tcp://d:1",), rebalance=True))
    lose(subject)
    assert fail_round_after_pause(subject) == "bca"


def test_rebalancing_moves_to_the_first_broker_of_the_list() -> None:
    subject = reconnector()
    assert connect(subject) == "a"
    assert subject.redirected(Redirected(("tcp://d:1",), rebalance=True))
    lose(subject)
    assert connect(subject) == "d"
    assert not subject.redirected(Redirected(("tcp://d:1", "tcp://e:1"), rebalance=True))


def test_unusable_announced_brokers_are_skipped_with_a_warning() -> None:
    subject = reconnector()
    connect(subject)
    subject.redirected(Redirected(("vm://x", "stomp://s:1", "tcp://d:1")))
    assert len(subject.warnings) == 1
    lose(subject)
    assert fail_round_after_pause(subject, 4) == "dbca"


def test_the_uris_own_warnings_are_to_be_logged_too() -> None:
    subject = Reconnector(parse("failover:(nio://a:1)"), random.Random(1))
    assert len(subject.warnings) == 1
    assert "taken as tcp:" in subject.warnings[0]


def test_announced_brokers_have_nested_options() -> None:
    subject = reconnector("randomize=false&nested.keepAlive=true")
    connect(subject)
    subject.redirected(Redirected(("tcp://d:1",)))
    lose(subject)
    pause(subject)
    step = subject.next_step()
    assert isinstance(step, Connect)
    assert step.address.options.keep_alive


def test_a_redirected_client_tries_the_new_broker_first() -> None:
    subject = reconnector()
    connect(subject)
    assert subject.redirected(Redirected(reconnect_to="tcp://z:1"))
    lose(subject)
    assert fail_round_after_pause(subject, 4) == "zbca"


def test_a_redirected_client_keeps_the_brokers_of_its_uri() -> None:
    subject = reconnector()
    connect(subject)
    subject.redirected(Redirected(("tcp://d:1",)))
    subject.redirected(Redirected(reconnect_to="tcp://z:1"))
    lose(subject)
    assert connect(subject) == "z"
    lose(subject)
    assert fail_round_after_pause(subject, 5) == "dabcz"


def test_a_client_without_failover_ignores_announcements() -> None:
    subject = Reconnector(parse("tcp://a:1"), random.Random(1))
    connect(subject)
    assert not subject.redirected(Redirected(("tcp://d:1",), "tcp://z:1", rebalance=True))
    lose(subject)
    assert isinstance(subject.next_step(), GiveUp)


def test_a_list_during_the_login_moves_once_connected() -> None:
    subject = reconnector()
    subject.next_step()
    assert not subject.redirected(Redirected(("tcp://d:1", "tcp://a:1"), rebalance=True))
    assert subject.connected(0.0)
    lose(subject)
    assert connect(subject) == "d"


def test_a_list_during_a_login_that_fails_is_dropped() -> None:
    subject = reconnector()
    subject.next_step()
    subject.redirected(Redirected(("tcp://d:1",), rebalance=True))
    subject.failed(REFUSED)
    assert name(subject.next_step()) == "b"
    assert not subject.connected(0.0)
    lose(subject)
    assert fail_round_after_pause(subject) == "acb"


def test_rebalancing_does_not_leave_a_broker_for_its_other_name() -> None:
    subject = reconnector()
    connect(subject)
    alias = Redirected(("tcp://a.example:1", "tcp://d:1"), "", rebalance=True, sender="tcp://a.example:1")
    assert not subject.redirected(alias)
    other = Redirected(("tcp://d:1", "tcp://a.example:1", "tcp://e:1"), "", rebalance=True, sender="tcp://a.example:1")
    assert subject.redirected(other)


def test_rebalancing_does_not_leave_a_pair_for_its_standby() -> None:
    subject = reconnector()
    connect(subject)
    pair = "tcp://standby:1,tcp://a:1"
    assert not subject.redirected(Redirected((*pair.split(","), "tcp://d:1"), "", rebalance=True, sender=pair))


@pytest.mark.parametrize("hosts", ["b", "ab", "dab"])
def test_ten_clients_of_one_broker_are_spread(hosts: str) -> None:
    stay = 0
    for seed in range(10):
        subject = reconnector("", hosts, seed=seed)
        at = connect(subject)
        announced = ("tcp://a:1", "tcp://b:1", "tcp://d:1")
        stay += not subject.redirected(Redirected(announced, rebalance=True))
        if subject.current is not None and subject.current.host == at:
            lose(subject)
            assert connect(subject) in ("a", "b", "d")
    assert 1 <= stay <= 7


def test_a_client_at_the_requested_broker_does_not_move() -> None:
    subject = reconnector()
    connect(subject)
    assert not subject.redirected(Redirected(reconnect_to="tcp://a:1"))


def test_reconnect_supported_false_stays() -> None:
    subject = reconnector("randomize=false&reconnectSupported=false")
    connect(subject)
    assert not subject.redirected(Redirected(reconnect_to="tcp://z:1"))


def test_moving_needs_no_attempts_to_be_left() -> None:
    subject = reconnector("randomize=false&maxReconnectAttempts=0")
    connect(subject)
    assert subject.redirected(Redirected(reconnect_to="tcp://z:1"))
    lose(subject)
    assert connect(subject) == "z"


def test_a_file_with_brokers_is_read_before_each_round() -> None:
    subject = reconnector("randomize=false&updateURIsURL=/etc/brokers")
    assert subject.next_step() == ReadList("/etc/brokers")
    subject.list_read("tcp://d:1,\ntcp://e:1\n")
    assert fail_round(subject, 5) == "deabc"
    pause(subject)
    assert subject.next_step() == ReadList("/etc/brokers")
    assert fail_round(subject, 5) == "deabc", "not being readable changes nothing"


def test_a_file_moves_the_client_if_rebalancing_is_on() -> None:
    for query, moves in (("", True), ("&rebalanceUpdateURIs=false", False)):
        subject = reconnector(f"randomize=false&updateURIsURL=/etc/brokers{query}")
        subject.next_step()
        connect(subject)
        assert subject.list_read("tcp://d:1") is moves


# ---------------------------------------------------------------- backups


def test_no_backups_are_opened_by_default() -> None:
    subject = reconnector()
    connect(subject)
    assert subject.backup_step(0.0) is None


def test_the_backup_pool_size_limits_the_backups() -> None:
    subject = reconnector("randomize=false&backup=true&backupPoolSize=2", hosts="abcd")
    assert subject.backup_step(0.0) is None, "the connection itself comes first"
    assert connect(subject) == "a"
    for host in "bc":
        step = subject.backup_step(0.0)
        assert isinstance(step, Connect)
        assert (name(step), step.is_backup) == (host, True)
        assert not subject.backup_ready(step.address)
    assert subject.backup_step(0.0) is None


def test_the_default_pool_has_space_for_one() -> None:
    subject = reconnector("randomize=false&backup=true")
    connect(subject)
    subject.backup_ready(connected_backup(subject))
    assert subject.backup_step(0.0) is None


def connected_backup(subject: Reconnector, now: float = 0.0):
    step = subject.backup_step(now)
    assert isinstance(step, Connect), step
    return step.address


def test_a_backup_is_used_at_once_after_a_loss() -> None:
    subject = reconnector("randomize=false&backup=true&initialReconnectDelay=5000")
    connect(subject)
    backup = connected_backup(subject)
    subject.backup_ready(backup)
    lose(subject)
    assert subject.next_step() == Connect(backup, is_backup=True)
    subject.connected(0.0)
    assert subject.current == backup


def test_a_failed_backup_is_followed_by_a_round() -> None:
    subject = reconnector("randomize=false&backup=true")
    connect(subject)
    subject.backup_ready(connected_backup(subject))
    lose(subject)
    assert fail_round(subject, 4) == "bbca"
    assert pause(subject) == 0.01
    assert name(subject.next_step()) == "b", "there is no backup any more"


def test_pauses_between_searches_for_backups_grow() -> None:
    subject = reconnector("randomize=false&backup=true")
    connect(subject)
    for _ in range(2):
        connected_backup(subject)
        subject.backup_failed(10.0)
    step = subject.backup_step(10.0)
    assert isinstance(step, Pause)
    assert step.seconds == pytest.approx(0.01)
    for _ in range(2):
        connected_backup(subject, 10.02)
        subject.backup_failed(10.02)
    step = subject.backup_step(10.02)
    assert isinstance(step, Pause)
    assert step.seconds == pytest.approx(0.02)


def test_a_lost_backup_is_replaced() -> None:
    subject = reconnector("randomize=false&backup=true")
    connect(subject)
    backup = connected_backup(subject)
    subject.backup_ready(backup)
    subject.backup_lost(backup, 5.0)
    assert isinstance(subject.backup_step(5.0), Pause)
    assert connected_backup(subject, 5.02) == backup


# ---------------------------------------------------------------- preferred brokers


def test_the_first_broker_is_preferred_and_tried_first() -> None:
    for seed in range(5):
        assert fail_round(reconnector("priorityBackup=true", seed=seed))[0] == "a"


def test_preferred_brokers_may_be_named() -> None:
    for seed in range(5):
        tried = fail_round(reconnector("priorityBackup=true&priorityURIs=tcp://c:1,tcp://b:1", seed=seed))
        assert tried[2] == "a"


def test_a_client_returns_to_an_available_preferred_broker() -> None:
    subject = reconnector("randomize=false&priorityBackup=true")
    assert name(subject.next_step()) == "a"
    subject.failed(REFUSED)
    assert connect(subject) == "b"
    preferred = connected_backup(subject)
    assert preferred.host == "a"
    assert subject.backup_ready(preferred), "it should move"
    lose(subject)
    assert subject.next_step() == Connect(preferred, is_backup=True), "without a pause"
    subject.connected(1.0)
    assert subject.backup_step(1.0) is None, "there is nothing better"


SITE = ("tcp://a:1", "tcp://d:1")
"""The brokers of the site of broker a."""


def at_site(query: str = "priorityBackup=true", hosts: str = "ab", seed: int = 7) -> Reconnector:
    subject = reconnector(query, hosts, seed)
    assert connect(subject) == "a"
    return subject


def test_rebalancing_stays_within_the_announced_site() -> None:
    moved_to = set[str]()
    for seed in range(20):
        subject = at_site(seed=seed)
        if subject.redirected(Redirected(SITE, rebalance=True)):
            lose(subject)
            moved_to.add(connect(subject))
    assert moved_to == {"d"}


def test_rebalancing_moves_among_the_preferred_brokers_of_the_uri() -> None:
    subject = at_site("randomize=false&priorityBackup=true&priorityURIs=tcp://a:1,tcp://d:1", "ab")
    assert not subject.redirected(Redirected(("tcp://b:1", "tcp://a:1", "tcp://d:1"), rebalance=True))
    assert subject.redirected(Redirected(("tcp://c:1", "tcp://b:1", "tcp://d:1", "tcp://a:1"), rebalance=True))
    lose(subject)
    assert connect(subject) == "d"


def test_other_sites_are_tried_only_when_the_own_is_down() -> None:
    for seed in range(10):
        subject = at_site(seed=seed)
        subject.redirected(Redirected(SITE))
        lose(subject)
        assert fail_round_after_pause(subject, 3) in ("dba", "dab")


def test_a_client_returns_to_any_broker_of_its_site() -> None:
    returned_to = set[str]()
    for seed in range(20):
        subject = at_site(seed=seed)
        subject.redirected(Redirected(SITE))
        lose(subject)
        pause(subject)
        while name(subject.next_step()) != "b":
            subject.failed(REFUSED)
        subject.connected(0.0)
        assert not subject.redirected(Redirected(("tcp://b:1",), rebalance=True))
        preferred = connected_backup(subject, 1.0)
        assert subject.backup_ready(preferred)
        returned_to.add(preferred.host)
    assert returned_to == {"a", "d"}


def test_a_list_with_a_broker_of_another_site_is_no_site() -> None:
    subject = at_site("randomize=false&priorityBackup=true")
    subject.redirected(Redirected(SITE))
    assert not subject.redirected(Redirected(("tcp://d:1", "tcp://b:1", "tcp://a:1"), rebalance=True))
    lose(subject)
    assert connect(subject) == "d"
    assert connected_backup(subject, 1.0).host == "a", "it alone is preferred"


def test_a_client_with_preferred_brokers_alone_stays() -> None:
    subject = at_site("randomize=false&priorityBackup=true", "a")
    assert not subject.redirected(Redirected(("tcp://d:1", "tcp://a:1"), rebalance=True))


def test_another_site_does_not_become_preferred() -> None:
    subject = reconnector("randomize=false&priorityBackup=true", "ab")
    subject.next_step()
    subject.failed(REFUSED)
    assert connect(subject) == "b"
    assert subject.redirected(Redirected(("tcp://e:1", "tcp://b:1"), rebalance=True))
    lose(subject)
    assert connect(subject) == "e"
    assert connected_backup(subject).host == "a"


def test_without_priority_backup_a_client_does_not_move() -> None:
    subject = reconnector("randomize=false&backup=true")
    subject.next_step()
    subject.failed(REFUSED)
    assert connect(subject) == "b"
    assert not subject.backup_ready(connected_backup(subject))


def test_a_preferred_broker_outside_the_list_is_searched() -> None:
    subject = reconnector("randomize=false&priorityBackup=true&priorityURIs=tcp://z:1")
    connect(subject)
    assert connected_backup(subject).host == "z"


def test_without_backup_only_preferred_brokers_are_searched() -> None:
    subject = reconnector("randomize=false&priorityBackup=true")
    subject.next_step()
    subject.failed(REFUSED)
    connect(subject)
    assert connected_backup(subject).host == "a"
    subject.backup_failed(0.0)
    assert isinstance(subject.backup_step(0.0), Pause)


def test_returns_to_an_unstable_preferred_broker_become_rarer() -> None:
    subject = reconnector("randomize=false&priorityBackup=true&initialReconnectDelay=10&maxReconnectDelay=8000", "ab")
    now, moves = 0.0, []
    connect(subject, now)
    while now < 60:  # a takes the connection and drops it a millisecond later, for ever
        lose(subject, now := now + 0.001)
        assert connect(subject, now) == "b"
        step = subject.backup_step(now)
        while isinstance(step, Pause):
            step = subject.backup_step(now := now + step.seconds)
        assert isinstance(step, Connect)
        assert subject.backup_ready(step.address)
        lose(subject, now)
        assert connect(subject, now) == "a"
        moves.append(now)
    gaps = [later - earlier for earlier, later in pairwise(moves)]
    assert all(later >= earlier - 0.001 for earlier, later in pairwise(gaps))
    assert gaps[-1] == pytest.approx(8, abs=0.1)
    assert len(moves) < 20


def test_the_return_to_a_stable_preferred_broker_is_immediate() -> None:
    subject = reconnector("randomize=false&priorityBackup=true&maxReconnectDelay=1000", "ab")
    for _ in range(10):  # it flaps until the pauses are as long as they get
        connect(subject, 0.0)
        lose(subject, 0.0)
        assert connect(subject, 0.0) == "b"
        subject.backup_ready(connected_backup(subject, 100.0))
        lose(subject, 0.0)
    connect(subject, 0.0)
    lose(subject, 1.5)  # it stayed for longer than the maximum
    assert connect(subject, 1.5) == "b"
    assert isinstance(subject.backup_step(1.5), Connect)


# ---------------------------------------------------------------- whatever happens


EVENTS = st.lists(
    st.sampled_from(["ok", "fail", "lose", "backup ok", "backup fail", "backup lost", "announced", "sent"])
)


@given(EVENTS, st.sampled_from(["", "backup=true&backupPoolSize=3", "priorityBackup=true", "maxReconnectAttempts=4"]))
def test_any_events_leave_a_next_step_and_valid_pauses(events: Sequence[str], query: str) -> None:
    subject, now, backup = reconnector(query), 0.0, None
    for event in events:
        now += 0.5
        if subject.current is None:
            step = subject.next_step()
            while isinstance(step, Pause):
                assert 0 <= step.seconds <= 30
                step = subject.next_step()
            if isinstance(step, GiveUp):
                return
            assert isinstance(step, Connect)
            if event == "ok":
                subject.connected(now)
                assert subject.current == step.address
            else:
                subject.failed(REFUSED)
            continue
        match event:
            case "lose":
                lose(subject, now)
            case "announced":
                if subject.redirected(Redirected(("tcp://d:1",), rebalance=True)):
                    lose(subject, now)
            case "sent":
                if subject.redirected(Redirected(reconnect_to="tcp://e:1")):
                    lose(subject, now)
            case "backup lost" if backup is not None:
                subject.backup_lost(backup, now)
                backup = None
            case "backup ok" | "backup fail":
                step = subject.backup_step(now)
                if isinstance(step, Connect):
                    assert step.address != subject.current
                    if event == "backup fail":
                        subject.backup_failed(now)
                    elif subject.backup_ready(step.address):
                        lose(subject, now)
                    backup = step.address
            case _:
                pass
