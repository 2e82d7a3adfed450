"""Reads the subject of an advisory as a bridge follows it.

Source: ActiveMQ 5.17, `AdvisoryBroker`; network.md 11.
"""

from dataclasses import replace

from pybroker.broker.domain.network.names import VIRTUAL_PREFIX
from pybroker.broker.domain.openwire.commands import ActiveMQMessage, ConsumerInfo, DataStructure


def subject_of(advisory: ActiveMQMessage) -> DataStructure | None:
    """Return the command that an advisory carries; None if it carries none.

    A consumer behind a virtual destination is demand for it without its selector, which an ActiveMQ leaves in: what it
    does not select has to wait in its queue for others.
    """
    subject, destination = advisory.data_structure, advisory.destination
    if (
        isinstance(subject, ConsumerInfo)
        and subject.selector
        and destination is not None
        and destination.name.startswith(VIRTUAL_PREFIX)
    ):
        return replace(subject, selector=None)
    return subject
