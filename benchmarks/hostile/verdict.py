"""Judges what a bystander measured, less what the machine itself was late, and whether the attack took place."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

QUIET_MS: Final = 100.0
"""The longest wait of an unrelated client that pybroker promises on a machine that has no other work."""
BUSY_MS: Final = 250.0
"""The same where others use the machine's cores at the same time."""
BUSY_LATE_MS: Final = 20.0
"""A machine whose own lateness reached this is a busy one."""
MEMORY_ABOVE_LIMIT_MB: Final = 100.0
"""What the process may have resident above `memory_limit`."""
FRAMES_ABOVE_LIMIT: Final = 3
"""The frames near `frame_max` that it may have besides: `docs/operations.md`, Messages near `frame_max`."""
STALL_SECONDS: Final = 0.1
"""A bystander that is not scheduled for so long shares the reason with the broker: a machine that stood still."""
LOG_KB_MAX: Final = 512.0
"""What one attack may write into the log; a minute of rate-limited lines is a small part of that."""

Spans = Sequence[tuple[float, float]]
"""Beginnings and lengths, in seconds of one clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """The waits of one trial, in milliseconds; `late_ms` is the machine's own share of the longest ones.

    Attributes:
        count: how many there were.
        p99_ms: 99th percentile.
        max_ms: the longest as it was.
        own_ms: the longest after the machine's lateness has been subtracted from each.
        late_ms: the longest lateness of the machine.
        step: what the bystander waited for longest.
    """

    count: int
    p99_ms: float
    max_ms: float
    own_ms: float
    late_ms: float
    step: str


def judged(waits: Mapping[str, Spans], *, late: Spans, delays: Spans) -> Waits:
    """Return the figures of all steps.

    Args:
        waits: by step.
        late: when a timer of the bystander was late.
        delays: when the broker's main thread could run and got no processor.
    """
    rows = [(seconds, began, step) for step, spans in waits.items() for began, seconds in spans]
    if not rows:
        return Waits(count=0, p99_ms=0.0, max_ms=0.0, own_ms=0.0, late_ms=0.0, step="none")
    rows.sort()
    seconds = [row[0] for row in rows]
    longest = [(span - lateness(began, span, late=late, delays=delays), step) for span, began, step in rows[-200:]]
    own, step = max(longest)
    return Waits(
        count=len(rows),
        p99_ms=1000 * seconds[min(len(seconds) - 1, int(0.99 * len(seconds)))],
        max_ms=1000 * seconds[-1],
        own_ms=1000 * own,
        late_ms=1000 * max((span for _, span in (*late, *delays)), default=0.0),
        step=step,
    )


def lateness(began: float, seconds: float, *, late: Spans, delays: Spans) -> float:
    """Return how much of a wait the machine is to blame for.

    That is what the broker waited for a processor in that time, and what the bystander did once the answer was there.
    Of the bystander's own lateness counts the one that lasted to the end of the wait, and each so long that the whole
    machine must have stood still, which no counter of the broker shows.
    """
    end = began + seconds
    total = sum(max(0.0, min(end, at + span) - max(began, at)) for at, span in delays)
    for at, span in late:
        if at <= end <= at + span or span >= STALL_SECONDS:
            total += max(0.0, min(end, at + span) - max(began, at))
    return min(total, seconds)


def unmeant(refusals: Mapping[str, int], meant: str | None, *, quick: bool) -> list[str]:
    """Return the refusals that kept an attack from its depth, and that it was refused nothing where it had to be.

    Args:
        refusals: how often the broker refused, by reason.
        meant: regular expression for the reasons that belong to the attack; None: it is to be refused nothing.
        quick: the short form, which may be too small to be refused.
    """
    others = {reason: count for reason, count in refusals.items() if meant is None or not re.search(meant, reason)}
    found = []
    if others:
        found.append(f"{sum(others.values()):,} refused: {max(others, key=others.__getitem__)}")
    if meant is not None and not quick and len(others) == len(refusals):
        found.append(f"nothing was refused with {meant}")
    return found


def problems(
    waits: Waits,
    *,
    peak_mb: float,
    limit_mb: float,
    frame_mb: float = 0,
    index_mb: float = 0,
    log_kb: float,
    errors: Sequence[str],
    harm: Sequence[str],
    missed: Sequence[str],
) -> list[str]:
    """Return what breaks a promise, and what the attack failed to do; nothing if the broker withstood all of it.

    The length of the attack's frames, `frame_mb`, counts where they come near `frame_max`; 0: they do not. The ids of
    what waits in the store, `index_mb`, count as `docs/operations.md` states under The process.
    """
    found = []
    memory_mb = limit_mb + MEMORY_ABOVE_LIMIT_MB + FRAMES_ABOVE_LIMIT * frame_mb + index_mb
    bound = BUSY_MS if waits.late_ms > BUSY_LATE_MS else QUIET_MS
    if waits.own_ms > bound:
        found.append(f"wait > {bound:g} ms")
    if peak_mb > memory_mb:
        found.append(f"memory > {memory_mb:g} MB")
    if log_kb > LOG_KB_MAX:
        found.append(f"log > {LOG_KB_MAX:g} KB")
    found += [f"bystander: {error}" for error in errors]
    found += harm
    found += [f"did not reach: {each}" for each in missed]
    return found
