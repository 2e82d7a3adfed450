"""Values and ports that all packages use: no I/O, no clock, no randomness, no imports of other packages."""
