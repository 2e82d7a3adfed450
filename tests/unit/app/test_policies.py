# mypy: disable-error-code="attr-defined"
"""The tables about destinations: what they set in the core, the errors, and that their page is right."""

import re
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.app.config import Config
from pybroker.broker.app.message_rules import arrival_rules, sweep_interval
from pybroker.broker.app.message_tables import (
    DISCARDING_DEAD_LETTERS,
    REDELIVERY,
    REDELIVERY_POLICY,
    TIME_STAMPING,
)
from pybroker.broker.app.policies import DEAD_LETTER_STRATEGIES, POLICY, policy_map
from pybroker.broker.app.setting import Table
from pybroker.broker.app.virtual import COMPOSITE_QUEUE, MIRRORED_QUEUES, VIRTUAL_TOPIC
from pybroker.broker.app.wiring import definitions_of, is_prioritized, make_broker
from pybroker.broker.core.arrival_rules import ArrivalRules, TimeStamping
from pybroker.broker.core.deadletter import DiscardedLetters
from pybroker.broker.core.policy import (
    DestinationPolicy,
    DiscardingDeadLetterStrategy,
    EntryMap,
    Eviction,
    FixedCountRecovery,
    FixedSizeRecovery,
    IndividualDeadLetterStrategy,
    LastImageRecovery,
    SharedDeadLetterStrategy,
    TimedRecovery,
)
from pybroker.broker.core.redelivery import RedeliveryPolicy, RedeliveryRules
from pybroker.broker.core.virtual import CompositeDestination, Definition, Forward, MirroredQueues, Router, VirtualTopic
from pybroker.broker.domain.destination import Destination, DestinationType, parse, queue, topic
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.network.bridge_filter import ConditionalBridgeFilter
from pybroker.store.memory import MemoryStore
from pybroker.units import format_duration, format_size
from tests.unit.core.conftest import make_message

A = queue("A")
DAY_MS = 86_400_000
PAGE = (Path(__file__).parents[3] / "docs" / "policies.md").read_text(encoding="utf-8")


def read(text: str) -> Config:
    return Config(**tomllib.loads(text))


def policy(text: str, destination: Destination = A) -> DestinationPolicy:
    """The rules for a destination with one table."""
    return policy_map(read("[[policies]]\n" + text).policies, DestinationPolicy()).for_destination(destination)


def error_text(text: str) -> str:
    """Return the error of a file that is not valid."""
    with pytest.raises(ConfigError) as caught:
        read(text)
    return str(caught.value)


# ---------------------------------------------------------------- policies


