"""What the settings change in messages, as the core wants it."""

from pybroker.broker.app.config import Config
from pybroker.broker.core.arrival_rules import ArrivalRules


def arrival_rules(config: Config) -> ArrivalRules | None:
    """Return what the settings change in the messages of clients; None: nothing."""
    rules = ArrivalRules(populates_user=config.populate_jmsx_user_id, time_stamping=config.time_stamping)
    return rules if rules.change_something else None
