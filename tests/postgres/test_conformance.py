"""Contract of every `MessageStore` on PostgreSQL: the suites of tests/conformance, unchanged."""

import inspect

from tests.conformance import test_declared_queues, test_delivered, test_excluded, test_operations
from tests.conformance.test_operations import operated as operated
from tests.conformance.test_store import *  # noqa: F403

for _name, _test in (
    *vars(test_declared_queues).items(),
    *vars(test_delivered).items(),
    *vars(test_excluded).items(),
    *vars(test_operations).items(),
):
    if _name.startswith("test_") and {"lives", "operated"} & {*inspect.signature(_test).parameters}:
        globals()[_name] = _test