def test_without_tables_all_is_as_in_the_core() -> None:
    settings = read("")
    assert policy_map(settings.policies, DestinationPolicy()).for_destination(queue("A")) == DestinationPolicy()
    assert definitions_of(settings) == (VirtualTopic(),)


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("prioritized_messages = true", {"prioritized_messages": True}),
        ("queue_prefetch = 1", {"queue_prefetch": 1}),
        ('memory_limit = "64mb"', {"memory_limit": 64 << 20}),
        ("memory_limit = 1000", {"memory_limit": 1000}),
        ("max_redeliveries = -1", {"max_redeliveries": -1}),
        ("advisory_for_delivery = true", {"advisory_for_delivery": True}),
        ("pending_message_limit_strategy = 50", {"pending_message_limit": 50}),
        ('pending_message_limit_strategy = "constant"', {"pending_message_limit": -1}),
        ('pending_message_limit_strategy = { type = "constant", limit = 0 }', {"pending_message_limit": 0}),
        ('pending_message_limit_strategy = "prefetch_rate"', {"pending_message_limit_multiplier": 0.5}),
        (
            'pending_message_limit_strategy = { type = "prefetch_rate", multiplier = 2 }',
            {"pending_message_limit_multiplier": 2.0},
        ),
        ('message_eviction_strategy = "oldest"', {}),
        (
            'message_eviction_strategy = { type = "oldest_with_lowest_priority" }',
            {"message_eviction_strategy": Eviction.OLDEST_WITH_LOWEST_PRIORITY},
        ),
        ('network_bridge_filter_factory = "default"', {"network_bridge_filter_factory": ConditionalBridgeFilter()}),
        (
            'network_bridge_filter_factory = { type = "conditional", replay_when_no_consumers = true, '
            'replay_delay = "2s", rate_limit = 5, rate_duration = "1min", selector_aware = true }',
            {
                "network_bridge_filter_factory": ConditionalBridgeFilter(
                    replay_when_no_consumers=True,
                    replay_delay=2000,
                    rate_limit=5,
                    rate_duration=60_000,
                    selector_aware=True,
                )
            },
        ),
        ('subscription_recovery_policy = "no"', {}),
        ('subscription_recovery_policy = "last_image"', {"subscription_recovery_policy": LastImageRecovery()}),
        ('subscription_recovery_policy = "fixed_count"', {"subscription_recovery_policy": FixedCountRecovery(100)}),
        (
            'subscription_recovery_policy = { type = "fixed_sized", maximum_size = "1mb" }',
            {"subscription_recovery_policy": FixedSizeRecovery(1 << 20)},
        ),
        (
            'subscription_recovery_policy = { type = "timed", recover_duration = "1500ms" }',
            {"subscription_recovery_policy": TimedRecovery(1500)},
        ),
        ('dead_letter_strategy = "shared"', {}),
        ('dead_letter_strategy = "discarding"', {"dead_letter_strategy": DiscardingDeadLetterStrategy()}),
        (
            'dead_letter_strategy = { type = "shared", dead_letter_queue = "topic://DEAD", expiration = "1h" }',
            {"dead_letter_strategy": SharedDeadLetterStrategy(dead_letter_queue=topic("DEAD"), expiration=3_600_000)},
        ),
        (
            'dead_letter_strategy = { type = "individual", queue_prefix = "DLQ.", process_non_persistent = true }',
            {"dead_letter_strategy": IndividualDeadLetterStrategy(queue_prefix="DLQ.", process_non_persistent=True)},
        ),
    ],
)
def test_an_attribute_reaches_the_core(text: str, changes: dict[str, Any]) -> None:
    assert policy(text) == replace(DestinationPolicy(), **changes)


@pytest.mark.parametrize(("text", "expected"), [("", False), ("= false", False), ("= true", True)])
def test_store_keeps_priorities_if_any_policy_needs_them(text: str, expected: bool) -> None:
    attribute = f"prioritized_messages {text}" if text else ""
    assert is_prioritized(read(f"[[policies]]\n[[policies]]\n{attribute}")) is expected


@pytest.mark.parametrize(
    ("attribute", "covered"),
    [
        ("queue", Destination(DestinationType.QUEUE, "A.B")),
        ("topic", Destination(DestinationType.TOPIC, "A.B")),
        ("temp_queue", Destination(DestinationType.TEMP_QUEUE, "A.B")),
        ("temp_topic", Destination(DestinationType.TEMP_TOPIC, "A.B")),
    ],
)
def test_an_entry_is_for_one_type(attribute: str, covered: Destination) -> None:
    for kind in DestinationType:
        found = policy(f'{attribute} = "A.>"\nmemory_limit = 5', Destination(kind, "A.B"))
        assert found.memory_limit == (5 if kind is covered.type else 0)


