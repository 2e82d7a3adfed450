"""Finds the beans that a property of a bean holds: those in it, and those beside the broker that it refers to.

```xml
<plugins>
  <statisticsBrokerPlugin/>                                                   a bean of ActiveMQ's own namespace
  <bean class="org.apache.activemq.plugin.StatisticsBrokerPlugin"/>           the same, as a bean of Spring's
  <ref bean="stamps"/>                                                        a bean beside the broker
</plugins>
<policyEntry queue="A" deadLetterStrategy="#letters"/>                        the same, as an attribute
```

ActiveMQ refers only to beans beside the broker: one within it that has an `id` is not found by others.

Source: ActiveMQ 5.17.2, with each of these.
"""

from collections.abc import Iterator
from typing import Final

from pybroker.activemq_xml import references, schema
from pybroker.activemq_xml.elements import BEANS, CORE, XmlElement
from pybroker.activemq_xml.reading import Handler, Reading, Rule
from pybroker.activemq_xml.spring import simple_class

_OF_ACTIVEMQ: Final = "org.apache.activemq."
_OF_BEANS: Final = ("id", "name", "class")


def beans_in(reading: Reading, element: XmlElement, why: str) -> Iterator[XmlElement]:
    """Return the beans of ActiveMQ's namespace that a property element holds or refers to; refuse all others.

    Args:
        reading: gets the findings.
        element: the property element.
        why: the reason to refuse a bean of another class.
    """
    for each in element.children:
        if each.namespace == CORE:
            yield each
            continue
        if each.namespace == BEANS and each.name == "ref":
            found = _beside(reading, each, each.attributes.get("bean") or each.attributes.get("local", ""))
        else:
            found = _of_spring(each)
            if found is None:
                reading.findings.refuse(each, why, at=f"{element.name}/{each.name}")
        if found is not None:
            _check(reading, found)
            yield found


def referred(handler: Handler) -> Rule:
    """Return the rule of an attribute that names a bean by its identity, `#id`: the handler reads that bean.

    Args:
        handler: reads the property element of the attribute's name.
    """

    def read(reading: Reading, element: XmlElement, name: str) -> None:
        target = references.name_in(element, name)
        if not target:
            raise ValueError("it must be #ID, the identity of a bean beside the broker")
        found = _beside(reading, element, target, name)
        if found is not None:
            _check(reading, found)
            handler(reading, XmlElement(name, CORE, {}, element.line, element.column, children=[found]))

    return read


def _beside(reading: Reading, element: XmlElement, name: str, attribute: str = "") -> XmlElement | None:
    """Return the bean of a name, of ActiveMQ's namespace."""
    found = references.bean(reading, name)
    if found is not None and found.namespace != CORE:
        found = _of_spring(found)
    if found is None:
        reading.findings.refuse(element, "it refers to no bean of ActiveMQ's beside the broker", attribute)
    return found


def _of_spring(element: XmlElement) -> XmlElement | None:
    """Return a bean of Spring's as an element of ActiveMQ's, if it is of such a class and has only plain values."""
    name = simple_class(element)
    name = name[:1].lower() + name[1:]
    if not element.attributes.get("class", "").startswith(_OF_ACTIVEMQ) or name not in schema.beans():
        return None
    if not set(element.attributes) <= set(_OF_BEANS):
        return None
    attributes: dict[str, str] = {}
    for each in element.children:
        if each.name != "property" or set(each.attributes) != {"name", "value"}:
            return None
        attributes[each.attributes["name"]] = each.attributes["value"]
    return XmlElement(name, CORE, attributes, element.line, element.column, children=[])


def _check(reading: Reading, element: XmlElement) -> None:
    for found in schema.check(element):
        reading.findings.add(found)
