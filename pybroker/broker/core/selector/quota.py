"""Limits what the compiled selectors of one client take: a compiled selector takes some 60 times its text."""

from typing import Final

from pybroker.broker.domain.errors import ResourceLimit

CHARACTERS_MAX: Final = 524_288
"""Characters of the different selectors of one connection: 64 of the longest, or 10,000 usual ones; some 32 MB."""


class SelectorQuota:
    """The selectors that a connection's consumers have. Consumers with the same text share one."""

    __slots__ = ("_characters", "_uses")

    def __init__(self) -> None:
        self._uses: dict[str, int] = {}
        self._characters = 0

    def acquire(self, text: str | None) -> None:
        """Count the selector of a new consumer; None: it has none.

        Raises:
            ResourceLimit: the connection has too many different ones; nothing is counted.
        """
        if not text:
            return
        uses = self._uses.get(text, 0)
        if not uses:
            if self._characters + len(text) > CHARACTERS_MAX:
                raise ResourceLimit(
                    f"the selectors of a connection have at most {CHARACTERS_MAX} characters together: use the "
                    "same one for several consumers, or several connections"
                )
            self._characters += len(text)
        self._uses[text] = uses + 1

    def release(self, text: str | None) -> None:
        """Stop counting the selector of a consumer."""
        if not text:
            return
        uses = self._uses.pop(text) - 1
        if uses:
            self._uses[text] = uses
        else:
            self._characters -= len(text)
