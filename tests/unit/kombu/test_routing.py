"""Where messages go: the short way for a queue bound by its own name, a virtual topic otherwise."""

from pybroker.broker.domain.destination import queue, topic
from pybroker.kombu.bindings import ExchangeKind
from pybroker.kombu.routing import Declarations, DeclaredQueue


def declared(*bindings: tuple[str, str, str], kind: ExchangeKind = ExchangeKind.DIRECT) -> Declarations:
    declarations = Declarations()
    for name, exchange, key in bindings:
        declarations.kinds[exchange] = kind
        declarations.bindings.setdefault(name, set()).add(declarations.binding(name, exchange, key))
    return declarations


def test_the_default_exchange_leads_to_the_queue():
    assert declared().route("", "a.b") == queue("a.b")


def test_a_queue_bound_by_its_own_name_gets_messages_directly():
    assert declared(("celery", "celery", "celery")).route("celery", "celery") == queue("celery")


def test_an_unknown_binding_is_left_to_the_broker():
    assert declared().route("celery", "celery") == topic("VirtualTopic.kombu.celery.celery")


def test_a_second_queue_with_that_key_gets_a_copy():
    """So the broker routes: the short way would leave it out."""
    declarations = declared(("celery", "celery", "celery"), ("audit", "celery", "celery"))
    assert declarations.route("celery", "celery") == topic("VirtualTopic.kombu.celery.celery")


def test_another_key_is_left_to_the_broker():
    assert declared(("celery", "celery", "celery")).route("celery", "x") == topic("VirtualTopic.kombu.celery.x")


def test_a_fanout_of_the_same_name_is_left_to_the_broker():
    declarations = declared(("all", "all", "all"), kind=ExchangeKind.FANOUT)
    assert declarations.route("all", "all") == topic("VirtualTopic.kombu.all")


def test_a_queue_lets_its_messages_expire():
    declarations = declared()
    declarations.queues["q"] = DeclaredQueue(name="q", message_ttl=5.0)
    assert declarations.message_ttl("", "q") == 5.0
    assert declarations.message_ttl("ex", "q") is None
    assert declarations.message_ttl("", "other") is None
