"""Costs of tests: the order in which a parallel run starts them, what runs alone, and the longest a test may take.

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

LONG: dict[str, tuple[float, str]] = {
    "tests/client/test_command_line.py::TestFailover::test_produce_and_consume_go_on_with_the_next": (
        60,
        "a stock pair's failover",
    ),
    "tests/client/test_kills.py": (90, "kills masters for some seconds, for each kind of client"),
    "tests/client/test_replication_clocks.py": (60, "two fresh processes, and two leases after each step of a clock"),
    "tests/client/test_replication_etcd.py": (90, "elections of etcd, and leases that run out"),
    "tests/client/test_replication_kills.py": (60, "kills and freezes of some seconds, and the stores are compared"),
    "tests/client/test_replication_partitions.py": (60, "partitions of up to three leases, and two fresh processes"),
    "tests/client/test_replication_restarts.py": (60, "leases that run out, and members that start late"),
    "tests/client/test_replication_slow.py": (60, "a slow link fills buffers, and a store catches up"),
    "tests/console/test_console_of_a_long_queue.py": (60, "100,000 messages are retried and moved, and compared twice"),
    "tests/crash/test_replication_disks.py": (60, "a full disk is looked at every ten seconds"),
    "tests/crash/test_torn_tails.py": (60, "a last write torn at each of its bytes"),
    "tests/integration/test_activemq_database_lock.py": (60, "ActiveMQ's leases run out"),
    "tests/integration/test_alarms.py": (60, "a load with kills, until all alarms that are due have fired"),
    "tests/integration/test_amqp_kills.py": (90, "five kills under load"),
    "tests/integration/test_fuzz.py": (130, "10,000 frames of each protocol"),
    "tests/integration/test_handback.py": (60, "ActiveMQ and pybroker in turn on one store, each read as a whole"),
    "tests/integration/test_kills.py": (90, "25 kills under load"),
    "tests/integration/test_migration.py": (90, "stock pairs are replaced step by step, and put back"),
    "tests/integration/test_mixed_kills.py": (90, "kills masters for some seconds, under clients of each protocol"),
    "tests/integration/test_mqtt_random_kills.py": (90, "kills masters for some seconds, under ten clients"),
    "tests/integration/test_relay.py": (60, "ActiveMQ and pybroker in turn on one store"),
    "tests/integration/test_replication_verify.py": (60, "a byte of each finished file is changed, found and repaired"),
    "tests/integration/test_soak.py": (90, "three members under load, and five kills"),
    "tests/java/test_activemq_xml.py": (90, "a hundred checks of Java programs, against both brokers side by side"),
    "tests/java/test_failover.py": (90, "stock pairs whose clients find the next master at their own pace"),
    "tests/java/test_java_kills.py": (90, "ten kills under the load of Java clients"),
    "tests/java/test_java_migration.py": (
        90,
        "a stock pair that tries a lock every 10 s is replaced, and put back",
    ),
    "tests/java/test_replicated_clients.py": (90, "three changes of the master, each with jobs due seconds later"),
    "tests/kombu/test_celery.py": (
        120,
        "workers of Celery start, each with its pool, and brokers are killed under them",
    ),
    "tests/kombu/test_celery_features.py::test_flower_shows_workers_and_tasks": (60, "a worker and Flower start"),
    "tests/kombu/test_celery_page.py": (60, "a worker of Celery, and a client that starts twice"),
    "tests/postgres/test_activemq.py": (60, "ActiveMQ and pybroker in turn on one database"),
    "tests/postgres/test_large_batches.py": (60, "a batch of 100,000 keys"),
    "tests/postgres/test_model.py": (90, "a database for each of Hypothesis' histories"),
    "tests/spark/test_follow.py": (120, "a stream's batches, one after the other"),
    "tests/spark/test_jobs.py": (120, "each job on all samples: some sixty queries"),
    "tests/spark/test_source_stream.py": (90, "a stream's batches, one after the other"),
    "tests/spark/test_submit.py": (120, "Spark starts again, in an environment of its own"),
    "tests/unit/test_benchmarks.py::test_quick_run_measures_something": (
        60,
        "some start clusters and kill their masters",
    ),
}
"""The seconds a test may take, and what for; by file, or by file and name without parameters."""

SHARED = ("spark", "architecture")
"""Directories whose tests have in common what is too dear to be had twice: a Spark session, the sources' trees."""

SIDES = ("client", "kombu")
"""Directories whose tests all run against either broker, which a process has one of at a time, for a whole session."""

SINGLE = ("property", "simulation")
"""Directories of few, long tests with nothing in common: each test is a group of its own."""

USUAL_SECONDS = 0.3


def arrange(items: list[pytest.Item]) -> None:
    """Put the groups with the longest tests first."""
    groups = [group(item.nodeid) for item in items]
    costs = dict.fromkeys(groups, 0.0)
    for item, name in zip(items, groups, strict=True):
        costs[name] += _listed(item.nodeid) or USUAL_SECONDS
    order = sorted(range(len(items)), key=lambda index: -costs[groups[index]])
    items[:] = [items[index] for index in order]


def group(node: str) -> str:
    """Return which tests a test stays together with in a process, by its node id."""
    file, _, name = node.partition("::")
    directory = file.rpartition("/")[0].rpartition("/")[2]
    if directory in SHARED:
        return directory
    if directory in SINGLE:
        return node
    sides = {"pybroker", "activemq"}.intersection(name.partition("[")[2].rstrip("]").split("-"))
    return f"{directory}[{min(sides)}]" if sides and directory in SIDES else file


def overrun(node: str, seconds: float) -> str:
    """Return what is wrong with a test that took so long; nothing if it may, here and now."""
    allowed = _listed(node) or LIMIT_SECONDS
    if seconds < allowed or seconds < allowed * (slow := slowness(seconds)):
        return ""
    return f"took {seconds:.1f} s, may take {allowed:.0f} s ({slow:.1f} times as long here and then); see tests/cost.py"


def _listed(node: str) -> float:
    name = node.partition("[")[0]
    return next((LONG[each][0] for each in (name, name.partition("::")[0]) if each in LONG), 0.0)
