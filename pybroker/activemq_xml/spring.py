"""Spring's beans: their classes, identities, and the texts of their properties."""

from collections.abc import Iterator

from pybroker.activemq_xml.elements import XmlElement


def simple_class(element: XmlElement) -> str:
    """Return the name of a bean's class without its package; empty if it has none."""
    return element.attributes.get("class", "").rpartition(".")[2]


def identities(element: XmlElement) -> Iterator[str]:
    """Return the names by which others refer to a bean: its `id`, and its `name`, which is a list."""
    if "id" in element.attributes:
        yield element.attributes["id"]
    yield from element.attributes.get("name", "").replace(",", " ").replace(";", " ").split()


def properties_of(element: XmlElement) -> dict[str, XmlElement]:
    """Return the `property` elements of a bean by name."""
    return {each.attributes.get("name", ""): each for each in element.children if each.name == "property"}


def property_texts(element: XmlElement, name: str) -> list[str]:
    """Return the values of a bean's property: that of `value`, or those of its `value` elements, also in a `list`."""
    found = properties_of(element).get(name)
    if found is None:
        return []
    if "value" in found.attributes:
        return [found.attributes["value"].strip()]
    return [each.text for each in found if each.name == "value"]
