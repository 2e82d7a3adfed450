"""Refuses names of beans that a file has twice, as Spring does: a reference to one would be to the other.

A name of a file may be there again in a file that it imports; the later bean replaces the earlier.

Source: ActiveMQ 5.17.2 with a file for each case: "Bean name 'a' is already used in this <beans> element".
"""

from collections.abc import Iterator

from pybroker.activemq_xml.elements import BEANS, CORE, XmlElement
from pybroker.activemq_xml.findings import Findings, place
from pybroker.activemq_xml.spring import identities


def check(root: XmlElement, findings: Findings) -> None:
    """Refuse each name that the beans of a file have twice.

    Args:
        root: the root of the file.
        findings: get what is found.
    """
    first: dict[str, XmlElement] = {}
    for element, names in _named(root):
        for name in sorted(names & first.keys()):
            before = first[name]
            why = f"the name {name} is that of {place(before)} in line {before.line}; ActiveMQ refuses it too"
            findings.refuse(element, f"{why}: remove one, or name it otherwise")
        first |= dict.fromkeys(names - first.keys(), element)


def _named(root: XmlElement) -> Iterator[tuple[XmlElement, set[str]]]:
    """Return the beans that are compared, with their names: not those within Spring's beans."""
    compared = {id(each) for parent in root for each in parent.children if parent is root or parent.namespace == CORE}
    for element in root:
        if element.namespace == CORE and "id" in element.attributes:
            yield element, {element.attributes["id"]}
        elif element.namespace == BEANS and element.name == "bean" and id(element) in compared:
            yield element, set(identities(element))
