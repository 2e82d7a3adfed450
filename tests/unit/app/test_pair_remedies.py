"""A remedy for each kind of finding."""

import inspect
import re

from pybroker.broker.app import pair_judgement, pair_watch
from pybroker.broker.app.pair_remedies import OTHER, REMEDIES, kinds_and_texts


def test_each_kind_of_finding_has_a_remedy_and_no_other() -> None:
    source = inspect.getsource(pair_judgement) + inspect.getsource(pair_watch)
    kinds = set(re.findall(r'PairFinding\(\s*f?"([a-z]+)', source))
    assert len(kinds) > 15
    assert kinds == REMEDIES.keys() - {OTHER}


def test_reasons_without_a_kind_are_of_the_kind_other() -> None:
    found = kinds_and_texts(("port", "silent b"), ("p",), ("s", "w"))
    assert list(found) == [("port", "p"), ("silent", "s"), (OTHER, "w")]
