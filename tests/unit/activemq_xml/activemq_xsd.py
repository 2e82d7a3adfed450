"""The facts of ActiveMQ's own schema, in the form of `schema.json`.

`python -m tests.unit.activemq_xml.activemq_xsd` prints them, from the jar of Debian's `libactivemq-java`.
"""

import json
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

JAR = Path("/usr/share/java/activemq-spring.jar")
_XS = "{http://www.w3.org/2001/XMLSchema}"


def facts() -> dict[str, Any]:
    """Return the beans, their attributes and their properties."""
    with zipfile.ZipFile(JAR) as jar:
        root = ElementTree.fromstring(jar.read("activemq.xsd"))
    return {element.attrib["name"]: _bean(element) for element in root.findall(f"{_XS}element")}


def _bean(element: ElementTree.Element) -> dict[str, Any]:
    (content,) = element.findall(f"{_XS}complexType")
    attributes = {
        each.attrib["name"]: each.attrib["type"].removeprefix("xs:")
        for each in content.findall(f"{_XS}attribute")
        if each.attrib["name"] != "id"
    }
    named = (each for each in content.iter(f"{_XS}element") if "name" in each.attrib)
    return {"attributes": attributes, "properties": {each.attrib["name"]: _held(each) for each in named}}


def _held(element: ElementTree.Element) -> list[str] | None:
    if element.find(f".//{_XS}choice") is None:
        return None
    return [each.attrib["ref"].removeprefix("tns:") for each in element.iter(f"{_XS}element") if "ref" in each.attrib]


def text() -> str:
    """Return the contents of `schema.json`: a line for each bean."""
    lines = (f"{json.dumps(name)}: {json.dumps(bean, separators=(',', ':'))}" for name, bean in facts().items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    print(text(), end="")
