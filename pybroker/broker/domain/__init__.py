"""Values and ports every other room speaks: no I/O, no clock, no randomness, no import of ours."""
