"""Rights: what users may do by the rules in force, and what happens when these change."""

import logging
import time
from collections.abc import Callable
from functools import partial

import pytest

from pybroker.broker.core.policy import DestinationPolicy, FixedCountRecovery
from pybroker.broker.core.rights import Authorization
from pybroker.broker.core.virtual import CompositeDestination, Forward
from pybroker.broker.domain.destination import Destination, parse, parts_to_consume, queue, topic
from pybroker.broker.domain.errors import InvalidDestination, TransactionError, UnknownTransaction
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.rules import Grants, Rule, Rules
from pybroker.broker.domain.security import AccessDenied, User
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId
from pybroker.store.memory import MemoryStore
from tests.compiled import interpreted
from tests.unit.core.conftest import Client, Inbox, World, make_message

ADMIN = User("root", frozenset(("admins",)))
ANN = User("ann", frozenset(("users",)))
BOB = User("bob", frozenset(("others", "more")))


def grants(read: str = "", write: str = "", admin: str = "") -> Grants:
    return Grants(*(frozenset(each.split()) for each in (read, write, admin)))


def rule(name: str, read: str = "", write: str = "", admin: str = "") -> Rule:
    return Rule(parse(name), grants(read, write, admin))


EVERYTHING = (rule("queue://>", "admins", "admins", "admins"), rule("topic://>", "admins", "admins", "admins"))
RULES = Rules(
    (
        *EVERYTHING,
        rule("queue://U.>", "users", "users", "users"),
        rule("topic://U.>", "users", "users", "users"),
        rule("queue://RW.x", read="others", write="users"),
        rule("queue://OPEN", "*", "*"),
        rule("topic://ActiveMQ.Advisory.Queue", read="users"),
    )
)


def world(rules: Rules = RULES, **policy: object) -> World:
    made = World(MemoryStore(), DestinationPolicy(**policy), rules=rules)  # type: ignore[arg-type]
    for name in ("queue://RW.x", "queue://OPEN", "queue://S.secret", "topic://S.secret"):
        made.broker.destinations.ensure(parse(name))
    return made


def denied(act: Callable[[], object], text: str) -> None:
    with pytest.raises(AccessDenied) as refused:
        act()
    assert str(refused.value) == f"User {text}"


def subscribe(client: Client, name: str, **request: object) -> Inbox:
    first, *others = parts_to_consume(parse(name))
    return client.subscribe(str(first), composite=tuple(others), **request)


# ---------------------------------------------------------------- one destination


def test_sending_needs_write_and_creating_needs_admin() -> None:
    client = world().client(user=ANN)
    client.send("queue://U.new", "1")
    client.send("queue://RW.x", "2")
    denied(lambda: client.send("queue://S.secret", "3"), "ann is not authorized to write to: queue://S.secret")
    denied(lambda: client.send("queue://S.missing", "3"), "ann is not authorized to write to: queue://S.missing")
    denied(lambda: client.send("topic://S.secret", "3"), "ann is not authorized to write to: topic://S.secret")


def test_the_right_to_write_alone_creates_nothing() -> None:
    made = world(Rules((rule("queue://W.>", write="users"), rule("queue://R.>", read="users"))))
    client = made.client(user=ANN)
    denied(lambda: client.send("queue://W.a", "1"), "ann is not authorized to create: queue://W.a")
    denied(lambda: client.subscribe("queue://R.a"), "ann is not authorized to create: queue://R.a")
    assert queue("W.a") not in made.broker.queues
    assert queue("R.a") not in made.broker.queues


def test_consuming_and_browsing_need_read() -> None:
    made = world()
    ann, bob = made.client(user=ANN), made.client(user=BOB)
    bob.subscribe("queue://RW.x")
    bob.subscribe("queue://RW.x", browser=True)
    for act in (ann.subscribe, partial(ann.subscribe, browser=True)):
        denied(partial(act, "queue://RW.x"), "ann is not authorized to read from: queue://RW.x")
    denied(
        lambda: ann.subscribe("topic://S.secret", subscription_name="d"),
        "ann is not authorized to read from: topic://S.secret",
    )


