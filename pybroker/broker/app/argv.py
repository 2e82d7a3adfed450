"""Hides passwords on the command line from other users of the machine (`ps`, `/proc/PID/cmdline`).

They were visible for some milliseconds, and are in the shell's history: a file that `PGPASSFILE` names, or an
environment variable, is safer.
"""

import ctypes
import re
from pathlib import Path

_SECRETS = re.compile(
    rb"://[^:@/?#\0]*:(?P<in_front>[^/?#\0]*)@"
    rb"|[?&](?:ssl)?password=(?P<behind>[^&\0]+)"
    rb"|--property[=\0][^=\0]*(?i:password|passphrase|secret)[^=\0]*=(?P<property>[^\0]+)"
)
"""Passwords in URLs, and properties of Java that are passwords, such as `javax.net.ssl.keyStorePassword`."""

_ARG_START, _ARG_END = 48, 49
"""Fields of `/proc/self/stat`, proc(5), counted from 1."""


def hide_passwords() -> None:
    """Overwrite passwords among this process's arguments; no effect without /proc."""
    try:
        stat = Path("/proc/self/stat").read_bytes()
    except OSError:
        return
    fields = stat[stat.rindex(b")") + 2 :].split()  # from the third on: the second may have blanks
    start, end = int(fields[_ARG_START - 3]), int(fields[_ARG_END - 3])
    if 0 < start < end:
        for begin, length in secrets(ctypes.string_at(start, end - start)):
            ctypes.memset(start + begin, ord("*"), length)


def secrets(arguments: bytes) -> list[tuple[int, int]]:
    """Return offset and length of each password."""
    spans = [match.span(match.lastgroup or 0) for match in _SECRETS.finditer(arguments)]
    return [(begin, end - begin) for begin, end in spans]
