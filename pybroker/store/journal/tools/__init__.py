"""Tools for a journal that another process may be writing: check, dump, why, salvage, compact, export.

`journal_snapshot` and `scan` read, `observed_replay` builds the state. `check`, `dump`, `why` and `export` report;
`salvage` writes into a new directory, `compact` in place. Printing, and the lock of the store, are left to the
application.
"""