def test_every_user_has_the_rights_of_a_star() -> None:
    client = world().client(user=User("nemo", frozenset()))
    inbox = client.subscribe("queue://OPEN")
    client.send("queue://OPEN", "1")
    assert inbox.ids == ["1"]


def test_a_producer_of_a_destination_is_refused_when_it_begins() -> None:
    client = world().client(user=ANN)
    denied(
        lambda: client.connection.add_producer(ProducerId("c", 1, 1), queue("S.secret")),
        "ann is not authorized to write to: queue://S.secret",
    )
    assert not client.connection.producers


def test_removing_needs_admin_whoever_made_it() -> None:
    made = world()
    ann, bob = made.client(user=ANN), made.client(user=BOB)
    ann.send("queue://U.a", "1")
    denied(lambda: bob.connection.remove_destination(queue("U.a")), "bob is not authorized to remove: queue://U.a")
    bob.connection.remove_destination(queue("MISSING"))
    ann.connection.remove_destination(queue("U.a"))
    assert queue("U.a") not in made.broker.queues


def test_adding_an_existing_destination_needs_nothing() -> None:
    client = world().client(user=ANN)
    client.connection.add_destination(queue("S.secret"))
    denied(lambda: client.connection.add_destination(queue("S.new")), "ann is not authorized to create: queue://S.new")


def test_unsubscribing_needs_read() -> None:
    made = world()
    made.client("id", ADMIN).subscribe("topic://S.secret", subscription_name="d").consumer.close()
    client = made.client(user=ANN)
    denied(lambda: client.connection.unsubscribe("id", "d"), "ann is not authorized to read from: topic://S.secret")
    made.client(user=ADMIN).connection.unsubscribe("id", "d")


def test_the_default_is_added_to_the_rules_that_cover_a_name() -> None:
    made = world(Rules((rule("queue://A", read="users"),), default=grants(write="*", admin="*")))
    client = made.client(user=ANN)
    client.send("queue://A", "1")
    assert client.subscribe("queue://A").ids == ["1"]
    denied(lambda: client.subscribe("queue://B"), "ann is not authorized to read from: queue://B")


def test_a_transaction_takes_no_message_that_is_denied() -> None:
    client = world().client(user=ANN)
    transaction = client.connection.begin()
    assert isinstance(transaction, LocalTransactionId)
    denied(
        lambda: client.send("queue://S.secret", "1", transaction=transaction),
        "ann is not authorized to write to: queue://S.secret",
    )


def test_dead_letters_need_no_right() -> None:
    made = world()
    client = made.client(user=ANN)
    client.send("queue://U.a", "1", expiration=made.now_ms - 1)
    assert queue("ActiveMQ.DLQ") in made.broker.queues
    denied(lambda: client.subscribe("queue://ActiveMQ.DLQ"), "ann is not authorized to read from: queue://ActiveMQ.DLQ")


def test_a_client_does_not_create_the_dead_letter_queue_without_right() -> None:
    made = world(Rules((rule("queue://ActiveMQ.DLQ", write="users"),)))
    denied(
        lambda: made.client(user=ANN).send("queue://ActiveMQ.DLQ", "1"),
        "ann is not authorized to create: queue://ActiveMQ.DLQ",
    )


# ---------------------------------------------------------------- several destinations


def test_a_composite_name_is_judged_part_by_part() -> None:
    client = world().client(user=ANN)
    client.send("queue://U.a,RW.x,topic://U.t", "1")
    denied(lambda: client.send("queue://U.a,S.secret", "1"), "ann is not authorized to write to: U.a,S.secret")
    denied(lambda: subscribe(client, "queue://U.a,S.secret"), "ann is not authorized to read from: U.a,S.secret")
    assert subscribe(client, "queue://U.a,OPEN").ids == ["1"]


def test_a_composite_of_temporary_type_gives_no_way_to_a_queue() -> None:
    client = world().client(user=ANN)
    denied(
        lambda: client.send("temp-queue://queue://S.secret,queue://S.secret", "1"),
        "ann is not authorized to write to: queue://S.secret,queue://S.secret",
    )


