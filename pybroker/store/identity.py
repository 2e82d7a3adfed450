"""The id of the broker that a store belongs to: made once, and the same for each later master and start.

Where it is kept is the store's business. The name is kept beside it for one reason: the log then shows that a member
has another `broker_name` than the master before.
"""

import logging

from pybroker.broker.domain.identity import BrokerIdentity

_log = logging.getLogger(__name__)


def agreed(
    found: BrokerIdentity | None, given: BrokerIdentity, where: str, *, is_of_cluster: bool = False
) -> BrokerIdentity:
    """Return the identity to serve with: the stored id, and the name that this member was given.

    Args:
        found: the stored value, or None.
        given: a new id, for a store without one, and this member's setting.
        where: names the store in the log.
        is_of_cluster: members with a store each share the given id, also one whose store had another before.
    """
    if found is None:
        _log.info("%s: the broker's id is %s from now on", where, given.broker_id)
        return given
    if found.name != given.name:
        _log.warning(
            "%s: the broker was called %s and is called %s now, and bridges take it for another broker: give all "
            "members the same broker_name",
            where,
            found.name,
            given.name,
        )
    if is_of_cluster and found.broker_id != given.broker_id:
        own, cluster = found.broker_id, given.broker_id
        _log.warning("%s: the broker's id was %s, and is that of the cluster now: %s", where, own, cluster)
        return given
    return BrokerIdentity(found.broker_id, given.name)
