"""A replicated store's directory: what a follower writes, and what a master reads for followers that catch up.

- `identity`: the store's id, and the cluster it belongs to
- `manifest_files`: reads the manifest of the data files
- `incoming`: another content of a data file, which arrives in pieces
- `discarded`: keeps what a follower had and the master has not
- `receiver`: a follower's data files
- `catch_up`: a master's data files

```text
DIR/kahadb/, DIR/scheduler/      the journals
DIR/replica/store.json           the store's id
DIR/replica/manifest.json        checksums of data files that do not change any more
DIR/replica/unfinished           there during a catch-up that passes through states that are not the master's
DIR/replica/discarded/EPOCH-N/   links to what was cut off or dropped
```
"""

from typing import Final

DIRECTORY: Final = "replica"
"""Below the store's directory."""
