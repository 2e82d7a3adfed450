"""Masters are killed under producers and consumers of OpenWire, STOMP, AMQP and MQTT, with a queue of a virtual topic.

All publish to one topic. Consumers of three protocols share a queue that gets its messages; a session of MQTT gets them
from the topic. Whatever was confirmed must come to both, and to the queue's consumers it may come twice, without the
mark of redelivery, only if it was sent twice. `PYBROKER_KILL_SECONDS` and `PYBROKER_SEED` change how long it takes, and
repeat a run.
"""

import os
import random
import time
from pathlib import Path

import pytest

from tests.integration.amqp_kills import AmqpReceiver, AmqpSender
from tests.integration.kill_load import Account, LoadWorker, Producer, ProtocolPair, Reigns, kill_master, stop, wait
from tests.integration.mixed_kills import OpenWireConsumer, OpenWireProducer, StompConsumer, StompProducer
from tests.integration.mqtt_kills import Publisher, Subscriber
from tests.soundness import assert_sound

LOAD_SECONDS = float(os.environ.get("PYBROKER_KILL_SECONDS", "10"))
SEED = int(os.environ.get("PYBROKER_SEED", str(random.SystemRandom().randrange(1 << 32))))
CONFIRMED_BETWEEN_KILLS = 6000
TOPIC = "VirtualTopic.LOAD"
QUEUE = f"Consumer.all.{TOPIC}"

pytestmark = pytest.mark.timeout(240 + 2 * LOAD_SECONDS)


def test_nothing_confirmed_is_lost_whatever_the_protocol(tmp_path: Path) -> None:
    chooser = random.Random(SEED)
    transformer = chooser.choice(["jms", "native"])
    print(f"seed {SEED}, transformer {transformer}")
    account, of_session, reigns = Account(), Account(), Reigns()
    # No master lives as long as the usual interval, and a standby that has not caught up yet reads all files.
    extra = ("--amqp-transformer", transformer, "--cleanup-interval", "2s")
    with ProtocolPair(tmp_path, ["openwire", "mqtt", "amqp"], *extra) as pair:
        openwire, stomp, mqtt, amqp = (pair.ports_of(each) for each in ("openwire", "stomp", "mqtt", "amqp"))
        first = OpenWireConsumer("openwire consumer", QUEUE, openwire, account, reigns, SEED)
        session = Subscriber([(TOPIC.replace(".", "/"), 1)], mqtt, of_session, reigns, SEED)
        consumers = [
            first,
            session,
            StompConsumer("stomp consumer", f"/queue/{QUEUE}", stomp, account, reigns, SEED),
            AmqpReceiver("amqp consumer", f"queue://{QUEUE}", amqp, account, reigns, SEED),
        ]
        for consumer in consumers:
            consumer.start()
        wait(lambda: first.is_subscribed.is_set() and session.is_subscribed.is_set(), consumers)  # from now on
        producers: list[Producer | Publisher] = [
            OpenWireProducer("openwire", TOPIC, openwire, account, reigns, SEED),
            StompProducer("stomp", f"/topic/{TOPIC}", stomp, account, reigns, SEED),
            AmqpSender("amqp", f"topic://{TOPIC}", amqp, account, reigns, SEED),
            Publisher("mqtt", 1, mqtt, account, reigns, SEED, TOPIC.replace(".", "/")),
        ]
        for producer in producers:
            producer.backlog = lambda: max(account.backlog(), len(account.confirmed) - len(of_session.received))
            producer.start()
        workers: list[LoadWorker] = [*consumers, *producers]
        outages: list[float] = []
        until = time.monotonic() + LOAD_SECONDS
        try:
            while time.monotonic() < until or len(outages) < 2:
                confirmations = chooser.randrange(CONFIRMED_BETWEEN_KILLS // 6, CONFIRMED_BETWEEN_KILLS)
                outages.append(kill_master(pair, account, reigns, workers, confirmations))
            stop(producers, workers)
            wait(lambda: not account.lost(), workers)
            wait(lambda: account.confirmed <= of_session.received.keys(), workers)
            stop(consumers, workers)
        finally:
            for worker in workers:
                worker.stopping.set()
    outages.sort()
    names = [producer.name for producer in producers]
    counts = {name: sum(1 for each, _ in account.confirmed if each == name) for name in names}
    again = {name: account.doubled([name]) for name in names}
    print(
        f"{LOAD_SECONDS:g} s, {len(outages)} kills, {sum(worker.connections for worker in workers)} connections; "
        f"confirmed: {counts}; lost: {len(account.lost())}; {account.repeated()} sent more than once; came more than "
        f"once: {again}, {len(account.unmarked_again())} of them unmarked though sent once; first confirmation after a "
        f"kill: median {outages[len(outages) // 2] * 1000:.0f} ms, max {outages[-1] * 1000:.0f} ms"
    )
    assert not account.unmarked_again(), f"seed {SEED}: {account.unmarked_again()[:10]}"
    assert_sound(tmp_path)