def test_a_wildcard_of_queues_covers_those_that_may_be_read() -> None:
    made = world()
    admin, ann = made.client(user=ADMIN), made.client(user=ANN)
    admin.send("queue://U.a", "1")
    admin.send("queue://S.a", "2")
    inbox = ann.subscribe("queue://*.a")
    browsed = ann.subscribe("queue://*.a", browser=True)
    later = "queue://V.a", "queue://U.a"
    for name in later:
        admin.send(name, "3")
    assert inbox.ids == ["1", "3"]
    assert browsed.ids == ["1"]
    assert inbox.consumer.match_count == 1
    admin.send("queue://U.new.a", "4")
    admin.send("queue://U.b", "5")
    assert ann.subscribe("queue://U.>").ids == ["4", "5"]


def test_a_wildcard_that_can_cover_nothing_readable_is_refused() -> None:
    made = world(Rules((*EVERYTHING, rule("queue://U.>", read="users"))))
    client = made.client(user=ANN)
    denied(lambda: client.subscribe("queue://S.*"), "ann is not authorized to read from: queue://S.*")
    assert not client.subscribe("queue://>").consumer.match_count
    assert queue(">") not in made.broker.queues
    client.subscribe("queue://*.x")


def test_a_wildcard_of_topics_covers_those_that_may_be_read() -> None:
    made = world()
    admin, ann = made.client(user=ADMIN), made.client(user=ANN)
    everything, some = admin.subscribe("topic://*.a"), ann.subscribe("topic://*.a")
    for name in ("U.a", "S.a"):
        admin.send(f"topic://{name}", name)
    assert everything.ids == ["U.a", "S.a"]
    assert some.ids == ["U.a"]
    ann.connection.close()
    admin.send("topic://U.a", "3")
    assert everything.ids[2:] == ["3"]


def test_the_history_of_topics_covers_those_that_may_be_read() -> None:
    made = world(subscription_recovery_policy=FixedCountRecovery(10), always_retroactive=True)
    admin = made.client(user=ADMIN)
    for name in ("U.a", "S.a"):
        admin.send(f"topic://{name}", name)
    assert made.client(user=ANN).subscribe("topic://*.a").ids == ["U.a"]


def test_a_durable_wildcard_delivers_what_may_be_read() -> None:
    made = world()
    admin = made.client(user=ADMIN)
    ann = made.client("id", ANN)
    inbox = ann.subscribe("topic://*.a", subscription_name="d")
    for name in ("U.a", "S.a"):
        admin.send(f"topic://{name}", name)
    assert inbox.ids == ["U.a"]
    inbox.ack()
    ann.connection.close()
    for name in ("S.a", "U.a", "T.a"):
        admin.send(f"topic://{name}", f"{name} later")
    again = made.client("id", ANN).subscribe("topic://*.a", subscription_name="d")
    assert again.ids == ["U.a later"]
    again.ack()
    assert made.broker.durables["id:d"].pending.count == 0
    assert not made.broker.topics[topic("S.a")].is_kept_now, "it does not cover what its user may not read"


def test_advisories_are_those_that_may_be_read() -> None:
    made = world()
    ann, admin = made.client(user=ANN), made.client(user=ADMIN)
    admin.send("queue://EARLY", "1")
    inbox = ann.subscribe("topic://ActiveMQ.Advisory.>")
    admin.send("queue://LATE", "1")
    admin.subscribe("queue://LATE")
    subjects = {message.destination.name for message in inbox.messages.values()}
    assert subjects == {"ActiveMQ.Advisory.Queue"}
    temporary = made.client(user=BOB).subscribe(
        "topic://ActiveMQ.Advisory.TempQueue", composite=(topic("ActiveMQ.Advisory.TempTopic"),)
    )
    admin.connection.add_destination(parse(f"temp-queue://{admin.connection.connection_id}:1"))
    assert len(temporary.deliveries) == 1, "each client needs them, and may read them without a rule"
    denied(
        lambda: made.client(user=BOB).subscribe("topic://ActiveMQ.Advisory.Connection"),
        "bob is not authorized to read from: topic://ActiveMQ.Advisory.Connection",
    )


