"""Checks a file against the elements and attributes that ActiveMQ 5.17 knows, which refuses all others.

An element is one of the schema's *beans*, with attributes, or a *property* of a bean, which has no attributes and holds
beans: `<systemUsage><systemUsage sendFailIfNoSpace="true"/></systemUsage>` is a property with a bean in it. Both may
have the same name. Elements of other namespaces are Spring's: a property
may hold them, a bean may not, and they are not checked. ActiveMQ sets properties of a bean that Spring's `property`
names; pybroker refuses such an element where it would count.

`schema.json` has for each bean the types of its attributes, and for each property the beans that it may hold, or null
if those are not listed. Source: the facts of `activemq.xsd` of ActiveMQ 5.17.2.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Final, TypedDict

from pybroker.activemq_xml.elements import BEANS, CORE, XmlElement
from pybroker.activemq_xml.findings import ConfigurationFinding, FindingKind, place

_OF_SPRING: Final = ("id", "init-method", "destroy-method")
WITHOUT_EFFECT: Final = frozenset({"managementContext"})
"""Beans without any counterpart in pybroker, so that Spring's way to set their properties may be left out as well."""

_PURE_MASTER: Final = "it is of pure master/slave, which ActiveMQ has not had since 5.8: let both brokers share a store"
_REMOVED: Final[Mapping[str, str]] = dict.fromkeys(("masterConnectorURI", "masterConnector"), _PURE_MASTER)
"""Names that earlier versions have, and what they were."""

_INTEGER: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_FORMS: Final = {
    "boolean": (re.compile("true|false|1|0"), "true or false"),
    **dict.fromkeys(("integer", "long", "short"), (_INTEGER, "a whole number")),
    **dict.fromkeys(("float", "double"), (_NUMBER, "a number")),
}
"""The values that types allow, and a text for them; a `string` may be anything."""


class Bean(TypedDict):
    """What a bean may have.

    Attributes:
        attributes: their types by name: `string`, or one of `_FORMS`.
        properties: the beans that each may hold, by name; None: not listed.
    """

    attributes: dict[str, str]
    properties: dict[str, list[str] | None]


@cache
def beans() -> Mapping[str, Bean]:
    """Return the beans of the schema by name."""
    text = files("pybroker.activemq_xml").joinpath("schema.json").read_text(encoding="utf-8")
    found: dict[str, Bean] = json.loads(text)
    return found


def check(element: XmlElement) -> Iterator[ConfigurationFinding]:
    """Return a finding for each element and attribute that ActiveMQ 5.17 refuses, in a bean of the core namespace.

    Args:
        element: the bean, with its placeholders filled in.
    """
    bean = beans().get(element.name)
    if bean is None:
        yield _unknown(element, f"ActiveMQ has no element {element.name}", beans(), element.name)
        return
    for name, value in element.attributes.items():
        expected = bean["attributes"].get(name)
        if name in _OF_SPRING:
            continue
        if expected is None:
            yield _unknown(element, f"{element.name} has no attribute {name}", bean["attributes"], name, name)
        elif expected in _FORMS and not _FORMS[expected][0].fullmatch(value.strip()):
            # The value is not shown: it may be a secret in the wrong place.
            why = f"{name} must be {_FORMS[expected][1]}"
            yield ConfigurationFinding(FindingKind.REFUSED, place(element, name), why, element.line)
    for child in element.children:
        if child.namespace == CORE:
            yield from _check_property(element, bean, child)
        elif element.name in WITHOUT_EFFECT and child.namespace == BEANS and child.name == "property":
            name = child.attributes.get("name", "")
            if name not in (known := {*bean["attributes"], *bean["properties"]}):
                yield _unknown(child, f"{element.name} has no property {name}", known, name)
        elif child.name != "description":
            why = f"{element.name} holds elements of the namespace {CORE} alone: this one would be left out"
            yield ConfigurationFinding(FindingKind.REFUSED, place(child), why, child.line)


def _check_property(parent: XmlElement, bean: Bean, child: XmlElement) -> Iterator[ConfigurationFinding]:
    if child.name not in bean["properties"]:
        wrappers = [name for name, held in bean["properties"].items() if child.name in (held or ())]
        if wrappers:
            why = f"{parent.name} has no element {child.name}: write it within {' or '.join(wrappers)}"
            yield ConfigurationFinding(FindingKind.REFUSED, place(child), why, child.line)
            return
        yield _unknown(child, f"{parent.name} has no element {child.name}", bean["properties"], child.name)
        return
    if child.attributes:
        yield ConfigurationFinding(
            FindingKind.REFUSED,
            place(child),
            f"{child.name} of {parent.name} has no attributes: it holds an element that has them",
            child.line,
        )
    allowed = bean["properties"][child.name]
    for held in child.children:
        if held.namespace != CORE:
            continue
        if allowed is not None and held.name not in allowed:
            yield _unknown(held, f"{child.name} of {parent.name} cannot hold {held.name}", allowed, held.name)
        else:
            yield from check(held)


def _unknown(
    element: XmlElement, reason: str, known: Collection[str], name: str, attribute: str = ""
) -> ConfigurationFinding:
    if removed := _REMOVED.get(name):
        why = f"{reason}: {removed}"
        return ConfigurationFinding(FindingKind.REFUSED, place(element, attribute), why, element.line)
    lower = {each.lower(): each for each in known}
    near = [lower[each] for each in get_close_matches(name.lower(), lower, n=1)]
    remedy = "; ActiveMQ 5.17 refuses it too" + (": remove it" if attribute else "")
    why = f"{reason}; did you mean {near[0]}?" if near else f"{reason}{remedy}"
    return ConfigurationFinding(FindingKind.REFUSED, place(element, attribute), why, element.line)
