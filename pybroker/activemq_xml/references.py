"""References to beans: `attribute="#id"`, and `<ref bean="id"/>` in a property element.

`reference_syntax` tells these from texts.
"""

from collections.abc import Iterator

from pybroker.activemq_xml.elements import BEANS, XmlElement
from pybroker.activemq_xml.reading import Reading


def name_in(element: XmlElement, attribute: str) -> str:
    """Return the name of the bean that an attribute refers to; empty if it refers to none."""
    return element.references.get(attribute, "").strip()


def name_of(element: XmlElement) -> str:
    """Return the name of the bean that a `ref` refers to; empty if the element is none."""
    if element.name != "ref" or element.namespace != BEANS:
        return ""
    return element.attributes.get("bean", element.attributes.get("local", ""))


def bean(reading: Reading, name: str) -> XmlElement | None:
    """Return the bean of a name, which is read from now on; None if the file and its imports have none."""
    found = reading.file.bean(name)
    if found is not None:
        reading.followed.add(name)
    return found


def referred(reading: Reading, element: XmlElement, attribute: str) -> XmlElement | None:
    """Return the bean that an attribute refers to; None if it has no such value, or there is no such bean."""
    name = name_in(element, attribute)
    return bean(reading, name) if name else None


def held_beans(reading: Reading, element: XmlElement) -> Iterator[XmlElement]:
    """Return the beans that a property element holds or refers to; a `ref` without its bean stays what it is."""
    for each in element.children:
        name = name_of(each)
        yield (bean(reading, name) if name else None) or each


def given_beans(reading: Reading, element: XmlElement, name: str) -> list[XmlElement]:
    """Return the beans that an element has as a property: by an attribute that refers to one, or by elements."""
    found = referred(reading, element, name)
    return ([found] if found is not None else []) + [
        held
        for each in element.children
        if each.name == name and each.namespace == element.namespace
        for held in held_beans(reading, each)
    ]
