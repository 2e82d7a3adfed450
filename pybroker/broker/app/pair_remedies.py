"""The remedy for each kind of finding of `pair_judgement` and `pair_watch`."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Final

OTHER: Final = "other"
"""The kind of a reason of which only the text is known."""

REMEDIES: Final[Mapping[str, str]] = {
    "port": "end what uses the port there (`ss -ltnp` shows it), or correct bind and the ports",
    "store": "let that machine's user open the lock file and read the directories, and mount the file system again",
    "hanging": "look at the file server and the network; clients of the master are served as long as its writes return",
    "place": "mount the store's file system where it was, then start the member again",
    "journal": "the log has the error: correct the permissions, or check the journal by `pybroker journal check`",
    "masters": "stop one of them at once, then find out why the lock did not keep it out: `pybroker doctor` on both",
    "lock": "start the standby again, so that it waits for the file that is there; nothing may delete the lock file",
    "zombie": "on NFSv3 have the file server clear the locks of the lost machine, and mount with vers=4.1 or later",
    "elsewhere": "set store to the same shared directory on all members",
    "silent": "look at that machine; if it does not come back, end the process: only then another takes over",
    "identity": "set store to the master's directory: this member would serve other messages",
    "scheduler": "leave scheduler_store out, or put it on the shared file system",
    "reading": "wait: a first reading of a long journal takes minutes; if it does not end, look at the disk",
    "stuck": "start the standby again; if it is stuck again, its file system does not show what the master writes",
    "behind": "look at the disk and the load of the standby: it has more to read when it takes over",
    "settings": "give all members the same settings, users and rules; those that take effect at a start need one",
    "version": "upgrade the standby, step the master down, then upgrade the other",
    "clock": "keep the clocks together, by NTP for example",
    "unconfirmed": "look at the file server or the database of the lock: the master gives up if it stays away",
    "alone": "start the other member; `pybroker status` shows when it was last seen",
    OTHER: "the log of that member says more",
}
"""A sentence for each kind."""


def kinds_and_texts(
    kinds: Sequence[str], obstacles: Sequence[str], warnings: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Pair the reasons of one member with their kinds, the obstacles first."""
    known = (kind.partition(" ")[0] for kind in kinds)
    return zip(chain(known, repeat(OTHER)), (*obstacles, *warnings), strict=False)