def test_a_client_publishes_no_advisories() -> None:
    made = world(Rules((rule("topic://>", "users", "users", "users"), rule("queue://>", "users", "users", "users"))))
    client = made.client(user=ANN)
    inbox = client.subscribe("topic://ActiveMQ.Advisory.Mine")
    client.connection.add_producer(ProducerId("c", 1, 1), topic("ActiveMQ.Advisory.Mine"))
    client.send("topic://ActiveMQ.Advisory.Mine", "forged")
    transaction = client.connection.begin()
    assert isinstance(transaction, LocalTransactionId)
    client.send("topic://ActiveMQ.Advisory.Mine", "forged", transaction=transaction)
    client.connection.commit(transaction)
    assert not inbox.deliveries
    denied(
        lambda: client.send("queue://U.a,topic://ActiveMQ.Advisory.Mine", "forged"),
        "ann is not authorized to write to: U.a,topic://ActiveMQ.Advisory.Mine",
    )


# ---------------------------------------------------------------- destinations of the broker's settings


def test_a_forward_needs_a_right_to_the_named_destination_only() -> None:
    made = world()
    forwarding = CompositeDestination(destination=queue("U.c"), forward_to=(Forward(destination=queue("S.made")),))
    made.broker.destinations.router._add(forwarding)
    client = made.client(user=ANN)
    client.send("queue://U.c", "1")
    assert made.client(user=ADMIN).subscribe("queue://S.made").ids == ["1"]


def test_copies_of_a_virtual_topic_need_a_right_to_the_topic_only() -> None:
    made = world(Rules((*EVERYTHING, rule("topic://VirtualTopic.>", write="users", admin="users"))))
    inbox = made.client(user=ADMIN).subscribe("queue://Consumer.s.VirtualTopic.a")
    ann = made.client(user=ANN)
    ann.send("topic://VirtualTopic.a", "1")
    assert inbox.ids == ["1"]
    denied(
        lambda: ann.subscribe("queue://Consumer.s.VirtualTopic.a"),
        "ann is not authorized to read from: queue://Consumer.s.VirtualTopic.a",
    )


# ---------------------------------------------------------------- temporary destinations


@pytest.mark.parametrize(
    ("name", "rule_name"),
    [
        ("queue://>", "queue://*"),
        ("queue://Consumer.a.>", "queue://Consumer.a.*"),
        ("queue://Consumer.a.VirtualTopic.>", "queue://Consumer.a.VirtualTopic.*"),
        ("queue://Consumer.a.VirtualTopic.>", "queue://Consumer.a.VirtualTopic.*.>"),
    ],
)
def test_a_queue_for_several_virtual_topics_needs_a_rule_that_covers_them_all(name: str, rule_name: str) -> None:
    made = world(Rules((*EVERYTHING, rule(rule_name, "users", "users", "users"))))
    client = made.client(user=ANN)
    inbox = client.subscribe(name)
    made.client(user=ADMIN).send("topic://VirtualTopic.deep.secret", "1")
    assert inbox.ids == []
    denied(lambda: client.send(name, "2"), f"ann is not authorized to write to: {name}")
    client.connection.close()
    made.broker.use_rules(Rules((*EVERYTHING, rule(name, "users", "users", "users"))))
    inbox = made.client(user=ANN).subscribe(name)
    made.client(user=ADMIN).send("topic://VirtualTopic.deep.secret", "3")
    assert inbox.ids == ["3"]


def test_temporary_destinations_are_free_without_a_rule() -> None:
    made = world()
    ann, bob = made.client(user=ANN), made.client(user=BOB)
    reply = parse(f"temp-queue://{ann.connection.connection_id}:1")
    ann.connection.add_destination(reply)
    inbox = ann.subscribe(str(reply))
    bob.send(str(reply), "answer")
    assert inbox.ids == ["answer"]
    inbox.consumer.close()
    denied(lambda: bob.connection.remove_destination(reply), f"bob is not authorized to remove: {reply}")
    ann.connection.remove_destination(reply)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (grants("users", "users"), "create"),
        (grants("", "users", "users"), "read from"),
        (grants("users", "", "users"), "write to"),
    ],
)
def test_temporary_destinations_by_a_rule(given: Grants, text: str) -> None:
    client = world(Rules(EVERYTHING, temporary=given)).client(user=ANN)
    reply = parse(f"temp-queue://{client.connection.connection_id}:1")

    def use() -> None:
        client.connection.add_destination(reply)
        client.subscribe(str(reply))
        client.send(str(reply), "1")

    denied(use, f"ann is not authorized to {text}: {reply}")
    assert (reply in client.connection.temporaries) is not text.startswith("create")


