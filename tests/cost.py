"""What tests cost: the order in which a parallel run starts them, what runs alone, and the longest a test may take.

Tests that share something costly for a whole session (brokers, compiled Java, Spark) stay in one process each; files
with long tests start first, so that no process is left with one when all others have finished. A test that measures
what others would falsify carries `@pytest.mark.alone`; `make test` runs those one after the other, at the end.

The ratchet: no test takes longer than `LIMIT_SECONDS`, but those listed here with a reason. A line is taken away or
made smaller when a test becomes faster; a new one is a decision. Only PYBROKER_TEST_STRICT=1 fails a test for it, and a
slow machine is allowed for as in `tests.pace`.
"""

import pytest

from tests.pace import slowness

LIMIT_SECONDS = 30.0

LONG: dict[str, tuple[float, str]] = {}
"""By file, or by file and name without parameters: the seconds a test may take, and what it needs them for."""

SHARED = ("spark",)
"""Directories whose tests have in common what is too dear to be had twice: a Spark session."""

SESSIONS = ("broker_ports",)
"""Fixtures of a session with parameters: a process has one at a time, and makes it anew when it comes back to it."""

SINGLE = ("property",)
"""Directories of few, long tests with nothing in common: each test is a group of its own."""


def arrange(items: list[pytest.Item]) -> None:
    """Mark for `--dist loadgroup` what stays together, and put the groups with the longest tests first."""
    groups = [_group(item) for item in items]
    costs = dict.fromkeys(groups, 0.0)
    for item, group in zip(items, groups, strict=True):
        costs[group] += _listed(item.nodeid)
        item.add_marker(pytest.mark.xdist_group(group))
    order = sorted(range(len(items)), key=lambda index: -costs[groups[index]])
    items[:] = [items[index] for index in order]


def overrun(node: str, seconds: float) -> str:
    """Return what is wrong with a test that took so long; nothing if it may, here and now."""
    allowed = _listed(node) or LIMIT_SECONDS
    if seconds < allowed or seconds < allowed * (slow := slowness()):
        return ""
    return f"took {seconds:.1f} s, may take {allowed:.0f} s ({slow:.1f} times as long here); see tests/cost.py"


def _listed(node: str) -> float:
    return next((LONG[name][0] for name in _names(node) if name in LONG), 0.0)


def _names(node: str) -> tuple[str, str]:
    """Return a test's file with its name, and its file; pytest-xdist appends `@` and the group to a node id."""
    name = node.partition("[")[0].partition("@")[0]
    return name, name.partition("::")[0]


def _group(item: pytest.Item) -> str:
    directory = item.path.parent.name
    if directory in SHARED:
        return directory
    if directory in SINGLE:
        return item.name
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    of_session = [f"{name}.{parameters[name]}" for name in SESSIONS if name in parameters]
    return ".".join([directory, *(of_session or [item.path.stem])])