def test_entry_without_destination_is_the_default_only() -> None:
    tables = read(
        '[[policies]]\nmemory_limit = 5\nqueue_prefetch = 1\n[[policies]]\nqueue = "A"\nmemory_limit = 6'
    ).policies
    policies = policy_map(tables, DestinationPolicy(max_redeliveries=3))
    assert policies.for_destination(queue("B")) == DestinationPolicy(
        memory_limit=5, queue_prefetch=1, max_redeliveries=3
    )
    assert policies.for_destination(queue("A")) == DestinationPolicy(memory_limit=6, max_redeliveries=3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "prioritisedMessages = true",
            "prioritisedMessages: there is no such attribute; did you mean prioritized_messages\\?$",
        ),
        (
            "prioritizedMessages = true",
            "prioritizedMessages: there is no such attribute; did you mean prioritized_messages\\?$",
        ),
        ("memory = 1", "memory: there is no such attribute; did you mean memory_limit\\?$"),
        ("xyzzy = 1", "xyzzy: there is no such attribute; known are advisory_for_consumed, "),
        ("maxPageSize = 1", "maxPageSize: it is an attribute of ActiveMQ that pybroker does not have; leave it out"),
        (
            "lazy_dispatch = true",
            "lazy_dispatch: it is an attribute of ActiveMQ that pybroker does not have; leave it out",
        ),
        ('queue = "A"\ntopic = "A"', "queue and topic are both set: write a table for each"),
        ('queue = "A,B"', "'A,B' has a comma: write a table for each name"),
        ('queue = ""', "the destination's name is empty"),
        ("queue_prefetch = -1", "queue_prefetch: it must be at least 0 and at most 2147483647; given was -1$"),
        ('memory_limit = "64xb"', "memory_limit: '64xb' is not a size"),
        ("memory_limit = [1]", r"memory_limit: \[1\] is not a size"),
        ("max_redeliveries = -2", "max_redeliveries: it must be at least -1 and at most 1000000; given was -2$"),
        (
            'dead_letter_strategy = "x"',
            "dead_letter_strategy: write as its type one of 'shared', 'individual', 'discarding'",
        ),
        ("dead_letter_strategy = {}", "dead_letter_strategy: write as its type one of"),
        (
            'dead_letter_strategy = { type = "individual", queuePrefx = "x" }',
            "dead_letter_strategy.individual.queuePrefx: there is no such attribute; did you mean queue_prefix?",
        ),
        (
            'dead_letter_strategy = { type = "individual", queue_prefix = "" }',
            "dead_letter_strategy.individual: queue_prefix or queue_suffix must be set",
        ),
        (
            'dead_letter_strategy = { type = "individual", topic_prefix = "" }',
            "dead_letter_strategy.individual: topic_prefix or topic_suffix must be set",
        ),
        (
            'dead_letter_strategy = { type = "shared", dead_letter_queue = "DEAD.>" }',
            "dead_letter_strategy.shared: queue://DEAD.> must be one destination",
        ),
        (
            'dead_letter_strategy = { type = "shared", expiration = "1y" }',
            "dead_letter_strategy.shared.expiration: '1y' is not a duration",
        ),
        (
            'dead_letter_strategy = { type = "shared", expiration = [1] }',
            r"dead_letter_strategy.shared.expiration: \[1\] is not a duration",
        ),
        (
            "inactiveTimoutBeforeGC = 1",
            r"inactiveTimoutBeforeGC: there is no such attribute; did you mean inactive_timeout_before_gc\?",
        ),
        ('expire_messages_period = "500ms"', "expire_messages_period: it must be 0, or at least 1s$"),
        ('subscription_recovery_policy = "query_based"', "subscription_recovery_policy: write as its type one of"),
        (
            'subscription_recovery_policy = { type = "timed", recover_duration = "0s" }',
            "subscription_recovery_policy.timed.recover_duration: it must be above 0; given was '0s'$",
        ),
        (
            "pending_message_limit_strategy = -2",
            "pending_message_limit_strategy.constant.limit: it must be at least -1",
        ),
        (
            'pending_message_limit_strategy = { type = "prefetch_rate", multiplier = -1.0 }',
            "pending_message_limit_strategy.prefetch_rate.multiplier: it must be at least 0",
        ),
        (
            'message_eviction_strategy = "unique_property"',
            "message_eviction_strategy: write as its type one of 'oldest', 'oldest_with_lowest_priority'$",
        ),
    ],
)
def test_error_names_table_attribute_and_remedy(text: str, message: str) -> None:
    assert re.match(f"policies: table 2: {message}", error_text(f"[[policies]]\n[[policies]]\n{text}"))


@pytest.mark.parametrize("name", ["policies", "virtual_topics", "composite_queues", "composite_topics"])
def test_tables_are_written_as_tables(name: str) -> None:
    assert error_text(f'{name} = "x"') == f"{name}: it is made of tables: write [[{name}]] in the configuration file"


