"""The answer to `list`: domains, MBeans, and what attributes and operations these have.

```text
{"org.apache.activemq": {"brokerName=B,…": {"desc": …, "class": …, "attr": {NAME: …}, "op": {NAME: …}}}}
```

At the depth of `maxDepth` there is 1 instead. So it is for further MBeans of a kind that has more than `MBEANS_MAX`: a
console that wants to know them asks for one, by its path.

Source: Jolokia 1.7, `ListHandler`, `MBeanInfoData`; management.md, section 2.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from pybroker.management.jolokia_errors import illegal
from pybroker.management.jolokia_requests import JolokiaRequest
from pybroker.management.json_types import as_object
from pybroker.management.mbean_operations import JmxOperation, operations_of
from pybroker.management.mbeans import PACKAGE, MBean, MBeanKind
from pybroker.management.object_names import DOMAIN, MalformedObjectName, ObjectName

MBEANS_MAX: Final = 1000

TRUNCATED: Final = 1
"""Stands for what is deeper than was asked for."""

_OF_DOMAIN, _OF_MBEAN = 1, 2
"""The parts of a path that name a domain, and an MBean."""


def asked_name(request: JolokiaRequest) -> ObjectName:
    """Return the name or pattern of the MBeans that a list is about.

    Raises:
        JolokiaError: its path has none.
    """
    path = ["*" if part is None else part for part in request.path]
    try:
        if len(path) < _OF_MBEAN:
            return ObjectName.parse(f"{path[0] if path else '*'}:*")
        name = ObjectName.parse(f"{path[0]}:{path[1]}")
    except MalformedObjectName as error:
        raise illegal(f"Invalid path within the MBean part given. (Path: {'/'.join(path)})") from error
    if name.is_pattern:
        raise illegal(f"Cannot use an MBean pattern as path (given MBean: {name.text})")
    return name


def listing(mbeans: Iterable[MBean], request: JolokiaRequest) -> Any:
    """Return the value of a list of MBeans.

    Raises:
        JolokiaError: the path leads to nothing.
    """
    counts: Counter[str] = Counter()
    found: dict[str, Any] = {}
    path = request.path
    depth = request.options.depth_max
    for each in mbeans:
        counts[each.kind.class_name] += 1
        is_many = counts[each.kind.class_name] > MBEANS_MAX
        name = request.name_of(each.name, each.canonical).partition(":")[2]
        found[name] = TRUNCATED if is_many else information(each.kind)
    if len(path) >= _OF_MBEAN:
        if not found:
            raise illegal(f"Invalid object name '{asked_name(request).text}': Instance not found")
        return _inner(next(iter(found.values())), path[_OF_MBEAN:], depth)
    return _truncated(found, depth) if path else _truncated({DOMAIN: found} if found else {}, depth)


@cache
def information(kind: MBeanKind) -> Mapping[str, Any]:
    """Return what an MBean of a kind has; all MBeans of the kind share it."""
    attributes = {name: {"type": each.type, "desc": name, "rw": False} for name, each in kind.attributes.items()}
    operations: dict[str, Any] = {}
    for operation in operations_of(kind):
        operations.setdefault(operation.name, []).append(_operation(operation))
    return {
        "desc": kind.description,
        "class": f"{PACKAGE}.{kind.class_name}",
        "attr": attributes,
        "op": {name: each[0] if len(each) == 1 else each for name, each in operations.items()},
    }


def _operation(operation: JmxOperation) -> Mapping[str, Any]:
    return {
        "args": [{"name": name, "type": java_type, "desc": name} for name, java_type in operation.parameters],
        "ret": operation.returns,
        "desc": operation.name,
    }


def _inner(value: Any, path: Sequence[str | None], depth: int) -> Any:
    for part in path:
        found = as_object(value)
        if found is None or part is None or part not in found:
            raise illegal(f"Illegal path: there is nothing at {part!r}")
        value = found[part]
    return _truncated(value, depth)


def _truncated(value: Any, depth: int) -> Any:
    """Return a value down to a depth; 0: all of it."""
    found = as_object(value)
    if not depth or found is None:
        return value
    if depth == 1:
        return dict.fromkeys(found, TRUNCATED)
    return {name: _truncated(each, depth - 1) for name, each in found.items()}
