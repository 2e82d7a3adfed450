"""Tools for a journal that another process may be writing: check, dump, why, salvage, compact, export.

`snapshot` and `scan` read, `replaying` makes a state of it. `check`, `dump`, `why` and `export` say what they found;
`salvage` and `compact` write, the one into a new directory, the other in place. Nothing here prints, or knows which
lock guards a store: that is the application's business.
"""
