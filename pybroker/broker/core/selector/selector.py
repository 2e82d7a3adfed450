"""The interface of message selectors: compiles a text to a `Selector`, which selects the messages of a consumer.

The language is that of JMS 1.1 (3.8.1) with three-valued logic. Where JMS has no rule, ActiveMQ 5.17 is followed: a
name alone is a condition, a condition is an operand of `=` and `<>`, `%` is the remainder, comments are skipped, all
header fields can be selected by, and `7 / 2` is 3.5.

Where ActiveMQ 5.17.2 does otherwise than JMS 1.1, JMS is followed:

| selector | ActiveMQ | here |
| --- | --- | --- |
| `NOT a = 5` | `(NOT a) = 5`: never matches | `NOT (a = 5)`; also with IS NULL, LIKE, IN, BETWEEN |
| `s <> 5`, s a string | TRUE | FALSE: values of different types compare as FALSE |
| `s >= t`, strings or booleans | compared in order | FALSE: only numbers have an order |
| `s + 'x' = 'ax'` | strings are joined | refused; with properties: NULL |
| `m = m`, m not set | TRUE | UNKNOWN |
| `i = h`, h a short or byte, i wider | FALSE | by value; so is a double with a float, which fails in ActiveMQ |
| `n NOT IN ('a')`, n not a string | UNKNOWN | TRUE, as of `NOT (n = 'a')` |
| `2147483647 + 1 < 0` | TRUE, ints wrap around | FALSE: longs do (a message's ints and longs are one type here) |
| `n = n`, n not a number (NaN) | TRUE, and greater than all others | FALSE, as in Java |
| `n / 0 > 5` | TRUE, infinite | UNKNOWN; `%` likewise |
| `99999999999999999999`, `1e999` | accepted, not comparable or infinite | refused: outside of Java's long or double |
| `1.5f`, `0x1FL`, `Größe = 1` | refused | accepted: Java's literals and identifiers |
| `'x' LIKE '_'`, `NULL IS NULL` | accepted | refused: LIKE and IN want a name, NULL is no value |
| `convert_string_expressions:t = 'true'`, t a boolean | fails | TRUE, as `'true' = t` is on both |
| `XPATH '…'`, `XQUERY '…'`, `REGEX(…)` and other functions | evaluated | refused |

| `convert_string_expressions:t = 7`, t of more than 1,000 digits | compared | FALSE: no number is so long |
| `s LIKE '%a_a%'`, s of some 100,000 characters | some seconds, if s is made for it | UNKNOWN after `STEPS_MAX` steps |

`JMSActiveMQBrokerPath` is no header field here: NULL, unless a property has that name.
"""

import logging
from collections import OrderedDict
from typing import Final
from weakref import WeakValueDictionary

from pybroker.broker.core.containment import contain
from pybroker.broker.core.selector.compiler import compile_condition
from pybroker.broker.core.selector.fields import Condition
from pybroker.broker.core.selector.like import STEPS_MAX, WorkLimit
from pybroker.broker.core.selector.parser import parse
from pybroker.broker.core.selector.subject import SubjectCache
from pybroker.broker.domain.errors import InvalidSelector
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.loose import MalformedOpenWire

_log = logging.getLogger(__name__)

TEXT_MAX: Final = 8192
"""Characters in a selector. To compile one of this length takes some 5 ms, to evaluate it some 0.3 ms."""

CACHED_CHARACTERS: Final = 131_072
"""Characters of the compiled selectors that are cached though no consumer has them, because clients subscribe again
and again with the same few texts. Compiled, they take some 60 times as much."""

CONVERT_PREFIX: Final = "convert_string_expressions:"
"""The prefix that ActiveMQ's STOMP transport adds to selectors, because STOMP's properties are all strings."""

_LOGGED_CHARACTERS: Final = 72

_subjects: Final = SubjectCache()