# ---------------------------------------------------------------- virtual destinations


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("virtual_topics = []", ()),
        (
            '[[virtual_topics]]\nname = ">"\nprefix = "VQ."\npostfix = ".q"\nselector_aware = true',
            (VirtualTopic(name=">", prefix="VQ.", postfix=".q", selector_aware=True),),
        ),
        ('[[virtual_topics]]\nname = "A"\n[[virtual_topics]]', (VirtualTopic(name="A"), VirtualTopic())),
        ("mirrored_queues = true", (VirtualTopic(), MirroredQueues())),
        ("mirrored_queues = false", (VirtualTopic(),)),
        ('[mirrored_queues]\npostfix = ".copy"', (VirtualTopic(), MirroredQueues(postfix=".copy"))),
        (
            'virtual_topics = []\n[[composite_queues]]\nname = "A.>"\nforward_to = ["B", "topic://C"]',
            (
                CompositeDestination(
                    destination=queue("A.>"),
                    forward_to=(Forward(destination=queue("B")), Forward(destination=topic("C"))),
                ),
            ),
        ),
        (
            'virtual_topics = []\n[[composite_topics]]\nname = "A"\nforward_only = false\n'
            'send_when_not_matched = true\nforward_to = [{ queue = "A", selector = "x = 1" }]',
            (
                CompositeDestination(
                    destination=topic("A"),
                    forward_to=(Forward(destination=queue("A"), selector="x = 1"),),
                    forward_only=False,
                    send_when_not_matched=True,
                ),
            ),
        ),
    ],
)
def test_tables_define_virtual_destinations(text: str, expected: tuple[Definition, ...]) -> None:
    assert definitions_of(read(text)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[virtual_topics]]\nprefix = ""', "virtual_topics: table 1: prefix or postfix must be set"),
        ('[[virtual_topics]]\nname = "A,B"', "virtual_topics: table 1: 'A,B' has a comma"),
        ("[[virtual_topics]]\nconcurrent_send = true", "virtual_topics: table 1: concurrent_send: it is an attribute"),
        ('[[composite_queues]]\nname = "A"', "composite_queues: table 1: forward_to: it must be set$"),
        ('[[composite_queues]]\nforward_to = ["A"]', "composite_queues: table 1: name: it must be set$"),
        (
            '[[composite_queues]]\nname = "A"\nforward_to = []',
            "composite_queues: table 1: write 1 to 256 targets in forward_to; given were 0$",
        ),
        (
            '[[composite_queues]]\nname = "A"\nforwardTo = []',
            r"composite_queues: table 1: forwardTo: .* did you mean forward_to\?$",
        ),
        (
            '[[composite_queues]]\nname = "A"\nforward_to = ["B.>"]',
            "composite_queues: table 1: forward_to: target 1: queue://B.> must be one destination",
        ),
        (
            '[[composite_queues]]\nname = "A"\nforward_to = ["B", { topic = "C", queue = "D" }]',
            "composite_queues: table 1: forward_to: target 2: write queue or topic, and not both",
        ),
        (
            '[[composite_queues]]\nname = "A"\nforward_to = ["temp-queue://B"]',
            "composite_queues: table 1: forward_to: target 1: temp-queue: there is no such attribute",
        ),
        (
            '[[composite_queues]]\nname = "A"\nforward_to = [{ topic = "C", selector = "a >" }]',
            "composite_queues: table 1: forward_to: target 1: ",
        ),
        (
            '[[composite_queues]]\nname = "A.>"\nforward_to = ["A.B"]',
            "composite_queues: table 1: A.> forwards to itself; write forward_only = false",
        ),
        ('[[composite_queues]]\nname = "A"\nforward_to = "B"', "composite_queues: table 1: forward_to: it is a list: "),
        ("composite_topics = [1]", "composite_topics: table 1: 1 is not a table: write"),
        ("mirrored_queues = 3", "mirrored_queues: 3 is not a table: write"),
        ("[mirrored_queues]\ncopyMessage = false", "mirrored_queues: copyMessage: it is an attribute of ActiveMQ that"),
        ('[mirrored_queues]\nprefix = "a,"', "mirrored_queues: 'a,ORDERS' has a comma"),
    ],
)
def test_errors_in_virtual_destinations(text: str, message: str) -> None:
    assert re.match(message, error_text(text), re.DOTALL)


# ---------------------------------------------------------------- the page


def blocks() -> list[str]:
    return re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def rows(heading: str) -> list[list[str]]:
    """The cells of the tables in a section."""
    section = PAGE.split(f"# {heading}\n")[1].split("\n#")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip().strip("`") for cell in cells] for cells in lines]


