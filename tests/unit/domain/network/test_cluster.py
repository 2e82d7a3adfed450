"""The peers whose addresses clients get: each once, without those that have departed, and by their names."""

from collections.abc import Callable

import pytest

from pybroker.broker.domain.network.cluster import (
    GRACE_SECONDS,
    PEERS_MAX,
    ClusterFilter,
    ClusterPeers,
    addresses_of,
)

ALL = ClusterFilter("")


class Timers:
    """Timers that elapse at the test's command."""

    def __init__(self) -> None:
        self.waiting: dict[int, Callable[[], None]] = {}
        self.seconds: list[float] = []

    def after(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        number = len(self.seconds)
        self.seconds.append(seconds)
        self.waiting[number] = callback

        def cancel() -> None:
            self.waiting.pop(number, None)

        return cancel

    def elapse(self) -> None:
        waiting, self.waiting = self.waiting, {}
        for callback in waiting.values():
            callback()


class World:
    """Peers, their timers, and the number of changes."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.peers = ClusterPeers(self.timers.after)
        self.change_count = 0
        self.peers.watch(self._changed)

    def _changed(self) -> None:
        self.change_count += 1

    def names(self, *, with_departed: bool = False, names: str = "") -> list[str]:
        return [each.name for each in self.peers.known(ClusterFilter(names), with_departed=with_departed)]


def test_departed_peer_that_is_forgotten_before_it_departs_again() -> None:
    """Its second bridge had no valid address, so that it stayed departed, and was forgotten while it was absent."""
    world = World()
    world.peers.joined("ID:b", "b", "tcp://b:1")
    world.peers.left("ID:b")
    world.timers.elapse()
    with pytest.raises(ValueError, match="is no address"):
        world.peers.joined("ID:b", "b", "nonsense")
    world.peers.left("ID:b")
    for number in range(PEERS_MAX):
        world.peers.joined(f"ID:{number}", f"n{number}", f"tcp://n:{number}")
    assert "b" not in world.names(with_departed=True)
    world.timers.elapse()
    assert len(world.names(with_departed=True)) == PEERS_MAX


def test_peer_with_ten_bridge_restarts_is_kept_once() -> None:
    world = World()
    for _ in range(10):
        world.peers.joined("ID:b", "b", "tcp://b:1")
        world.peers.left("ID:b")
    assert world.names() == ["b"]
    assert world.change_count == 1


def test_peer_departs_only_after_the_grace_time() -> None:
    world = World()
    world.peers.joined("ID:b", "b", "tcp://b:1")
    world.peers.left("ID:b")
    assert world.names() == ["b"]
    assert world.timers.seconds == [GRACE_SECONDS]
    world.timers.elapse()
    assert world.names() == []
    assert world.names(with_departed=True) == ["b"]
    assert world.change_count == 2


def test_peer_that_returns_in_time_does_not_depart() -> None:
    world = World()
    world.peers.joined("ID:b", "b", "tcp://b:1")
    world.peers.left("ID:b")
    world.peers.joined("ID:b", "b", "tcp://b:1")
    world.timers.elapse()
    assert world.names() == ["b"]
    assert world.change_count == 1


def test_peer_that_returns_later_is_present_again() -> None:
    world = World()
    world.peers.joined("ID:b", "b", "tcp://b:1")
    world.peers.left("ID:b")
    world.timers.elapse()
    world.peers.joined("ID:b", "b", "tcp://b:1")
    assert world.names() == ["b"]
    assert world.change_count == 3


def test_peer_with_two_bridges_stays_when_one_is_lost() -> None:
    world = World()
    world.peers.joined("ID:b", "b", "tcp://b:1")
    world.peers.joined("ID:b", "b", "tcp://b:1")
    world.peers.left("ID:b")
    assert world.timers.waiting == {}
    world.peers.left("ID:b")
    world.timers.elapse()
    assert world.names() == []


def test_peer_with_another_address_is_a_change() -> None:
    world = World()
    world.peers.joined("ID:b", "b", "tcp://b1:1")
    world.peers.left("ID:b")
    world.peers.joined("ID:b", "b", "tcp://b2:1")
    assert [each.addresses for each in world.peers.known(ALL, with_departed=False)] == [("tcp://b2:1",)]
    assert world.change_count == 2


def test_bridge_with_an_invalid_address_adds_no_peer() -> None:
    world = World()
    with pytest.raises(ValueError, match="is no address"):
        world.peers.joined("ID:b", "b", "b:1")
    world.peers.left("ID:b")
    assert world.names(with_departed=True) == []
    assert world.change_count == 0
    assert world.timers.waiting == {}


def test_end_of_an_unknown_bridge_changes_nothing() -> None:
    world = World()
    world.peers.left("ID:b")
    assert world.timers.waiting == {}


def test_departed_peers_are_forgotten_beyond_the_limit() -> None:
    world = World()
    for number in range(PEERS_MAX + 5):
        world.peers.joined(f"ID:{number}", f"n{number}", "tcp://b:1")
        world.peers.left(f"ID:{number}")
        world.timers.elapse()
    names = world.names(with_departed=True)
    assert len(names) == PEERS_MAX
    assert names[-1] == f"n{PEERS_MAX + 4}"
    assert "n0" not in names


@pytest.mark.parametrize(
    ("text", "admitted"),
    [
        ("", ["east1", "east2", "west1"]),
        ("east.*", ["east1", "east2"]),
        ("east1, west.", ["east1", "west1"]),
        ("east", []),
    ],
)
def test_filter_matches_whole_names_with_any_expression(text: str, admitted: list[str]) -> None:
    world = World()
    for name in ("east1", "east2", "west1"):
        world.peers.joined(f"ID:{name}", name, f"tcp://{name}:1")
    assert world.names(names=text) == admitted


def test_filter_that_is_no_expression_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a \( without its \)"):
        ClusterFilter("a(")


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("tcp://a:61616", ("tcp://a:61616",)),
        ("tcp://a:61616, ssl://b:61617", ("tcp://a:61616", "ssl://b:61617")),
        ("failover:(tcp://a:1,tcp://b:1)?randomize=false", ("tcp://a:1", "tcp://b:1")),
        ("failover://(tcp://a:1,tcp://a:1)", ("tcp://a:1",)),
        ("auto+nio://[::1]:61616?wireFormat.maxFrameSize=9", ("auto+nio://[::1]:61616",)),
    ],
)
def test_url_of_one_broker_or_of_a_pair_is_read(url: str, addresses: tuple[str, ...]) -> None:
    assert addresses_of(url) == addresses


@pytest.mark.parametrize(
    "url",
    ["", "a:1", "tcp://", "tcp://a:1,", "failover:(failover:(tcp://a:1))", "tcp://a 1", "x" * 5000],
)
def test_url_without_addresses_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"is no address|characters"):
        addresses_of(url)


def test_url_with_too_many_addresses_is_refused() -> None:
    with pytest.raises(ValueError, match="33 addresses"):
        addresses_of(",".join(f"tcp://b{number}:1" for number in range(33)))
