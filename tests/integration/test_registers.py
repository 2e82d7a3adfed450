"""Contract of every `Register`, against real election stores; what one engine alone has is in files of its own."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from pybroker.broker.domain.errors import MalformedData
from pybroker.locks.election.record import ElectionRecord
from pybroker.locks.election.register import (
    ABSENT,
    Register,
    RegisterMalformed,
    RegisterState,
    RegisterUnavailable,
)
from tests.etcd_cluster import etcd_cluster
from tests.integration.cluster import free_port
from tests.integration.faulty_proxy import FaultyProxy
from tests.integration.register_engines import (
    PATIENT_SECONDS,
    RECORD,
    RegisterEngine,
    engine_of,
    engines,
    record,
)
from tests.integration.stalling_proxy import StallingProxy
from tests.kubernetes_cluster import kubernetes_cluster
from tests.pace import in_time
from tests.postgres_cluster import postgres_cluster, postgres_database

__all__ = ["etcd_cluster", "kubernetes_cluster", "postgres_cluster", "postgres_database"]

SHORT_SECONDS = 0.4
"""Time-out of a call that is to have no answer."""


@pytest.fixture(params=engines("etcd", "postgres", "kubernetes"))
def engine(request: pytest.FixtureRequest) -> Iterator[RegisterEngine]:
    yield from engine_of(request)


class Seen:
    """What a watch has called back with."""

    def __init__(self) -> None:
        self.states: queue.SimpleQueue[RegisterState] = queue.SimpleQueue()

    def wait_for(self, condition: Callable[[RegisterState], bool]) -> RegisterState:
        """Wait for a state."""
        while not condition(state := self.states.get(timeout=PATIENT_SECONDS)):
            pass
        return state

    def wait_for_nonce(self, nonce: str) -> RegisterState:
        """Wait for a record."""
        return self.wait_for(lambda state: state.record is not None and state.record.nonce == nonce)


def created(register: Register) -> RegisterState:
    """Create the record."""
    result = register.swap(0, RECORD)
    assert result.is_swapped
    return result.present


# ---------------------------------------------------------------- read and swap


def test_register_without_record_is_absent(engine: RegisterEngine) -> None:
    assert engine.new().read() == ABSENT


def test_record_created_once_is_read_as_it_was_written(engine: RegisterEngine) -> None:
    first, second = engine.new(), engine.new()
    state = created(first)
    assert state.record == RECORD
    assert state.revision > 0
    assert first.read() == second.read() == state


def test_second_creation_conflicts_and_returns_the_first(engine: RegisterEngine) -> None:
    first, second = engine.new(), engine.new()
    state = created(first)
    assert second.swap(0, record("second")) == (False, state)
    assert first.read() == state


def test_swap_of_the_present_revision_grows_it(engine: RegisterEngine) -> None:
    register = engine.new()
    before = created(register)
    result = register.swap(before.revision, record("next", epoch=44))
    assert result.is_swapped
    assert result.present.revision > before.revision
    assert register.read() == result.present == (result.present.revision, record("next", epoch=44))


def test_swap_of_an_old_revision_changes_nothing(engine: RegisterEngine) -> None:
    register, other = engine.new(), engine.new()
    before = created(register)
    after = register.swap(before.revision, record("next")).present
    assert other.swap(before.revision, record("late")) == (False, after)
    assert other.swap(after.revision + 1, record("from the future")) == (False, after)
    assert register.read() == after


def test_swap_of_a_deleted_record_conflicts_with_absence(engine: RegisterEngine) -> None:
    register = engine.new()
    before = created(register)
    engine.delete()
    assert register.swap(before.revision, record("late")) == (False, ABSENT)
    assert register.read() == ABSENT


def test_record_created_again_has_a_greater_revision(engine: RegisterEngine) -> None:
    register = engine.new()
    before = created(register)
    engine.delete()
    after = created(register)
    assert after.revision > before.revision
    assert not register.swap(before.revision, record("late")).is_swapped


def test_registers_of_other_names_are_not_touched(engine: RegisterEngine) -> None:
    register, neighbour = engine.new(), engine.neighbour()
    state = created(register)
    assert neighbour.read() == ABSENT
    created(neighbour)
    neighbour.swap(neighbour.read().revision, record("neighbour"))
    assert register.read() == state


def test_unknown_fields_survive_a_change(engine: RegisterEngine) -> None:
    register = engine.new()
    created(register)
    text = RECORD.encode().decode().replace('{"format"', '{"new":{"deep":[1,null]},"format"', 1)
    engine.write(text.replace('{"lease_ms"', '{"zone":"b","lease_ms"'))
    state = register.read()
    assert state.record is not None
    swapped = register.swap(state.revision, replace(state.record, epoch=99)).present
    found = engine.new().read()
    assert found == swapped
    assert found.record is not None
    assert found.record.unknown == {"new": {"deep": [1, None]}}
    assert found.record.settings.unknown == {"zone": "b"}


def test_swaps_from_many_threads_lose_none(engine: RegisterEngine) -> None:
    created(engine.new())
    threads, rounds = 4, 10

    def count(name: int) -> None:
        register = engine.new()
        for turn in range(rounds):
            state = register.read()
            while True:
                assert state.record is not None
                changed = replace(state.record, epoch=state.record.epoch + 1, nonce=f"{name}-{turn}")
                is_swapped, state = register.swap(state.revision, changed)
                if is_swapped:
                    break

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(count, range(threads)))
    found = engine.new().read().record
    assert found is not None
    assert found.epoch == RECORD.epoch + threads * rounds


@pytest.mark.parametrize("value", ["", "no JSON", "[]", '{"format": 1}', '{"format": 2}', "[" * 4000, "x" * 5000])
def test_content_that_is_no_record_is_refused(engine: RegisterEngine, value: str) -> None:
    register = engine.new()
    before = created(register)
    engine.write(value)
    with pytest.raises(RegisterMalformed, match="no record"):
        register.read()
    with pytest.raises(RegisterMalformed, match="no record"):
        register.swap(before.revision, record("next"))
    engine.write(record("mended").encode().decode())
    assert register.read().record == record("mended")


def test_closed_register_connects_when_it_is_used(engine: RegisterEngine) -> None:
    register = engine.new()
    state = created(register)
    register.close()
    register.close()
    assert register.read() == state


# ---------------------------------------------------------------- answers that are lost or late


def test_lost_answer_is_recognised_by_its_nonce(engine: RegisterEngine) -> None:
    with FaultyProxy(engine.port) as proxy:
        direct, writer = engine.new(), engine.new(port=proxy.port, seconds=SHORT_SECONDS)
        before = created(direct)
        deadline = time.monotonic() + PATIENT_SECONDS
        while (state := direct.read()).revision == before.revision:
            # On a busy machine a client may give up before its request has arrived, which ends that too.
            assert time.monotonic() < deadline
            read_patiently(writer)
            proxy.loses_answers = True
            with pytest.raises(RegisterUnavailable):
                writer.swap(before.revision, record("mine"))
            proxy.loses_answers = False
        assert state.record == record("mine")
        assert read_patiently(writer) == state
        assert writer.swap(before.revision, record("again")) == (False, state)


def test_swap_without_answer_may_take_effect_later(engine: RegisterEngine) -> None:
    with FaultyProxy(engine.port) as proxy:
        direct, writer = engine.new(), engine.new(port=proxy.port, seconds=SHORT_SECONDS)
        before = created(direct)
        assert read_patiently(writer) == before
        hold_swap(proxy, writer, before)
        assert direct.read() == before, "unknown, and neither yes nor no"
        proxy.release()
        state = direct.read()
        while state.revision == before.revision:
            state = direct.read()
        assert state.record == record("late")


def hold_swap(proxy: FaultyProxy, writer: Register, before: RegisterState) -> None:
    """Let the proxy hold a swap whose client has given up: on a busy machine it may see the request later than that."""
    proxy.holds_requests = True
    with pytest.raises(RegisterUnavailable):
        writer.swap(before.revision, record("late"))
    deadline = time.monotonic() + PATIENT_SECONDS
    while not proxy.held_bytes:
        assert time.monotonic() < deadline


def test_late_swap_changes_nothing_after_another(engine: RegisterEngine) -> None:
    """A newer revision resolves every request that was made on an older one."""
    with FaultyProxy(engine.port) as proxy:
        direct, writer = engine.new(), engine.new(port=proxy.port, seconds=SHORT_SECONDS)
        before = created(direct)
        assert read_patiently(writer) == before
        hold_swap(proxy, writer, before)
        after = direct.swap(before.revision, record("other")).present
        proxy.loses_answers = True
        proxy.release()
        deadline = time.monotonic() + PATIENT_SECONDS
        while not proxy.lost_bytes:  # etcd and PostgreSQL answer, and with what is no concern of a client that is gone
            assert time.monotonic() < deadline
            assert direct.read() == after
        assert direct.read() == after


def test_call_without_answer_ends_in_its_time(engine: RegisterEngine) -> None:
    with StallingProxy(engine.port) as proxy:
        register = engine.new(port=proxy.port, seconds=SHORT_SECONDS)
        read_patiently(register)
        proxy.stall()
        for call in (register.read, lambda: register.swap(0, RECORD), register.read):
            began = time.monotonic()
            with pytest.raises(RegisterUnavailable, match="no answer in time"):
                call()
            assert in_time(time.monotonic() - began, SHORT_SECONDS + 0.3)
    assert engine.new().read() == ABSENT


def test_refused_connection_is_unavailable_at_once(engine: RegisterEngine) -> None:
    register = engine.new(port=free_port())
    began = time.monotonic()
    for call in (register.read, lambda: register.swap(0, RECORD)):
        with pytest.raises(RegisterUnavailable, match="refused"):
            call()
    assert in_time(time.monotonic() - began, 2.0)


def test_read_after_a_cut_connection_is_answered(engine: RegisterEngine) -> None:
    with FaultyProxy(engine.port) as proxy:
        register = engine.new(port=proxy.port)
        state = created(register)
        proxy.cut()
        assert read_patiently(register) == state


def read_patiently(register: Register) -> RegisterState:
    """Read until there is an answer, as a member does."""
    deadline = time.monotonic() + PATIENT_SECONDS
    while True:
        try:
            return register.read()
        except RegisterUnavailable:
            assert time.monotonic() < deadline


# ---------------------------------------------------------------- watch


def test_watch_sees_changes_of_others(engine: RegisterEngine) -> None:
    register, writer, seen = engine.new(), engine.new(), Seen()
    before = created(writer)
    register.watch(seen.states.put)
    assert seen.wait_for_nonce(RECORD.nonce) == before
    for nonce in ("one", "two", "three"):
        before = writer.swap(before.revision, record(nonce)).present
        assert seen.wait_for_nonce(nonce) == before


def test_watch_begins_before_the_first_record(engine: RegisterEngine) -> None:
    register, seen = engine.new(seconds=2.0), Seen()
    read_patiently(register)
    register.watch(seen.states.put)
    assert seen.wait_for(lambda state: True) == ABSENT
    state = created(engine.new())
    assert seen.wait_for_nonce(RECORD.nonce) == state


def test_watch_sees_a_deletion(engine: RegisterEngine) -> None:
    register, seen = engine.new(seconds=2.0), Seen()
    read_patiently(register)
    created(engine.new())
    register.watch(seen.states.put)
    seen.wait_for_nonce(RECORD.nonce)
    engine.delete()
    assert seen.wait_for(lambda state: state.record is None) == ABSENT
    state = created(engine.new())
    assert seen.wait_for_nonce(RECORD.nonce) == state


def test_watch_goes_on_after_a_cut_connection(engine: RegisterEngine) -> None:
    with FaultyProxy(engine.port) as proxy:
        register, writer, seen = engine.new(port=proxy.port, seconds=1.0), engine.new(), Seen()
        before = created(writer)
        register.watch(seen.states.put)
        seen.wait_for_nonce(RECORD.nonce)
        for nonce in ("one", "two"):
            proxy.cut()
            before = writer.swap(before.revision, record(nonce)).present
            seen.wait_for_nonce(nonce)


def test_watch_goes_on_after_malformed_content(engine: RegisterEngine) -> None:
    register, writer, seen = engine.new(seconds=1.0), engine.new(), Seen()
    created(writer)
    register.watch(seen.states.put)
    seen.wait_for_nonce(RECORD.nonce)
    engine.write("no record")
    engine.write(record("mended").encode().decode())
    seen.wait_for_nonce("mended")


def test_watch_of_an_election_store_that_is_away_ends(engine: RegisterEngine) -> None:
    register = engine.new(port=free_port(), seconds=SHORT_SECONDS)
    watching = register.watch(lambda state: None)
    began = time.monotonic()
    watching.close()
    watching.close()
    assert in_time(time.monotonic() - began, 2.0)


def test_watch_of_a_stalled_election_store_ends(engine: RegisterEngine) -> None:
    with StallingProxy(engine.port) as proxy:
        register, seen = engine.new(port=proxy.port), Seen()
        watching = register.watch(seen.states.put)
        seen.wait_for(lambda state: True)
        proxy.stall()
        began = time.monotonic()
        watching.close()
        assert in_time(time.monotonic() - began, 2.0)


def test_closed_register_ends_its_watches(engine: RegisterEngine) -> None:
    register, seen = engine.new(), Seen()
    before = set(threading.enumerate())
    register.watch(seen.states.put)
    seen.wait_for(lambda state: True)
    started = set(threading.enumerate()) - before
    assert any(thread.name.startswith("watch ") for thread in started)
    register.close()
    assert not any(thread.is_alive() for thread in started)


def test_errors_do_not_show_secrets(engine: RegisterEngine) -> None:
    register = engine.new(port=free_port())
    with pytest.raises(RegisterUnavailable) as caught:
        register.read()
    assert "s3cret" not in f"{caught.value}{caught.value.__cause__}{register.name}"


def test_record_that_is_too_long_is_not_sent(engine: RegisterEngine) -> None:
    register = engine.new()
    state = created(register)
    long: ElectionRecord = record("x" * 4096)
    with pytest.raises(MalformedData, match="longer than 4096"):
        register.swap(state.revision, long)
    assert register.read() == state
