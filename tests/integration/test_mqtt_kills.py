"""Masters are killed under MQTT publishers with QoS 1 and 2, and a subscriber whose session lasts.

Whatever PUBACK or PUBREC has confirmed must come. With QoS 1 it may come twice; with QoS 2 only if a master was killed
between the two, for a publisher or the subscriber. `PYBROKER_KILLS` and `PYBROKER_SEED` change the number of kills,
and repeat a run.
"""

import os
import random
from pathlib import Path

import pytest

from tests.integration.kill_load import Account, ProtocolPair, Reigns, kill_master, stop, wait
from tests.integration.mqtt_kills import Publisher, Subscriber
from tests.soundness import assert_sound

KILLS = int(os.environ.get("PYBROKER_KILLS", "5"))
SEED = int(os.environ.get("PYBROKER_SEED", str(random.SystemRandom().randrange(1 << 32))))
CONFIRMED_BETWEEN_KILLS = 400
ONCE = ["once0", "once1"]
"""The publishers with QoS 2."""

pytestmark = pytest.mark.timeout(120 + 10 * KILLS)


def test_nothing_confirmed_is_lost_and_qos_2_comes_once(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    account, reigns, chooser = Account(), Reigns(), random.Random(SEED)
    with ProtocolPair(tmp_path, ["mqtt"]) as pair:
        ports = pair.ports_of("mqtt")
        filters = [("kills/least", 1), ("kills/once0", 2), ("kills/once1", 2)]
        subscriber = Subscriber(filters, ports, account, reigns, SEED)
        subscriber.start()
        wait(subscriber.is_subscribed.is_set, [subscriber])
        publishers = [
            Publisher(name, qos, ports, account, reigns, SEED)
            for name, qos in [("least", 1), *((name, 2) for name in ONCE)]
        ]
        for publisher in publishers:
            publisher.start()
        workers = [subscriber, *publishers]
        try:
            outages = [
                kill_master(
                    pair,
                    account,
                    reigns,
                    workers,
                    chooser.randrange(CONFIRMED_BETWEEN_KILLS // 2, CONFIRMED_BETWEEN_KILLS),
                )
                for _ in range(KILLS)
            ]
            stop(publishers, workers)
            wait(lambda: not account.lost(), workers)
            stop([subscriber], workers)
        finally:
            for worker in workers:
                worker.stopping.set()
    outages.sort()
    print(
        f"{KILLS} kills, {sum(worker.connections for worker in workers)} connections, {len(account.published)} "
        f"published, {len(account.confirmed)} confirmed, {len(account.lost())} lost; came more than once: "
        f"{account.doubled(['least'])} with QoS 1, {account.doubled(ONCE)} with QoS 2, {len(account.forbidden(ONCE))} "
        f"of them from one master; first confirmation after a kill: median {outages[len(outages) // 2] * 1000:.0f} ms, "
        f"max {outages[-1] * 1000:.0f} ms"
    )
    assert not account.forbidden(ONCE), f"seed {SEED}: {account.forbidden(ONCE)[:10]}"
    assert_sound(tmp_path)
