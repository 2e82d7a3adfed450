"""The role of a member of an installation."""

from enum import StrEnum


class Role(StrEnum):
    """The role of a broker among the members that share its store, as their files and `status --json` have it."""

    STANDBY = "STANDBY"
    PROMOTING = "PROMOTING"
    MASTER = "MASTER"
    RELINQUISHING = "RELINQUISHING"
    STOPPED = "STOPPED"