# ---------------------------------------------------------------- rules that change


def use(made: World, *rules: Rule, default: Grants = Grants()) -> None:  # noqa: B008 - a frozen value
    made.broker.use_rules(Rules((*EVERYTHING, *rules), default))


def test_other_rules_concern_the_next_send() -> None:
    made = world()
    client = made.client(user=ANN)
    client.send("queue://U.a", "1")
    use(made, rule("queue://RW.x", write="users"))
    denied(lambda: client.send("queue://U.a", "1"), "ann is not authorized to write to: queue://U.a")
    assert client.throttle.error is None
    client.send("queue://RW.x", "1")


@pytest.mark.parametrize("name", ["queue://U.a", "queue://U.*", "topic://U.t", "topic://U.>"])
def test_consumers_that_may_not_read_any_more_are_cut_off(name: str) -> None:
    made = world()
    losing, staying, admin = made.client(user=ANN), made.client(user=BOB), made.client(user=ADMIN)
    losing.subscribe(name)
    staying.subscribe("queue://RW.x")
    admin.subscribe(name)
    use(made, rule("queue://RW.x", read="others"))
    assert isinstance(losing.throttle.error, AccessDenied)
    assert str(losing.throttle.error) == f"The rights of user ann to {name} have changed"
    assert staying.throttle.error is None
    assert admin.throttle.error is None


def test_a_wildcard_that_gains_a_destination_subscribes_again() -> None:
    made = world()
    client = made.client(user=ANN)
    client.subscribe("topic://*.a")
    use(made, *RULES.rules)
    assert client.throttle.error is None
    use(made, *RULES.rules, rule("topic://S.a", read="users"))
    assert client.throttle.error is not None


def test_a_destination_is_looked_up_anew_under_other_rules() -> None:
    made = world()
    client = made.client(user=ANN)
    denied(lambda: client.subscribe("queue://S.secret"), "ann is not authorized to read from: queue://S.secret")
    use(made, default=grants("users"))
    client.subscribe("queue://S.secret")


def test_other_rules_take_little_time_however_many_users_have_groups_of_their_own() -> None:
    """They are put in force in one piece; 2,000 rules are `rules_toml.RULES_MAX`."""

    def rules(level: str) -> Rules:
        return Rules(tuple(rule(f"queue://{number}.{level}.>", f"users {number}") for number in range(2_000)))

    authorization = Authorization(rules("a"))
    users = [User(f"{number}", frozenset(("users", f"{number}"))) for number in range(300)]
    known = [rights for user in users if (rights := authorization.rights(user)) is not None]
    assert all(rights.may_read_some(queue("1.a.>")) for rights in known)
    others = rules("b")
    began = time.thread_time()
    authorization.replace(others)
    assert time.thread_time() - began < 1.0
    assert len(known) == len([each for each in known if each.has_changed_for(queue("1.>"))]) == 300
    assert not [each for each in known if each.has_changed_for(queue("1.c.>"))]


def test_without_rules_every_user_may_do_everything() -> None:
    made = World(MemoryStore())
    client = made.client(user=ANN)
    assert client.connection.rights is None
    client.send("topic://ActiveMQ.Advisory.Mine", "1")
    client.connection.remove_destination(queue("x"))


@interpreted
def test_what_is_remembered_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.broker.core.rights.REMEMBERED_MAX", 10)
    made = world()
    client = made.client(user=ADMIN)
    rights = client.connection.rights
    assert rights is not None
    for number in range(35):
        client.send(f"queue://{number}", "1")
        client.subscribe(f"queue://{number}").consumer.close()
    assert len(rights.writable) <= 10
    assert len(rights._readable) <= 10