class Selector:
    """A compiled condition on messages.

    Attributes:
        text: as it was written.
    """

    __slots__ = ("__weakref__", "_condition", "_limit", "text")

    def __init__(self, text: str, condition: Condition, limit: WorkLimit | None) -> None:
        """Create a selector; `limit` is None if its evaluation is cheap for every message."""
        self.text = text
        self._condition = condition
        self._limit = limit

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"

    def matches(self, message: Message, redelivery_count: int = 0) -> bool:
        """Return True if the condition is TRUE for the message, and False if it is FALSE or UNKNOWN.

        A message that does not decode matches no selector, as in ActiveMQ. It waits for a consumer without a selector.

        Args:
            message: the message.
            redelivery_count: number of earlier deliveries, for JMSRedelivered and JMSXDeliveryCount; the bytes of the
                message do not have it.
        """
        limit = self._limit
        if limit is not None:
            limit.steps = STEPS_MAX
        try:
            truth = self._condition(_subjects.get(message, redelivery_count))
            if limit is not None and limit.steps < 0:
                _unfinished.record(self.text, message)
            return truth is True
        except MalformedOpenWire as error:
            # Not a warning: each consumer with a selector evaluates the message again while it waits.
            _log.debug("message %s does not match any selector: %s", message.message_id, error)
            return False
        except Exception as error:  # caused by the message; its sender and the consumers must not be affected
            contain(error, "evaluating a selector", message)
            return False


def forget_message() -> None:
    """Free the last message that a selector was evaluated on."""
    _subjects.clear()


class _UnfinishedLog:
    """Logs the 1st, 2nd, 4th, 8th … evaluation that used up its limit: a message causes one for each consumer."""

    def __init__(self) -> None:
        self._count = 0

    def record(self, text: str, message: Message) -> None:
        self._count += 1
        if not self._count & (self._count - 1):
            _log.warning(
                "a LIKE or comparison of the selector %r was UNKNOWN after %d steps, for message %s on %s; "
                "%d evaluations so far",
                *(text[:_LOGGED_CHARACTERS], STEPS_MAX, message.message_id, message.destination, self._count),
            )


_unfinished = _UnfinishedLog()


class _CompiledSelectors:
    """The compiled selectors that consumers have, so that all with the same text share one, and those used last."""

    __slots__ = ("_characters", "_recent", "_used")

    def __init__(self) -> None:
        self._used: WeakValueDictionary[str, Selector] = WeakValueDictionary()
        self._recent: OrderedDict[str, Selector] = OrderedDict()
        self._characters = 0  # of the texts in `_recent`

    def get(self, text: str) -> Selector:
        """Return the compiled selector of a text. Raises `InvalidSelector`."""
        selector = self._used.get(text)
        if selector is None:
            selector = self._used[text] = _compile(text)
        recent = self._recent
        if text in recent:
            recent.move_to_end(text)
        else:
            recent[text] = selector
            self._characters += len(text)
            while self._characters > CACHED_CHARACTERS:
                oldest, _ = recent.popitem(last=False)
                self._characters -= len(oldest)
        return selector


_compiled: Final = _CompiledSelectors()


def compile_selector(text: str) -> Selector:
    """Compile a selector; for the same text, return the same object while a consumer has it, and for some time after.

    Args:
        text: a condition. After the prefix `convert_string_expressions:` strings are compared with numbers and
            booleans by conversion: `n > 5` matches the string "7".

    Raises:
        InvalidSelector: the text is not a condition, or too long; the message shows where and what was expected.
    """
    if len(text) > TEXT_MAX:
        raise InvalidSelector(f"the selector has {len(text)} characters, at most {TEXT_MAX} are allowed")
    return _compiled.get(text)


def _compile(text: str) -> Selector:
    condition = text.removeprefix(CONVERT_PREFIX)
    limit = WorkLimit()
    compiled = compile_condition(parse(condition), convert=condition != text, limit=limit)
    return Selector(text, compiled, limit if limit.is_needed else None)
