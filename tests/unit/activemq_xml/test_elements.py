"""The elements of a file: their lines, and what is refused."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.activemq_xml.elements import BEANS, BYTES_MAX, CORE, DEPTH_MAX, MalformedXml, XmlElement, parse

FILE = f"""<?xml version="1.0" encoding="UTF-8"?>
<beans xmlns="{BEANS}" xmlns:amq="{CORE}" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
       xsi:schemaLocation="a b">
  <!-- a comment -->
  <bean id="pg"><property name="url"><value> jdbc:x <![CDATA[?a=1&b=2]]>
  </value></property></bean>
  <amq:broker brokerName="a&amp;b &gt; c">
    <amq:plugins/><amq:plugins/>
  </amq:broker>
</beans>
""".encode()


def test_elements_have_names_attributes_text_and_lines() -> None:
    root = parse(FILE)
    assert [(each.name, each.namespace, each.line, each.column) for each in root] == [
        ("beans", BEANS, 2, 1),
        ("bean", BEANS, 5, 3),
        ("property", BEANS, 5, 17),
        ("value", BEANS, 5, 38),
        ("broker", CORE, 7, 3),
        ("plugins", CORE, 8, 5),
        ("plugins", CORE, 8, 19),
    ]
    bean, broker = root.children
    assert root.attributes == {}, "those with a prefix are for the parser"
    assert broker.attributes == {"brokerName": "a&b > c"}
    assert bean.children[0].children[0].text == "jdbc:x ?a=1&b=2"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_the_declared_encoding_counts(encoding: str) -> None:
    assert parse(
        f'<?xml version="1.0" encoding="{encoding}"?><broker brokerName="é"/>'.encode(encoding)
    ).attributes == {"brokerName": "é"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: no element found"),
        ("x<broker/>", "line 1, column 2: not well-formed"),
        ("<broker/>\n\nx", "line 3, column 1: junk after document element"),
        ("<broker>\n <a></b></broker>", "line 2, column 7: mismatched tag"),
        ('<broker uri="tcp://a?b=1&c=2"/>', "line 1, column 27: not well-formed"),
        ("<broker>&nbsp;</broker>", "line 1, column 9: undefined entity"),
        ('<?xml version="1.0" encoding="klingon"?><broker/>', "encoding"),
        ("<!DOCTYPE broker><broker/>", r"line 1, column \d+: a document type"),
        ('<!DOCTYPE b [<!ENTITY x SYSTEM "file:///etc/passwd">]>\n<b>&x;</b>', "a document type"),
        (
            f"{'<a>' * (DEPTH_MAX + 1)}{'</a>' * (DEPTH_MAX + 1)}",
            f"column 193: elements are more than {DEPTH_MAX} deep",
        ),
        (f"<a>{' ' * BYTES_MAX}</a>", "more than 1 MiB"),
    ],
)
def test_a_fault_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(MalformedXml, match=message):
        parse(text.encode())


def test_entities_that_multiply_take_no_memory() -> None:
    entities = "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(9))
    bomb = f'<!DOCTYPE b [<!ENTITY l0 "laugh">{entities}]><b>&l9;</b>'.encode()
    tracemalloc.start()
    with pytest.raises(MalformedXml, match="a document type"):
        parse(bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


def test_the_deepest_file_is_read() -> None:
    assert len([*parse(b"<a>" * DEPTH_MAX + b"</a>" * DEPTH_MAX)]) == DEPTH_MAX


@given(st.integers(0, len(FILE) - 1), st.binary(max_size=4), st.integers(0, 20))
def test_a_changed_file_is_read_or_refused_with_its_line(at: int, inserted: bytes, removed: int) -> None:
    root: XmlElement | None = None
    line = 1
    try:
        root = parse(FILE[:at] + inserted + FILE[at + removed :])
    except MalformedXml as error:
        line = error.line
    assert root is None or root.name
    assert 1 <= line <= FILE.count(b"\n") + 5