def test_users_of_the_same_groups_share_what_is_remembered() -> None:
    made = world()
    one = made.client(user=ANN).connection
    other = made.client(user=User("eve", frozenset(("users",)))).connection
    assert one.rights is other.rights
    assert one.rights is not made.client(user=BOB).connection.rights
    message = make_message("1", "queue://S.secret")
    denied(lambda: other.send(message), "eve is not authorized to write to: queue://S.secret")


def test_the_answer_names_several_destinations_without_prefix() -> None:
    client = world().client(user=ANN)
    named: tuple[Destination, ...] = (queue("S.a"), queue("S.b"))
    denied(lambda: client.subscribe(str(named[0]), composite=named[1:]), "ann is not authorized to read from: S.a,S.b")


def test_other_rules_twice_in_a_row() -> None:
    made = world()
    clients = [made.client(user=ANN) for _ in range(3)]
    for client in clients:
        client.subscribe("topic://*.a")
    more = rule("topic://S.a", read="users")
    use(made, *RULES.rules, more)
    use(made, *RULES.rules, more)
    assert all(client.throttle.error is not None for client in clients)


# ---------------------------------------------------------------- durable subscriptions of others


def leave(made: World, user: User, name: str, *sent: str) -> None:
    """Leave a durable subscription of a user, with messages."""
    client = made.client("id", user)
    client.subscribe(name, subscription_name="d")
    client.connection.close()
    for each in sent:
        made.client(user=ADMIN).send(f"topic://{each}", each)


@pytest.mark.parametrize("name", ["topic://>", "topic://S.secret", "topic://*.secret"])
def test_the_subscription_of_another_stays(name: str) -> None:
    made = world()
    leave(made, User("root", ADMIN.groups, is_certain=False), name, "S.secret")  # so that it has no user
    client = made.client("id", ANN)
    for act in (
        lambda: client.subscribe(name, subscription_name="d"),
        lambda: client.subscribe("topic://U.a", subscription_name="d"),
        lambda: client.connection.unsubscribe("id", "d"),
    ):
        with pytest.raises(AccessDenied, match="User ann is not authorized to read from: topic://"):
            act()
    client.connection.close()
    assert made.client("id", ADMIN).subscribe(name, subscription_name="d").ids == ["S.secret"]


def test_a_durable_wildcard_needs_a_topic_that_may_be_read() -> None:
    made = world()
    client = made.client("id", User("nemo", frozenset()))
    for name in ("topic://>", "topic://*.*.*", "topic://ActiveMQ.>"):
        denied(partial(client.subscribe, name, subscription_name="d"), f"nemo is not authorized to read from: {name}")
    assert not made.broker.durables


def test_a_backlog_waits_while_its_user_has_lost_the_right() -> None:
    made = world()
    leave(made, ANN, "topic://U.>", "U.a", "U.b")
    use(made, rule("topic://U.a", "users", "users", "users"))
    client = made.client("id", ANN)
    denied(
        lambda: client.subscribe("topic://U.>", subscription_name="d"),
        "ann is not authorized to read from: topic://U.b",
    )
    use(made, *RULES.rules)
    assert client.subscribe("topic://U.>", subscription_name="d").ids == ["U.a", "U.b"]


def test_a_durable_wildcard_covers_what_its_user_gains() -> None:
    made = world()
    leave(made, ANN, "topic://*.a", "S.a")
    use(made, *RULES.rules, rule("topic://S.a", read="users"))
    made.client(user=ADMIN).send("topic://S.a", "not covered yet")
    client = made.client("id", ANN)
    inbox = client.subscribe("topic://*.a", subscription_name="d")
    made.client(user=ADMIN).send("topic://S.a", "covered")
    assert inbox.ids == ["covered"]


def test_after_a_restart_what_its_user_may_not_read_is_dropped() -> None:
    made = world()
    leave(made, ANN, "topic://*.a", "U.a")
    made.start()
    for name in ("S.a", "U.a"):
        made.client(user=ADMIN).send(f"topic://{name}", f"{name} later")
    client = made.client("id", ANN)
    inbox = client.subscribe("topic://*.a", subscription_name="d")
    assert inbox.ids == ["U.a", "U.a later"]
    for _ in range(2):
        inbox.ack()
        del inbox.deliveries[0]
    assert made.broker.durables["id:d"].pending.count == 0
    client.connection.close()
    made.client("id", ANN).subscribe("topic://*.a", subscription_name="d")


