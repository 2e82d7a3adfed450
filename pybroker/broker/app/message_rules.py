"""What the settings change in messages, as the core wants it."""

import random

from pybroker.broker.app.config import Config
from pybroker.broker.app.message_settings import PERSISTENCY
from pybroker.broker.core.arrival_rules import ArrivalRules
from pybroker.broker.core.broker import BrokerCore


def arrival_rules(config: Config) -> ArrivalRules | None:
    """Return what the settings change in the messages of clients; None: nothing."""
    mode = config.force_persistency_mode
    rules = ArrivalRules(
        populates_user=config.populate_jmsx_user_id,
        time_stamping=config.time_stamping,
        persistency=None if mode is None else PERSISTENCY[mode],
    )
    return rules if rules.change_something else None


def use_dead_letter_rules(config: Config, broker: BrokerCore) -> None:
    """Have a broker redeliver or drop what would be dead letters, if that is configured."""
    broker.dead_letters.discarded = config.discarding_dead_letters
    if config.redelivery is not None:
        from pybroker.broker.core.redelivery import BrokerRedelivery  # few brokers have the table

        broker.dead_letters.redelivery = BrokerRedelivery(broker, config.redelivery, random.random)
