"""A hint from the core to the transports: the frame that was just carried out took more than the usual microseconds.

A session looks at the clock after some frames, because a look after each would cost as much as a hundredth of a
message. So what the core does for one frame has to be short, or to set this hint: then the session looks at once, and
the input of the next connection of the same turn is measured too. A hint that is not needed costs a look at the clock.
"""

from typing import Final


class Effort:
    """The cost of the work since the session last read the clock.

    Attributes:
        is_large: the core did something whose time depends on how much clients have created, or on their selectors.
        turn_at: monotonic seconds at which the present turn of the event loop began: a time that costs no look at the
            clock.
    """

    __slots__ = ("is_large", "turn_at")

    def __init__(self) -> None:
        self.is_large = False
        self.turn_at = 0.0


EFFORT: Final = Effort()
"""The one of this process, as its brokers share one event loop. It is read for every frame, so it is no parameter."""
