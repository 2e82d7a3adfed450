r"""The broker's id beside its journal, in the file `pybroker.broker`, of which ActiveMQ knows nothing.

```text
{"broker_id": "ID:host-4711-1700000000000-1:2", "broker_name": "localhost"}\n
```

Only a master looks at it, under the lock. It is replaced in one step, and a crash leaves either the former or the new
one. A file that cannot be read, or holds something else, is made again with another id; one that cannot be written
keeps no master from serving, since messages do not depend on it.
"""

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pybroker import regular
from pybroker.broker.domain.identity import BrokerIdentity
from pybroker.store.identity import agreed
from pybroker.store.journal.files import JournalFiles

FILE_NAME: Final = "pybroker.broker"

_BYTES_MAX: Final = 4096
_TEXT: Final = re.compile(r"[!-~]{1,250}")

_log = logging.getLogger(__name__)


def keep_identity(
    files: JournalFiles, given: BrokerIdentity, fence: Callable[[], None], *, is_of_cluster: bool = False
) -> str:
    """Return the id of the broker that a journal belongs to, and store it if it is new. Blocks.

    Args:
        files: the journal's.
        given: a new id, for a journal without one, and this member's `broker_name`.
        fence: checks that lock and journal are still ours, before the file is replaced.
        is_of_cluster: the id is that of the cluster, whatever the file says: another member has made it.

    Raises:
        LockNotHeld: `fence` raised it.
    """
    path = files.directory / FILE_NAME
    found = _read(path)
    identity = agreed(found, given, str(path), is_of_cluster=is_of_cluster)
    if identity != found:
        content = json.dumps({"broker_id": identity.broker_id, "broker_name": identity.name}).encode() + b"\n"
        try:
            files.put(path, (content,), fence)
        except OSError as error:
            _log.warning(
                "%s cannot be written, so the next master may have another id or log this again: %s", path, error
            )
    return identity.broker_id


def stored_identity(directory: Path) -> BrokerIdentity | None:
    """Return the identity of the broker that a journal belongs to; None if there is none, or none can be read."""
    try:
        return _read_file(directory / FILE_NAME)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # a member that is master logs it
        return None


def stored_broker_id(directory: Path) -> str:
    """Return the id of the broker that a journal belongs to; empty if there is none, or none can be read."""
    found = stored_identity(directory)
    return "" if found is None else found.broker_id


def _read_file(path: Path) -> BrokerIdentity:
    with open(path, "rb", opener=regular.opener) as stream:
        text = stream.read(_BYTES_MAX)
    values = json.loads(text)
    return BrokerIdentity(_checked(values["broker_id"]), _checked(values["broker_name"]))


def _read(path: Path) -> BrokerIdentity | None:
    """Return a file's contents; None if it is missing or unusable."""
    try:
        return _read_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        problem = error.strerror or str(error)
    except (ValueError, KeyError, TypeError, RecursionError):
        problem = "it holds no broker's id"
    _log.warning("%s cannot be used and is made again, so the broker's id changes: %s", path, problem)
    return None


def _checked(value: object) -> str:
    if not isinstance(value, str) or not _TEXT.fullmatch(value):
        raise ValueError("not a text, or too long, or with characters that ids and names do not have")
    return value
