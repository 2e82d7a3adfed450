"""Masters are killed under AMQP senders with hundreds of unsettled durable messages, to two addresses.

Whatever was accepted must come. A message may come twice: without the mark of redelivery only if it was sent twice.
`PYBROKER_KILLS` and `PYBROKER_SEED` change the number of kills, and repeat a run.
"""

import os
import random
from pathlib import Path

import pytest

from tests.integration.amqp_kills import AmqpReceiver, AmqpSender
from tests.integration.kill_load import Account, ProtocolPair, Reigns, kill_master, stop, wait
from tests.soundness import assert_sound

KILLS = int(os.environ.get("PYBROKER_KILLS", "5"))
SEED = int(os.environ.get("PYBROKER_SEED", str(random.SystemRandom().randrange(1 << 32))))
CONFIRMED_BETWEEN_KILLS = 4000
ADDRESSES = {"s0": "queue://kills.first", "s1": "kills.second"}
"""The target addresses, by the name of the sender."""

pytestmark = pytest.mark.timeout(120 + 10 * KILLS)


def test_nothing_accepted_is_lost(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    account, reigns, chooser = Account(), Reigns(), random.Random(SEED)
    with ProtocolPair(tmp_path, ["amqp"], "--amqp-transformer", chooser.choice(["jms", "native"])) as pair:
        ports = pair.ports_of("amqp")
        receivers = [
            AmqpReceiver(f"receiver of {name}", address, ports, account, reigns, SEED)
            for name, address in ADDRESSES.items()
        ]
        senders = [AmqpSender(name, address, ports, account, reigns, SEED) for name, address in ADDRESSES.items()]
        workers = [*receivers, *senders]
        for worker in workers:
            worker.start()
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
            stop(senders, workers)
            wait(lambda: not account.lost(), workers)
            stop(receivers, workers)
        finally:
            for worker in workers:
                worker.stopping.set()
    outages.sort()
    print(
        f"{KILLS} kills, {sum(worker.connections for worker in workers)} connections, {len(account.published)} sent, "
        f"up to {max(sender.most_open for sender in senders)} unsettled on a link, {account.repeated()} sent more "
        f"than once; {len(account.confirmed)} accepted, {len(account.lost())} lost; {account.doubled(list(ADDRESSES))} "
        f"came more than once, {len(account.unmarked_again())} of them unmarked though sent once; first answer after a "
        f"kill: median {outages[len(outages) // 2] * 1000:.0f} ms, max {outages[-1] * 1000:.0f} ms"
    )
    assert len(account.confirmed) >= 2000 * KILLS
    assert not account.unmarked_again(), f"seed {SEED}: {account.unmarked_again()[:10]}"
    assert_sound(tmp_path)
