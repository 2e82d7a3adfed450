"""The attributes of the filter by which messages of a queue may go back to a broker that they have passed.

Source: ActiveMQ 5.17, `ConditionalNetworkBridgeFilterFactory`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionalBridgeFilter:
    """The attributes of a `conditionalNetworkBridgeFilterFactory`; by default it lets nothing go back.

    Attributes:
        replay_when_no_consumers: a message may go back while its queue has no consumer but bridges and browsers.
        replay_delay: milliseconds for which it must have been at this broker before.
        rate_limit: messages that each demand subscription forwards in `rate_duration`; 0: any number.
        rate_duration: milliseconds, above 0.
        selector_aware: a consumer whose selector does not match the message is no consumer of it.
    """

    replay_when_no_consumers: bool = False
    replay_delay: int = 0
    rate_limit: int = 0
    rate_duration: int = 1000
    selector_aware: bool = False

    @property
    def has_effect(self) -> bool:
        """True if something passes by it that else would not, or the reverse."""
        return self.replay_when_no_consumers or self.rate_limit > 0
