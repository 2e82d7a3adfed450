"""The Lease object that holds a record: what is read of it, and what is written."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from pybroker.locks.election.kubernetes_lease import ANNOTATION, LeaseObject, is_absent, new_lease, revision_of
from pybroker.locks.election.record import ElectionRecord, ElectionSettings, MasterEntry, RecordedState
from pybroker.locks.election.register import RegisterMalformed, RegisterUnavailable

NAME = "kubernetes://shop/orders"
AT = datetime(2026, 11, 28, 10, 15, 2, 345678, tzinfo=UTC)
LATER = datetime(2026, 11, 28, 10, 15, 4, 0, tzinfo=UTC)

RECORD = ElectionRecord(
    cluster="c-1",
    name="orders",
    epoch=43,
    state=RecordedState.SERVING,
    master=MasterEntry(name="pybroker-0", store="s-a", run="r-a"),
    in_sync=frozenset({"s-a"}),
    reserved={},
    durable={},
    settings=ElectionSettings(lease_ms=5500),
    nonce="r-a-1",
)


def answer(**changes: Any) -> dict[str, Any]:
    """Return a Lease as an API server sends it."""
    metadata = {
        "name": "orders",
        "namespace": "shop",
        "uid": "0b6cf1f4-58ba-4d6e-bb5b-3a3c8b9d3a50",
        "resourceVersion": "1204",
        "creationTimestamp": "2026-11-28T10:15:02Z",
        "labels": {"team": "shop"},
        "annotations": {ANNOTATION: RECORD.encode().decode(), "note": "kept"},
        "managedFields": [{"manager": "pybroker", "operation": "Update"}],
    }
    spec = {
        "holderIdentity": "pybroker-0",
        "leaseDurationSeconds": 6,
        "leaseTransitions": 43,
        "acquireTime": "2026-11-28T10:15:02.345678Z",
        "renewTime": "2026-11-28T10:15:02.345678Z",
        "strategy": "OldestEmulationVersion",
    }
    whole = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    return {**whole, **changes}


def found(**changes: Any) -> LeaseObject:
    return LeaseObject.of(answer(**changes), NAME, "orders")


def test_content_is_that_of_the_annotation() -> None:
    assert found().revision == 1204
    assert found().state(NAME) == (1204, RECORD)


def test_first_lease_has_the_record_and_its_summary() -> None:
    lease = new_lease("orders", "shop", RECORD, AT)
    assert lease == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": "orders",
            "namespace": "shop",
            "annotations": {ANNOTATION: RECORD.encode().decode()},
        },
        "spec": {
            "holderIdentity": "pybroker-0",
            "leaseDurationSeconds": 6,
            "leaseTransitions": 43,
            "acquireTime": "2026-11-28T10:15:02.345678Z",
            "renewTime": "2026-11-28T10:15:02.345678Z",
        },
    }


def test_renewal_changes_record_and_time_alone() -> None:
    renewed = replace(RECORD, nonce="r-a-2")
    expected = answer()
    expected["metadata"]["annotations"][ANNOTATION] = renewed.encode().decode()
    expected["spec"]["renewTime"] = "2026-11-28T10:15:04.000000Z"
    before = found()
    assert before.changed(renewed, LATER) == expected
    assert before.values == answer(), "what was read is not changed in its place"


def test_change_is_of_the_object_and_version_that_were_read() -> None:
    metadata = found().changed(RECORD, LATER)["metadata"]
    assert (metadata["uid"], metadata["resourceVersion"]) == ("0b6cf1f4-58ba-4d6e-bb5b-3a3c8b9d3a50", "1204")


def test_new_epoch_has_its_own_time_of_acquisition() -> None:
    promoted = replace(RECORD, epoch=52, master=MasterEntry(name="pybroker-1", store="s-b", run="r-b"))
    spec = found().changed(promoted, LATER)["spec"]
    assert spec == {
        "holderIdentity": "pybroker-1",
        "leaseDurationSeconds": 6,
        "leaseTransitions": 52,
        "acquireTime": "2026-11-28T10:15:04.000000Z",
        "renewTime": "2026-11-28T10:15:04.000000Z",
        "strategy": "OldestEmulationVersion",
    }


def test_released_cluster_has_no_holder() -> None:
    released = replace(RECORD, state=RecordedState.RELEASED)
    assert "holderIdentity" not in found().changed(released, LATER)["spec"]
    assert "holderIdentity" not in new_lease("orders", "shop", released, AT)["spec"]


def test_summary_stays_within_its_types() -> None:
    record = replace(RECORD, epoch=2**40, settings=ElectionSettings(lease_ms=100))
    spec = new_lease("orders", "shop", record, AT)["spec"]
    assert (spec["leaseTransitions"], spec["leaseDurationSeconds"]) == (2**31 - 1, 1)


def test_lease_without_annotations_or_spec_can_be_changed() -> None:
    bare = answer(spec=None)
    del bare["metadata"]["annotations"]
    lease = LeaseObject.of(bare, NAME, "orders")
    with pytest.raises(RegisterMalformed, match="no record: it has no annotation pybroker/record"):
        lease.state(NAME)
    changed = lease.changed(RECORD, AT)
    assert changed["metadata"]["annotations"] == {ANNOTATION: RECORD.encode().decode()}
    assert changed["spec"]["holderIdentity"] == "pybroker-0"


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"format": 2}', 7, None, {"format": 1}])
def test_annotation_that_is_no_record_is_malformed(text: object) -> None:
    lease = answer()
    lease["metadata"]["annotations"][ANNOTATION] = text
    with pytest.raises(RegisterMalformed, match="no record"):
        LeaseObject.of(lease, NAME, "orders").state(NAME)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"kind": "Status", "status": "Failure"},
        answer(kind="ConfigMap"),
        answer(metadata=None),
        answer(metadata=[]),
        answer(metadata={"name": "orders", "uid": "u"}),
        answer(metadata={"name": "orders", "resourceVersion": "1"}),
        answer(metadata={"name": "orders", "uid": "u", "resourceVersion": 1}),
        answer(metadata={"name": "invoices", "uid": "u", "resourceVersion": "1"}),
    ],
)
def test_answer_that_is_not_this_lease_is_no_answer(values: dict[str, Any]) -> None:
    with pytest.raises(RegisterUnavailable, match="not this Lease"):
        LeaseObject.of(values, NAME, "orders")


@pytest.mark.parametrize(("version", "revision"), [("1", 1), ("1204", 1204), (str(2**63 - 1), 2**63 - 1)])
def test_version_is_a_number(version: str, revision: int) -> None:
    assert revision_of(version, NAME) == revision


@pytest.mark.parametrize(
    "version", ["", "0", "007", "-1", "1.5", "12a", "١٢", "0x1f", " 12", str(2**63), "9" * 400, "3c7e-41"]
)
def test_version_that_cannot_be_compared_is_refused(version: str) -> None:
    with pytest.raises(RegisterMalformed, match="is no number: the versions of this API server cannot be compared"):
        revision_of(version, NAME)


def test_absence_is_what_the_api_server_says_of_this_lease() -> None:
    text = """{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound",
    "message": "leases.coordination.k8s.io \\"orders\\" not found", "code": 404,
    "details": {"name": "orders", "group": "coordination.k8s.io", "kind": "leases"}}"""
    status = json.loads(text)
    assert is_absent(status, "orders")
    assert not is_absent(status, "invoices")
    namespace = {**status, "details": {"name": "orders", "kind": "namespaces"}}
    unserved = {**status, "message": "the server could not find the requested resource", "details": {}}
    for other in (namespace, unserved, {}, {**status, "details": None}, {**status, "reason": "Gone"}):
        assert not is_absent(other, "orders")
