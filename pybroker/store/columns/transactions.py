"""Checks many transaction ids at once for the form that brokers write; enough where ids are not shown.

```text
local | 0A length | 0A length | 0A connection | 08 number |
XA    | 0A length | 12 length | 08 format | 12 branch qualifier | 1A global transaction id |
```

Another order, a field left out or one more, and numbers below 0 are odd, and left to `rows`.
"""

import numpy as np

from pybroker.store.columns.chunks import Longs
from pybroker.store.columns.lanes import Flags, Lanes, Window
from pybroker.store.columns.texts import Places, texts


def odd_transactions(window: Window, fields: Places) -> Longs:
    """Return the lanes with a transaction, in a field with its tag, that is not of a usual shape."""
    some = np.flatnonzero(fields.valid)
    lanes = Lanes(window, fields.begin[some], fields.end[some])
    _enter(lanes, lanes.tagged(0x0A))
    is_local, length = lanes.tagged(0x0A)
    is_xa, xa_length = lanes.tagged(0x12)
    _enter(lanes, (is_local ^ is_xa, length + xa_length))
    connection = _run(lanes, 0x0A, is_local)
    lanes.require(lanes.tagged(0x08)[0])
    for tag in (0x12, 0x1A):
        _run(lanes, tag, is_xa)
    lanes.require_end()
    texts(window, connection.only(~lanes.odd), lanes.odd)
    return some[lanes.odd]


def _enter(lanes: Lanes, tagged: tuple[Flags, Longs]) -> None:
    """Enter a message that must be there and end the record."""
    found, length = tagged
    lanes.require(found & (lanes.at + length == lanes.end))


def _run(lanes: Lanes, tag: int, where: Flags) -> Places:
    """Take a field of bytes from some lanes, which must have it. Behind the end of another there may be such a tag."""
    found, length = lanes.tagged(tag, where)
    lanes.require(found == where)
    return Places(*lanes.run(length), found)
