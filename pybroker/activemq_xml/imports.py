"""Reads the files that a configuration imports, for the beans in them that it refers to.

Source: Spring's `import resource="…"`: a name relative to the importing file, or a URL.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pybroker.activemq_xml.directories import Directories
from pybroker.activemq_xml.elements import BEANS, MalformedXml, XmlElement, parse
from pybroker.activemq_xml.placeholders import UnresolvedPlaceholder, filled_in
from pybroker.activemq_xml.spring import identities

FILES_MAX: Final = 32
"""Files that are read for one configuration; more of them are those of an application, or import each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """One import.

    Attributes:
        element: the element `import` of the configuration itself, which may be that of a file in between.
        name: the name of the file, without directories.
        root: its root, with the line and the column of the element everywhere; None: it could not be read.
        failure: why it could not be read; else empty.
        is_cyclic: it is the file that imports it, or one that imports this one; it was not read again.
    """

    element: XmlElement
    name: str
    root: XmlElement | None = None
    failure: str = ""
    is_cyclic: bool = False

    def beans(self) -> Mapping[str, XmlElement]:
        """Return its beans by the names that refer to them."""
        return {name: each for each in (self.root.children if self.root else ()) for name in identities(each)}


def read_imports(
    root: XmlElement,
    path: Path,
    properties: Mapping[str, str],
    directories: Directories,
    read_file: Callable[[Path], bytes],
) -> tuple[ImportedFile, ...]:
    """Read the files that a file imports, and those that these import.

    Args:
        root: its root.
        path: its name.
        properties: those that may be in the names of imports: the launcher's, and the environment.
        directories: those to which names in it are relative.
        read_file: reads a file.
    """
    found: list[ImportedFile] = []
    waiting: list[tuple[XmlElement, XmlElement, tuple[Path, ...]]] = [(each, each, (path,)) for each in _imports(root)]
    seen = {os.path.normpath(path)}
    while waiting and len(found) < FILES_MAX:
        element, within, importing = waiting.pop(0)
        given = within.attributes.get("resource", "").strip()
        try:
            resource = filled_in(given, properties)
        except UnresolvedPlaceholder as error:
            found.append(ImportedFile(element=element, name=given.rpartition("/")[2], failure=str(error)))
            continue
        other = _path(resource, importing[-1], directories)
        if os.path.normpath(other) in map(os.path.normpath, importing):
            found.append(ImportedFile(element=element, name=other.name, is_cyclic=True))
            continue
        if os.path.normpath(other) in seen:
            continue
        seen.add(os.path.normpath(other))
        read = _read(element, other, read_file)
        found.append(read)
        waiting += [(element, each, (*importing, other)) for each in _imports(read.root)]
    return tuple(found)


def _imports(root: XmlElement | None) -> Iterator[XmlElement]:
    for each in root.children if root else ():
        if each.name == "import" and each.namespace == BEANS:
            yield each


def _path(resource: str, importing: Path, directories: Directories) -> Path:
    if resource.partition(":")[0] in ("classpath", "file"):
        return directories.path(resource)
    return importing.parent / resource.lstrip("/")


def _read(element: XmlElement, path: Path, read_file: Callable[[Path], bytes]) -> ImportedFile:
    try:
        root = parse(read_file(path))
    except OSError as error:
        return ImportedFile(element=element, name=path.name, failure=error.strerror or "it cannot be read")
    except MalformedXml as error:
        return ImportedFile(element=element, name=path.name, failure=str(error))
    for each in root:
        each.line, each.column = element.line, element.column  # findings are about the configuration's own lines
    return ImportedFile(element=element, name=path.name, root=root)
