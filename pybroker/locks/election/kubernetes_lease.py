"""The Lease object that holds a record, and the register's content by it. Pure: no I/O, no clock.

```text
metadata.annotations["pybroker/record"]   the record, as JSON
metadata.resourceVersion                  its revision
spec.holderIdentity                       the master's name; absent when it has released the cluster
spec.leaseDurationSeconds                 the lease, rounded up
spec.leaseTransitions                     the epoch
spec.acquireTime, renewTime               the first and the last write of the epoch, by the writer's clock
```

The fields of `spec` are for people, and `kubectl get lease`: no member reads them. All other fields of the object, such
as labels, annotations of other programs and what a later version has, are written back as they were read.

Source: Kubernetes' API reference, Lease (coordination.k8s.io/v1) and ObjectMeta.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pybroker.broker.domain.errors import MalformedData
from pybroker.locks.election.http_calls import object_or_none
from pybroker.locks.election.record import NUMBER_MAX, ElectionRecord, RecordedState
from pybroker.locks.election.register import RegisterMalformed, RegisterState, RegisterUnavailable

API_VERSION = "coordination.k8s.io/v1"
KIND = "Lease"

ANNOTATION = "pybroker/record"

_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseObject:
    """A Lease as the API server has sent it.

    Attributes:
        values: the whole object.
        revision: its `resourceVersion`.
    """

    values: Mapping[str, Any]
    revision: int

    @classmethod
    def of(cls, values: Mapping[str, Any], name: str, lease: str) -> "LeaseObject":
        """Check an object.

        Args:
            values: the object.
            name: of the register, for errors.
            lease: the name that it must have.

        Raises:
            RegisterUnavailable: it is no Lease of this name.
            RegisterMalformed: its version cannot be compared.
        """
        metadata = object_or_none(values.get("metadata")) or {}
        uid, version = metadata.get("uid"), metadata.get("resourceVersion")
        if values.get("kind") != KIND or metadata.get("name") != lease or not uid or not isinstance(version, str):
            reason = "an answer that is not this Lease: is this the address of a Kubernetes API server?"
            raise RegisterUnavailable(name, reason)
        return cls(values=values, revision=revision_of(version, name))

    def state(self, name: str) -> RegisterState:
        """Return the content of the register; `name` is the register's.

        Raises:
            RegisterMalformed: the annotation is no record, or there is none.
        """
        annotations = object_or_none(self.values["metadata"].get("annotations")) or {}
        text = annotations.get(ANNOTATION)
        if not isinstance(text, str):
            raise RegisterMalformed(f"{name}: the Lease is no record: it has no annotation {ANNOTATION}")
        try:
            return RegisterState(self.revision, ElectionRecord.decode(text.encode()))
        except MalformedData as error:
            raise RegisterMalformed(f"{name}: the annotation {ANNOTATION} is no record: {error}") from error

    def changed(self, record: ElectionRecord, at: datetime) -> dict[str, Any]:
        """Return the object with another record, for a PUT that succeeds only on this very object in this version.

        It has the former `resourceVersion`, and the `uid`: without a `uid` the API server makes a Lease of a PUT where
        there is none any more, whatever its version.
        """
        metadata: dict[str, Any] = dict(self.values["metadata"])
        annotations = object_or_none(metadata.get("annotations")) or {}
        metadata["annotations"] = {**annotations, ANNOTATION: record.encode().decode()}
        former = object_or_none(self.values.get("spec")) or {}
        return {**self.values, "metadata": metadata, "spec": _spec(former, record, at)}


def new_lease(lease: str, namespace: str, record: ElectionRecord, at: datetime) -> dict[str, Any]:
    """Return the object of a first record, for a POST.

    Args:
        lease: its name.
        namespace: where it belongs.
        record: the record.
        at: the time, with its zone.
    """
    annotations = {ANNOTATION: record.encode().decode()}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": lease, "namespace": namespace, "annotations": annotations},
        "spec": _spec({}, record, at),
    }


def is_absent(status: Mapping[str, Any], lease: str) -> bool:
    """Return True if an answer with status 404 says that there is no such Lease.

    Another 404 says nothing of it: the API server has one for an interface that it does not serve yet, and a proxy for
    what it does not know.
    """
    details = object_or_none(status.get("details")) or {}
    return status.get("reason") == "NotFound" and details.get("kind") == "leases" and details.get("name") == lease


def revision_of(version: str, name: str) -> int:
    """Return a `resourceVersion` as a number.

    By the API's contract of long standing it is opaque. Of real API servers it is the revision of their etcd, or a
    number of the same kind, and since Kubernetes 1.35 the contract says so: versions of one kind of object are integers
    and can be compared. It is one count for all objects, so that it grows beyond a deletion. A number is what the
    election needs, to know which of two contents is newer; a server that gives something else cannot be used.

    Raises:
        RegisterMalformed: it is no number.
    """
    if version.isascii() and version.isdecimal() and len(version) < 20 and version[0] != "0":
        revision = int(version)
        if revision <= NUMBER_MAX:
            return revision
    raise RegisterMalformed(
        f"{name}: the resourceVersion {version[:40]!r} is no number: the versions of this API server cannot be "
        "compared, so that it cannot hold an election"
    )


def _spec(former: Mapping[str, Any], record: ElectionRecord, at: datetime) -> dict[str, Any]:
    """Return `spec`, with its unknown fields."""
    time = at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    transitions = min(record.epoch, _INT32_MAX)
    is_same = former.get("leaseTransitions") == transitions
    spec = dict(former)
    spec["leaseDurationSeconds"] = math.ceil(record.settings.lease_ms / 1000)
    spec["leaseTransitions"] = transitions
    spec["acquireTime"] = former.get("acquireTime", time) if is_same else time
    spec["renewTime"] = time
    spec.pop("holderIdentity", None)  # the API refuses an empty one
    if record.state is RecordedState.SERVING and record.master.name:
        spec["holderIdentity"] = record.master.name
    return spec
