"""Environment variables that look like settings and have no effect."""

import os
from collections.abc import Mapping
from typing import Final

from pybroker.broker.app.config import ENVIRONMENT_PREFIX, SETTINGS, TABLES, is_table
from pybroker.broker.app.setting import nearest

_OTHER_VARIABLES: Final = (
    "PYBROKER_URL",
    "PYBROKER_MANAGEMENT_URL",
    "PYBROKER_USER",
    "PYBROKER_PASSWORD",
    "PYBROKER_KEY_PASSWORD",
    "PYBROKER_LDAP_PASSWORD",
)
"""The variables of other commands, and of passwords that are no settings."""

_TESTS: Final = "PYBROKER_TEST_"
"""The prefix of the tests' variables."""


def unknown_variables(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return a hint for each environment variable with the prefix of settings that has no effect."""
    known = {ENVIRONMENT_PREFIX + name.upper() for name in SETTINGS if not is_table(name)}
    return [
        f"{variable}: {_variable_remedy(variable)}"
        for variable in sorted(environment)
        if variable.startswith(ENVIRONMENT_PREFIX)
        and variable not in known
        and variable not in _OTHER_VARIABLES
        and not variable.startswith(_TESTS)
    ]


def _variable_remedy(variable: str) -> str:
    name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
    if name in TABLES:
        return "only a file can have it, see --config"
    near = nearest(name, SETTINGS)
    return f"did you mean {ENVIRONMENT_PREFIX}{near.upper()}?" if near else "there is no such setting"
