"""Compiled selectors: shared by text, cached up to a size, and limited for each connection."""

import gc

import pytest

from pybroker.broker.core.selector import SelectorQuota, compile_selector
from pybroker.broker.core.selector.quota import CHARACTERS_MAX
from pybroker.broker.core.selector.selector import CACHED_CHARACTERS, TEXT_MAX, Selector
from pybroker.broker.domain.errors import ResourceLimit


def long_text(number: int) -> str:
    return f"a = {number}".ljust(TEXT_MAX)


def selectors_alive(first: str) -> int:
    gc.collect()
    return sum(isinstance(each, Selector) and each.text.startswith(first) for each in gc.get_objects())


def test_cached_selectors_have_a_limited_size():
    for number in range(1_000, 1_000 + 3 * CACHED_CHARACTERS // TEXT_MAX):
        compile_selector(long_text(number))
    assert selectors_alive("a = 1") == CACHED_CHARACTERS // TEXT_MAX


def test_a_selector_that_is_used_is_compiled_once_whatever_else_is():
    used = compile_selector(long_text(7))
    for number in range(2_000, 2_000 + 3 * CACHED_CHARACTERS // TEXT_MAX):
        compile_selector(long_text(number))
    assert compile_selector(long_text(7)) is used


def test_different_selectors_of_a_connection_are_limited():
    quota = SelectorQuota()
    texts = [long_text(number) for number in range(CHARACTERS_MAX // TEXT_MAX)]
    for text in texts:
        quota.acquire(text)
    for text in texts[:10]:
        quota.acquire(text)  # shared
    with pytest.raises(ResourceLimit, match="524288 characters"):
        quota.acquire("b = 1")
    quota.release(texts[0])
    with pytest.raises(ResourceLimit):
        quota.acquire("b = 1")
    quota.release(texts[0])
    quota.acquire("b = 1")


def test_consumers_without_selector_are_not_limited():
    quota = SelectorQuota()
    for text in (None, ""):
        quota.acquire(text)
        quota.release(text)
