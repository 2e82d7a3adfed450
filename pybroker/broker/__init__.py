"""The broker itself: `domain` (values and ports), `core` (rules without I/O), `app` (wiring, CLI)."""