# ---------------------------------------------------------------- XA transactions of others


XID = XATransactionId(1, b"global", b"branch")


def test_a_transaction_belongs_to_its_user() -> None:
    made = world()
    ann, bob, admin = (made.client(user=each) for each in (ANN, BOB, ADMIN))
    ann.connection.begin(XID)
    for act in (bob.connection.rollback, bob.connection.prepare, bob.connection.commit):
        with pytest.raises(UnknownTransaction):
            act(XID)
    with pytest.raises(TransactionError, match="is a transaction of another user"):
        bob.connection.begin(XID)
    ann.connection.send(make_message("1", "queue://U.a"), XID)
    ann.connection.prepare(XID)
    assert not bob.connection.in_doubt()
    assert ann.connection.in_doubt() == [XID]
    assert admin.connection.in_doubt() == [XID]
    admin.connection.commit(XID, prepared=True)
    assert ann.subscribe("queue://U.a").ids == ["1"]


# ---------------------------------------------------------------- names, and what the broker does for clients


def test_long_and_composite_names_are_not_remembered() -> None:
    made = world()
    client = made.client(user=ANN)
    rights = client.connection.rights
    assert rights is not None
    client.send("queue://U.a,U.b", "1")
    with pytest.raises(InvalidDestination):
        client.send("queue://U." + "x" * 2000, "1")
    assert all(len(each.name) <= 1024 and not each.is_composite for each in rights.writable)


def test_a_topic_is_in_use_by_those_who_may_read_it() -> None:
    made = world()
    made.client(user=ANN).subscribe("topic://>")
    admin = made.client(user=ADMIN)
    for _ in range(2):
        admin.send("topic://S.secret", "1")
        admin.connection.remove_destination(topic("S.secret"))


def test_a_queue_that_is_named_like_an_advisory_is_a_queue() -> None:
    made = world(Rules((rule("queue://>", read="users"),)))
    denied(
        lambda: made.client(user=ANN).subscribe("queue://ActiveMQ.Advisory.x"),
        "ann is not authorized to create: queue://ActiveMQ.Advisory.x",
    )


@pytest.mark.parametrize("name", ["other:1", "c1", "c11:1", "c1:1:1"])
def test_a_temporary_destination_has_the_name_of_its_connection(name: str) -> None:
    """`c1:1:1` is one of a connection called `c1:1`."""
    connection = world().client(user=ANN).connection
    with pytest.raises(InvalidDestination, match="no name for a temporary destination of this connection"):
        connection.add_destination(parse(f"temp-queue://{name}"))
    connection.add_destination(parse(f"temp-queue://{connection.connection_id}:1"))


def test_each_part_of_a_composite_name_is_created_by_a_right() -> None:
    client = world().client(user=ANN)
    denied(
        lambda: client.connection.add_destination(parse("queue://U.new,S.new")),
        "ann is not authorized to create: queue://S.new",
    )


# ---------------------------------------------------------------- audit


def test_acts_and_denials_are_in_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="pybroker.audit")
    made = world()
    client = made.client("id", ANN)
    client.connection.add_destination(queue("U.a"))
    client.connection.add_destination(queue("U.a"))
    client.connection.remove_destination(queue("U.a"))
    client.connection.remove_destination(queue("U.a"))
    client.subscribe("topic://U.t", subscription_name="d").consumer.close()
    client.connection.unsubscribe("id", "d")
    for act in (lambda: client.send("queue://S.secret", "1"), lambda: client.subscribe("queue://S.secret")):
        with pytest.raises(AccessDenied):
            act()
    client.subscribe("queue://U.*")
    use(made)
    lines = [each.getMessage() for each in caplog.records if each.name == "pybroker.audit"]
    assert lines == [
        f"'ann' from 10.0.0.1:50000 {what}"
        for what in (
            "created queue://U.a",
            "removed queue://U.a",
            "deleted the durable subscription id:d",
            "may not write to: queue://S.secret",
            "may not read from: queue://S.secret",
            "is disconnected: the rights to queue://U.* have changed",
        )
    ]
