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
    """Set a broker's `[redelivery]` and `[discarding_dead_letters]`, if they are configured."""
    broker.dead_letters.discarded = config.discarding_dead_letters
    if config.redelivery is not None:
        from pybroker.broker.core.redelivery import BrokerRedelivery  # few brokers have the table

        broker.dead_letters.redelivery = BrokerRedelivery(broker, config.redelivery, random.random)


def sweep_interval(config: Config) -> float:
    """Return the seconds between sweeps for expired messages: the shortest that any destination wants."""
    periods: list[int | None] = [policy.fields.get("expire_messages_period") for policy in config.policies]
    return min([config.expire_interval, *[period / 1000 for period in periods if period]])


def default_period(config: Config) -> int | None:
    """Return the period of destinations without one of their own; None: they take part in every sweep."""
    return None if sweep_interval(config) == config.expire_interval else round(config.expire_interval * 1000)