def shown(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case Destination():
            return value.name
        case _:
            return str(value)


def test_the_examples_are_read_and_match_their_text() -> None:
    first, second, replay, virtual, composites, mirrored, made, stamped, discarding, redelivered = (
        read(block) for block in blocks()
    )
    policies = policy_map(first.policies, DestinationPolicy())
    assert policies.for_destination(queue("X")).memory_limit == 64 << 20
    going_back = policy_map(replay.policies, DestinationPolicy()).for_destination(queue("ORDERS.EU"))
    assert going_back.network_bridge_filter_factory == ConditionalBridgeFilter(
        replay_when_no_consumers=True, replay_delay=5000
    )
    orders = policies.for_destination(queue("ORDERS.EU"))
    assert (orders.prioritized_messages, orders.memory_limit) == (True, 0)
    assert orders.dead_letter_strategy == IndividualDeadLetterStrategy(queue_prefix="DLQ.")
    prices = policies.for_destination(topic("PRICES.EU"))
    assert (prices.pending_message_limit, prices.subscription_recovery_policy) == (50, LastImageRecovery())
    ticks = policy_map(second.policies, DestinationPolicy()).for_destination(topic("TICKS.A"))
    assert ticks.pending_limit(10) == 25
    assert definitions_of(virtual) == (VirtualTopic(name="EVENTS.>", prefix="Group.*.", selector_aware=True),)
    router: Router[str] = Router(definitions_of(composites), {}, str)
    assert router.route(make_message("m", "queue://ORDERS")) is not None
    assert router.route(make_message("m", "topic://PRICES.EU")) is not None
    assert definitions_of(mirrored) == (VirtualTopic(), MirroredQueues())
    assert made.destinations == (queue("ORDERS.IN"), topic("PRICES.EUR"))
    letters = discarding.discarding_dead_letters
    assert letters is not None
    names = ("TEMP.A", "A.CACHE", "A.CACHE.B", "ORDERS")
    assert [letters.drops(queue(name)) for name in names] == [True, True, False, False]
    assert redelivered.redelivery is not None
    orders_again = redelivered.redelivery.policies.for_destination(queue("ORDERS.EU"))
    assert orders_again is not None
    delays = [orders_again.delay(count, previous, float) for count, previous in enumerate((0, 5000, 10_000, 50_000))]
    assert (orders_again.maximum_redeliveries, delays) == (4, [5000, 10_000, 20_000, 60_000])
    assert stamped.time_stamping == TimeStamping(zero_expiration_override=DAY_MS, ttl_ceiling=7 * DAY_MS)


def test_page_has_every_policy_attribute_with_its_default() -> None:
    listed = {cells[0]: cells[1] for cells in rows("Attributes of a policy")}
    assert list(listed) == list(POLICY.attributes)
    defaults = {field.name: shown(getattr(DestinationPolicy(), field.name)) for field in fields(DestinationPolicy)}
    special = {
        "pending_message_limit_strategy": defaults.pop("pending_message_limit"),
        "message_eviction_strategy": Eviction.OLDEST.value,
        "subscription_recovery_policy": "no",
        "dead_letter_strategy": "shared",
        "gc_inactive_destinations": "true",
    }
    assert DestinationPolicy().gc_inactive_destinations is None  # but for those of the setting `destinations`
    assert DestinationPolicy().message_eviction_strategy is Eviction.OLDEST
    assert DestinationPolicy().dead_letter_strategy == SharedDeadLetterStrategy()
    assert defaults.pop("pending_message_limit_multiplier") == defaults["subscription_recovery_policy"] == "none"
    destinations = dict.fromkeys(("queue", "topic", "temp_queue", "temp_topic"), "none")
    assert listed == destinations | defaults | special


def test_the_page_has_every_recovery_policy() -> None:
    assert [cells[:3] for cells in rows("Recovery for retroactive consumers")] == [
        ["no", "", ""],
        ["last_image", "", ""],
        ["fixed_count", "maximum_size", str(FixedCountRecovery().maximum_size)],
        ["fixed_sized", "maximum_size", format_size(FixedSizeRecovery().maximum_bytes)],
        ["timed", "recover_duration", format_duration(TimedRecovery().milliseconds / 1000)],
    ]
    for name, attribute, default, _ in rows("Recovery for retroactive consumers"):
        text = f', {attribute} = "{default}"' if attribute else ""
        explicit = policy(f'subscription_recovery_policy = {{ type = "{name}"{text} }}'.replace('"100"', "100"))
        assert explicit == policy(f'subscription_recovery_policy = "{name}"')


def test_the_page_has_every_attribute_of_dead_letter_strategies() -> None:
    found = rows("Dead letters")
    assert [cells[0] for cells in found[:3]] == list(DEAD_LETTER_STRATEGIES)
    strategies: dict[str, Any] = {"shared": SharedDeadLetterStrategy(), "individual": IndividualDeadLetterStrategy()}
    for name, strategy in strategies.items():
        listed = {cells[0]: cells[2] for cells in found[3:] if cells[1] in (name, "both")}
        assert listed == {field.name: shown(getattr(strategy, field.name)) for field in fields(strategy)}
        assert set(listed) == set(DEAD_LETTER_STRATEGIES[name].attributes)


@pytest.mark.parametrize(
    ("heading", "table", "core"),
    [
        ("Virtual topics", VIRTUAL_TOPIC, VirtualTopic()),
        (
            "Composite queues and topics",
            COMPOSITE_QUEUE,
            CompositeDestination(destination=parse("A"), forward_to=()),
        ),
        ("Mirrored queues", MIRRORED_QUEUES, MirroredQueues()),
        ("Time stamps", TIME_STAMPING, TimeStamping()),
        ("Discarded dead letters", DISCARDING_DEAD_LETTERS, DiscardedLetters()),
        ("Redelivery by the broker", REDELIVERY, RedeliveryRules(policies=EntryMap((), None))),
    ],
)
def test_the_page_has_every_attribute_of_other_tables(heading: str, table: Table[Any], core: Any) -> None:
    listed = {cells[0]: cells[1] for cells in rows(heading)}
    assert list(listed) == list(table.attributes)
    for name, default in listed.items():
        if name not in ("forward_to", "policies", "drop_only") and not (
            heading.startswith("Composite") and name == "name"
        ):
            assert shown(getattr(core, name)) == default


@pytest.mark.parametrize(
    "table",
    [
        POLICY,
        VIRTUAL_TOPIC,
        COMPOSITE_QUEUE,
        MIRRORED_QUEUES,
        TIME_STAMPING,
        REDELIVERY_POLICY,
        DISCARDING_DEAD_LETTERS,
    ],
)
def test_no_attribute_is_among_those_not_served(table: Table[Any]) -> None:
    """Otherwise ActiveMQ's spelling of its name would be refused as not supported."""
    assert not table.attributes.keys() & set(table.not_served)


# ---------------------------------------------------------------- every message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("time_stamping = false", None),
        ("time_stamping = true", ArrivalRules(time_stamping=TimeStamping())),
        (
            '[time_stamping]\nzero_expiration_override = "1min"\nttl_ceiling = "500ms"\nfuture_only = true\n'
            "process_network_messages = true\n",
            ArrivalRules(
                time_stamping=TimeStamping(
                    zero_expiration_override=60_000, ttl_ceiling=500, future_only=True, process_network_messages=True
                )
            ),
        ),
        ("populate_jmsx_user_id = true", ArrivalRules(populates_user=True)),
        ('force_persistency_mode = "persistent"', ArrivalRules(persistency=True)),
        ('force_persistency_mode = "non_persistent"', ArrivalRules(persistency=False)),
    ],
)
def test_settings_change_messages(text: str, expected: ArrivalRules | None) -> None:
    assert arrival_rules(read(text)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[time_stamping]\nttlCeiling = "1s"', "did you mean ttl_ceiling?"),
        ("[time_stamping]\nttl_ceiling = -1", "time_stamping: ttl_ceiling: -1 is not a duration"),
        ("[discarding_dead_letters]\ndrop_only = 'A'", "drop_only goes with drop_all = false"),
        (
            "[discarding_dead_letters]\ndrop_all = false\ndrop_only = ['A', '(B']",
            "discarding_dead_letters: drop_only: expression 2: '(B' is no valid regular expression",
        ),
        ("[discarding_dead_letters]\ndropOnly = 5", "did you mean drop_only?"),
        (
            f"[discarding_dead_letters]\ndrop_all = false\ndrop_only = '{'A ' * 51}'",
            "at most 50 expressions are allowed",
        ),
        ("redelivery = true", "redelivery: True is not a table"),
        (
            '[[redelivery.policies]]\nredelivery_delay = "500ms"',
            "policies: table 1: redelivery_delay: it must be at least 1s",
        ),
        ('[[redelivery.policies]]\ntopic = ">"', "topic: it is an attribute of ActiveMQ that pybroker does not have"),
        ("[redelivery]\nfall_back = true", "known are fallback_to_dead_letter"),
        ("scheduler = false\n[redelivery]", "redelivery goes with scheduler = yes"),
        ("force_persistency_mode = true", "force_persistency_mode: it must be 'persistent' or 'non_persistent'"),
        ("time_stamping = 5", "time_stamping: 5 is not a table"),
    ],
)
def test_errors_in_tables_for_messages(text: str, message: str) -> None:
    assert message in error_text(text)


