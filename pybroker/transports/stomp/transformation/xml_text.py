"""Conversion between trees and XML text, which is indented by two spaces and has no declaration.

A document type is refused, and with it every entity except the five of XML and character references: no other file is
read, and no entity expands. Source: XStream 1.4, `PrettyPrintWriter`; XML 1.0.
"""

from collections.abc import Mapping
from typing import Final, NoReturn
from xml.parsers.expat import ExpatError, ParserCreate

from pybroker.transports.stomp.transformation.tree import Element, NotTransformable, check_count, check_depth

_CONTROLS = (*range(0x09), 0x0B, 0x0C, *range(0x0D, 0x20), *range(0x7F, 0xA0), 0xFFFE, 0xFFFF)
_ESCAPES: Final = {code: f"&#x{code:x};" for code in _CONTROLS} | str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"}
)


def to_xml(root: Element) -> str:
    """Return a tree as XML."""
    lines: list[str] = []
    _append(lines, root, "")
    return "\n".join(lines)


def _append(lines: list[str], node: Element, indent: str) -> None:
    name = node.name
    opening = name if node.java_class is None else f'{name} class="{node.java_class}"'
    if node.text is not None:
        lines.append(f"{indent}<{opening}>{node.text.translate(_ESCAPES)}</{name}>")
    elif not node.children:
        lines.append(f"{indent}<{opening}/>")
    else:
        lines.append(f"{indent}<{opening}>")
        for child in node.children:
            _append(lines, child, indent + "  ")
        lines.append(f"{indent}</{name}>")


def from_xml(body: bytes) -> Element:
    """Return the tree of a text in UTF-8; the encoding in its declaration is ignored.

    Raises:
        NotTransformable: it is no XML, has a document type, or more or deeper elements than is allowed.
    """
    reader = _XmlTreeReader()
    parser = ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = reader.refuse_document_type
    try:
        parser.Parse(body, True)
    except ExpatError as error:
        raise NotTransformable(f"The body is no XML: {error}") from error
    return reader.root


class _XmlTreeReader:
    """Builds the tree from the parser's events."""

    def __init__(self) -> None:
        self._open: list[tuple[str, list[str], list[Element], str | None]] = [("", [], [], None)]
        self._count = 0

    @property
    def root(self) -> Element:
        return self._open[0][2][0]

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._count += 1
        check_count(self._count)
        check_depth(len(self._open))
        if "reference" in attributes:
            raise NotTransformable("References between elements are not supported")
        self._open.append((name, [], [], attributes.get("class")))

    def end(self, _name: str) -> None:
        name, text, children, java_class = self._open.pop()
        self._open[-1][2].append(Element(name, "".join(text), children, java_class))

    def text(self, text: str) -> None:
        self._open[-1][1].append(text)

    def refuse_document_type(self, *_declaration: object) -> NoReturn:
        raise NotTransformable("A document type (DOCTYPE) is not allowed")
