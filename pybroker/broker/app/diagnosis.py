"""The findings of `pybroker doctor`: how bad each is, its evidence and its remedy."""

import enum
from dataclasses import dataclass


class Severity(enum.Enum):
    """How bad a finding is."""

    ADVICE = "advice"
    """Works, and could be better."""
    WARNING = "warning"
    """Works, until something else fails."""
    ERROR = "error"
    """Does not work, or loses messages when a member fails."""


class Verdict(enum.IntEnum):
    """Exit codes of `pybroker doctor`, for scripts."""

    WELL = 0
    WARNINGS = 3
    ERRORS = 4


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One finding.

    Attributes:
        severity: how bad it is.
        check: what was looked at, in one word.
        evidence: what was seen.
        remedy: what to do.
    """

    severity: Severity
    check: str
    evidence: str
    remedy: str


def error(check: str, evidence: str, remedy: str) -> Diagnosis:
    """Return a finding of what does not work."""
    return Diagnosis(Severity.ERROR, check, evidence, remedy)


def warning(check: str, evidence: str, remedy: str) -> Diagnosis:
    """Return a finding of what works for now."""
    return Diagnosis(Severity.WARNING, check, evidence, remedy)


def advice(check: str, evidence: str, remedy: str) -> Diagnosis:
    """Return a finding of what could be better."""
    return Diagnosis(Severity.ADVICE, check, evidence, remedy)