def test_page_has_every_attribute_of_a_redelivery_policy() -> None:
    listed = {cells[0]: cells[1] for cells in rows("Attributes of a redelivery policy")}
    assert list(listed) == list(REDELIVERY_POLICY.attributes)
    special = {"queue": "", "maximum_redelivery_delay": "none"}
    default = RedeliveryPolicy()
    assert default.maximum_redelivery_delay == -1
    for name, value in listed.items():
        given: Any = special[name] if name in special else getattr(default, name)
        assert value == (
            format_duration(given / 1000) if name.endswith("_delay") and name not in special else shown(given)
        )


def test_redelivery_policies_are_chosen_by_queue() -> None:
    text = """
        [redelivery]
        send_to_dlq_if_max_retries_exceeded = false
        [[redelivery.policies]]
        maximum_redeliveries = 1
        [[redelivery.policies]]
        queue = "A.>"
        maximum_redeliveries = -1
        maximum_redelivery_delay = "10min"
        use_collision_avoidance = true
        collision_avoidance_percent = 20
    """
    rules = read(text).redelivery
    assert rules is not None
    assert (rules.send_to_dlq_if_max_retries_exceeded, rules.fallback_to_dead_letter) == (False, True)
    assert rules.policies.for_destination(queue("B")) == RedeliveryPolicy(maximum_redeliveries=1)
    assert rules.policies.for_destination(queue("A.x")) == RedeliveryPolicy(
        maximum_redeliveries=-1,
        maximum_redelivery_delay=600_000,
        use_collision_avoidance=True,
        collision_avoidance_percent=20,
    )


