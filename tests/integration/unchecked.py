# mypy: disable-error-code="method-assign"
"""`python -m tests.integration.unchecked start …`: pybroker that starts beside a member with another lock."""

from pybroker.broker.app import preflight
from pybroker.broker.app.membership import Membership

if __name__ == "__main__":
    Membership.require_same_lock = lambda self: None
    preflight.check_other_locks = lambda config: None
    from pybroker.broker.app.cli import main

    main()
