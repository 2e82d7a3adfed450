"""Another content of a data file, which arrives in pieces and takes the file's place in one step."""

import os
import zlib
from pathlib import Path
from typing import Final

from pybroker.broker.domain.replica.frames import ReplacePiece
from pybroker.broker.domain.replica.manifest import MalformedFrame
from pybroker.store.journal.files import SEALED_SUFFIX, System

_INFIX: Final = ".replica"


class IncomingFile:
    """A copy beside the file. A crash leaves it under a name that no reader takes for a data file's.

    Blocks; methods raise `OSError`.
    """

    def __init__(self, path: Path, first: ReplacePiece, system: System) -> None:
        """Create the copy, empty.

        Args:
            path: the data file's. It need not exist.
            first: the first piece, which is not written yet.
            system: the operating system's files.
        """
        self.path = path
        self.journal, self.file_id, self.length, self._crc = first[:4]
        self._system = system
        self._copy = path.with_name(f"{path.name}{_INFIX}{SEALED_SUFFIX}")
        self._written = self._written_crc = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._descriptor = system.open(self._copy, flags, 0o666)

    @property
    def is_complete(self) -> bool:
        """True when all pieces are there."""
        return self._written == self.length

    def write(self, piece: ReplacePiece) -> None:
        """Write the next piece.

        Raises:
            MalformedFrame: it is not the next one of this content.
        """
        is_same = piece[:4] == (self.journal, self.file_id, self.length, self._crc)
        end = piece.offset + len(piece.content)
        if not is_same or piece.offset != self._written or not self._written < end <= self.length:
            raise MalformedFrame(f"{self.path.name}: a piece of another content at {piece.offset}")
        view = memoryview(piece.content)
        while view:
            view = view[self._system.pwrite(self._descriptor, view, end - len(view)) :]
        self._written = end
        self._written_crc = zlib.crc32(piece.content, self._written_crc)

    def sync(self) -> None:
        """Make the complete copy durable.

        Raises:
            MalformedFrame: its checksum is another than announced.
        """
        assert self.is_complete, "all pieces have come"
        if self._written_crc != self._crc:
            raise MalformedFrame(f"{self.path.name}: the new content is damaged: its checksum differs")
        self._system.fsync(self._descriptor)

    def finish(self) -> None:
        """Put the copy into the file's place; the directory is not synced."""
        self._system.close(self._descriptor)
        self._descriptor = -1
        self._system.replace(self._copy, self.path)

    def abandon(self) -> None:
        """Close the copy, which stays until the directory is examined again."""
        if self._descriptor >= 0:
            self._system.close(self._descriptor)
            self._descriptor = -1
