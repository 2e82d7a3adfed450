"""Contract of every `MessageStore` on PostgreSQL: the suites of tests/conformance, unchanged."""

import inspect

from tests.conformance import test_declared_queues, test_delivered, test_excluded
from tests.conformance.test_store import *  # noqa: F403

for _name, _test in (
    *vars(test_declared_queues).items(),
    *vars(test_delivered).items(),
    *vars(test_excluded).items(),
):
    if _name.startswith("test_") and "lives" in inspect.signature(_test).parameters:
        globals()[_name] = _test