@pytest.mark.parametrize(("text", "expected"), [("", False), ("[redelivery]", True)])
def test_broker_redelivers_if_the_table_is_there(text: str, expected: bool) -> None:
    broker = make_broker(read(text), MemoryStore())
    assert (broker.dead_letters.redelivery is not None) is expected


@pytest.mark.parametrize(
    ("text", "dropped"),
    [
        ("discarding_dead_letters = false", []),
        ("[discarding_dead_letters]\ndrop_all = false", ["temp-queue://t", "temp-topic://t"]),
        ("[discarding_dead_letters]\ndrop_all = false\ndrop_temporary_queues = false", ["temp-topic://t"]),
        (
            "[discarding_dead_letters]\ndrop_all = false\ndrop_temporary_topics = false\ndrop_only = 'X A.*'",
            ["queue://A.x", "topic://A.x", "temp-queue://t"],
        ),
        (
            "[discarding_dead_letters]\ndrop_all = false\ndrop_temporary_topics = false\ndrop_only = ['t', 'A']",
            ["temp-queue://t", "temp-topic://t"],
        ),
        (
            "discarding_dead_letters = true",
            ["queue://A.x", "topic://A.x", "temp-queue://t", "temp-topic://t", "queue://BA.x"],
        ),
    ],
)
def test_dead_letters_are_dropped_by_destination(text: str, dropped: list[str]) -> None:
    letters = make_broker(read(text), MemoryStore()).dead_letters.discarded
    names = ["queue://A.x", "topic://A.x", "temp-queue://t", "temp-topic://t", "queue://BA.x"]
    assert [name for name in names if letters is not None and letters.drops(parse(name))] == dropped


@pytest.mark.parametrize(
    ("text", "interval", "periods"),
    [
        ("", 30, (None, None)),
        ("expire_interval = 7", 7, (None, None)),
        ('[[policies]]\nqueue = "A"\nexpire_messages_period = "5s"', 5, (5000, 30_000)),
        ('[[policies]]\nqueue = "A"\nexpire_messages_period = "2min"', 30, (120_000, None)),
        ('[[policies]]\nqueue = "A"\nexpire_messages_period = 0', 30, (0, None)),
    ],
)
def test_sweeps_are_as_often_as_any_destination_wants(
    text: str, interval: float, periods: tuple[int | None, int | None]
) -> None:
    settings = read(text)
    assert sweep_interval(settings) == interval
    broker = make_broker(settings, MemoryStore())
    assert tuple(broker.policy(queue(name)).expire_messages_period for name in ("A", "B")) == periods
