"""Placeholders and `#` in an activemq.xml: ActiveMQ and pybroker read the same names of queues, or both refuse."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from pybroker.activemq_xml.broker_element import Demands
from pybroker.activemq_xml.elements import BEANS, CORE
from pybroker.activemq_xml.findings import FindingKind
from pybroker.activemq_xml.interpretation import interpret
from tests.conftest import JAR_DIRECTORY, SPRING_JARS

pytestmark = pytest.mark.component("activemq-spring")

PROGRAM: Final = Path(__file__).parent / "java" / "ReadConfiguration.java"
CONFIGURER: Final = "org.springframework.beans.factory.config.PropertyPlaceholderConfigurer"
FILE: Final = '<property name="location" value="file:${directory}/p.properties"/>'
INLINE: Final = '<property name="properties"><props><prop key="x"> inline </prop></props></property>'


def override(value: str) -> str:
    return f'<property name="localOverride" value="{value}"/>'


def props(**values: str) -> str:
    listed = "".join(f'<prop key="{name}">{value}</prop>' for name, value in values.items())
    return f'<property name="properties"><props>{listed}</props></property>'


CASES: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("",), "##x"),
    (("",), "###x"),
    (("",), "a#b"),
    (("",), "a##b"),
    (("",), "#"),
    (("",), "#x"),
    (("",), "#{1+1}"),
    ((INLINE,), "${x}"),
    ((FILE,), "${x}"),
    ((FILE + INLINE,), "${x}"),
    ((FILE + INLINE + override("true"),), "${x}"),
    ((FILE + INLINE + override("TRUE"),), "${x}"),
    ((FILE + INLINE + override("yes"),), "${x}"),
    ((FILE + INLINE + override("off"),), "${x}"),
    ((INLINE, FILE), "${x}"),
    ((FILE, INLINE), "${x}"),
    ((props(x="a", y="${x}b"),), "${y}"),
    ((props(x="#v"),), "${x}"),
    ((props(x="##v"),), "${x}"),
    ((props(x="used", y="${nowhere}"),), "${x}"),
    ((props(x="used"),), "${nowhere}"),
    ((props(HOME="inline"),), "${HOME}"),
    (('<property name="properties" value="x=text"/>',), "${x}"),
    (('<property name="properties"><value>\n# c\n x : t\\u0077o\n y = a\\\n  b\n</value></property>',), "${x}${y}"),
    (('<property name="properties"><value>x=1\nx=2</value></property>',), "${x}"),
    (('<property name="properties"></property>',), "x"),
)
"""The properties of each bean that configures placeholders, and the name of a queue."""


def text_of(configurers: tuple[str, ...], name: str) -> str:
    beans = "".join(f'<bean class="{CONFIGURER}">{each}</bean>' for each in configurers)
    schemas = f"{BEANS} {BEANS}/spring-beans.xsd {CORE} {CORE}/activemq-core.xsd"
    return (
        f'<beans xmlns="{BEANS}" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="{schemas}">'
        f'{beans}<broker xmlns="{CORE}" start="false" useJmx="false" persistent="false"><destinations>'
        f'<queue physicalName="{name}"/></destinations><transportConnectors>'
        '<transportConnector uri="tcp://127.0.0.1:0"/></transportConnectors></broker></beans>'
    )


def read(path: Path) -> str:
    """Return the names of the queues that pybroker reads, or `refused`."""
    reading = interpret(path, {}, {"HOME": "/home"}, Demands())
    if any(each.kind is FindingKind.REFUSED for each in reading.findings):
        return "refused"
    return "|".join(str(each).removeprefix("queue://") for each in reading.settings["destinations"])


def test_activemq_reads_the_same(java: Any, tmp_path: Path) -> None:
    (tmp_path / "p.properties").write_text("x=file\n")
    paths: list[Path] = []
    for number, (configurers, name) in enumerate(CASES):
        paths.append(tmp_path / f"{number}.xml")
        paths[-1].write_text(text_of(configurers, name).replace("${directory}", str(tmp_path)))
    jars = [str(JAR_DIRECTORY / each) for each in SPRING_JARS]
    tools = replace(java, class_path=os.pathsep.join([java.class_path, *jars]))
    found = tools.run(PROGRAM, *map(str, paths)).splitlines()
    assert dict(zip(CASES, map(read, paths), strict=True)) == dict(zip(CASES, found, strict=True))
    assert found.count("refused") == 5
