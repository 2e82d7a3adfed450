"""Intended differences from ActiveMQ 5.17: what ActiveMQ returns instead, and our reason.

`docs/differences.md` has the same for users; its headings are the titles here, and a test compares the two.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One outcome that is not the same.

    Attributes:
        title: the heading in the document that has the whole reason.
        reason: why, in a sentence.
        activemq: the outcome of the check with ActiveMQ.
    """

    title: str
    reason: str
    activemq: Any


_LOOSE = "Loose and uncached encoding"
_VERBATIM = "Messages are passed on as they came"
_PAGES = "No page of 200 messages"
_CURSORS = "One order for persistent and other messages"
_SLOW = "A slow consumer of a queue is announced"
_CODES = "Exceptions say what is wrong"
_SELECTORS = "Selectors follow JMS"
_UTF8 = "STOMP is UTF-8"
_RIGHTS = "Rights without holes"
_CERTIFICATES = "A user has one name, with a certificate too"
_SCHEDULED = "Scheduled messages belong to their transaction"
_MBEANS = "Attributes of MBeans"
_OF_PRODUCERS = ["PercentageBlocked", "ProducerBlocked", "ProducerWindowSize", "SentCount", "TotalTimeBlocked"]
_NO_ADVISORIES = (
    "javax.jms.JMSSecurityException: User lone is not authorized to read from: "
    "ActiveMQ.Advisory.TempQueue,ActiveMQ.Advisory.TempTopic <- java.lang.SecurityException"
)

DIFFERENCES: dict[tuple[str, str], Difference] = {
    ("Connections", "negotiated"): Difference(
        title=_LOOSE,
        reason="loose, uncached bytes are journalled and passed on as they came",
        activemq={
            "version": 12,
            "tight": True,
            "cache": True,
            "stack traces": True,
            "size prefix": True,
            "frame limit of 100 MiB": True,
        },
    ),
    ("Messages", "brokerStampsItsTimes"): Difference(
        title=_VERBATIM,
        reason="the times at which a message came to the broker and left it would have to be written into its bytes",
        activemq={"in": True, "out": True},
    ),
    ("Consumers", "persistentAndOtherMessagesKeepTheirOrder"): Difference(
        title=_CURSORS,
        reason="ActiveMQ keeps two lists and empties one first; JMS promises the order of one session's sends",
        activemq=["p0", "p1", "p2", "n0", "n1", "n2"],
    ),
    ("Consumers", "selectorLooksFarAhead"): Difference(
        title=_PAGES,
        reason="a consumer whose messages lie behind 200 others would starve",
        activemq="nothing",
    ),
    ("PolicyAdvisories", "slowConsumerOfAQueue"): Difference(
        title=_SLOW,
        reason="ActiveMQ looks when a consumer of a queue acknowledges, so it announces none that does not",
        activemq=[],
    ),
    ("Transactions", "manyReceivesInOneTransaction"): Difference(
        title=_PAGES,
        reason="a transaction that receives more than a page would wait for ever",
        activemq=200,
    ),
    ("Transactions", "asynchronousFailureSpoilsTheTransaction"): Difference(
        title=_CODES,
        reason="an application that sees the commit fail must know that the transaction was rolled back",
        activemq={"commit": "javax.jms.JMSException", "queue": []},
    ),
    ("Transactions", "acknowledgementsLostInAFailover"): Difference(
        title=_CODES,
        reason="what the program takes for received comes again, though its commit was answered",
        activemq={"commit": "nothing", "queue": ["m0", "m1"]},
    ),
    ("Transactions", "moreInTheRangeThanWasReceived"): Difference(
        title=_CODES,
        reason="a message that no one has looked at would be gone",
        activemq={"commit": "nothing", "queue": []},
    ),
    ("Xa", "prepareOfUnknown"): Difference(
        title=_CODES,
        reason="ActiveMQ's own exception reaches the client as XAER_RMFAIL; XAER_NOTA says that the branch is unknown",
        activemq="error -7",
    ),
    ("Advisories", "noDurableSubscription"): Difference(
        title=_CODES,
        reason="what is wrong is the destination, and InvalidDestinationException is a JMSException",
        activemq="javax.jms.JMSException",
    ),
    ("Selectors", "disputed"): Difference(
        title=_SELECTORS,
        reason="NOT applies to a comparison, and a comparison with a missing property is unknown (JMS 1.1, 3.8.1)",
        activemq={"NOT n = 2": "[]", "missing = missing": "[0, 1, 2, 3, 4, 5]"},
    ),
    ("Interop", "textToStomp"): Difference(
        title=_UTF8,
        reason="a STOMP client expects UTF-8, and Java's own variant is none for characters beyond U+FFFF",
        activemq=[
            {
                "body": "Grüße, 東京, \\xed\\xa0\\xbd\\xed\\xb8\\x80",
                "destination": "/queue/Interop.textToStomp",
                "persistent": "true",
                "priority": "4",
            },
            {"body": "", "destination": "/queue/Interop.textToStomp", "persistent": "true", "priority": "4"},
        ],
    ),
    ("Survival", "scheduledInDoubt"): Difference(
        title=_SCHEDULED,
        reason="ActiveMQ keeps it in memory until the commit, and loses it when the branch outlives a master",
        activemq=["nothing"],
    ),
    ("Rights", "compositeUnderTwoRules"): Difference(
        title=_RIGHTS,
        reason="each part of a composite name is allowed; that different rules do so should not matter",
        activemq="javax.jms.JMSSecurityException: User w is not authorized to write to: RW.y,WO.y <- "
        "java.lang.SecurityException",
    ),
    ("Rights", "forgedAdvisory"): Difference(
        title=_RIGHTS,
        reason="a client could tell others of connections and destinations that do not exist",
        activemq={"sent": "nothing", "arrived": True},
    ),
    ("Rights", "removalOfAnExistingQueue"): Difference(
        title=_RIGHTS,
        reason="ActiveMQ checks the right only if the queue does not exist",
        activemq="nothing",
    ),
    ("Rights", "unsubscribe"): Difference(
        title=_RIGHTS,
        reason="a client could delete the subscription of another by its client id",
        activemq="nothing",
    ),
    ("Rights", "startWithoutRightToAdvisories"): Difference(
        title=_RIGHTS,
        reason="a connection cannot start without the advisories about temporary destinations, which tell no secrets",
        activemq=_NO_ADVISORIES,
    ),
    ("Rights", "startWithoutRightAndWithFailover"): Difference(
        title=_RIGHTS, reason="as without failover", activemq=_NO_ADVISORIES
    ),
    ("Rights", "sendInATransaction"): Difference(
        title=_CODES,
        reason="the commit tells which message was refused, and why",
        activemq={
            "heard": "javax.jms.JMSSecurityException: User u is not authorized to write to: queue://S.secret",
            "commit": "javax.jms.JMSException: COMMIT FAILED: Transaction marked rollback only xaErrorCode:100 <- "
            "javax.transaction.xa.XAException",
            "nothing arrived": True,
        },
    ),
    ("Mbeans", "attributesOfOneBroker"): Difference(
        title=_MBEANS,
        reason="what pybroker does not count has no attribute, rather than a 0 that is wrong",
        activemq={
            "lacking": {
                "ConnectionView": ["DispatchQueueSize", "OldestActiveTransactionDuration", "Slow"],
                "DurableSubscriptionView": ["CursorFull", "CursorMemoryUsage", "CursorPercentUsage"],
                "DynamicProducerView": [
                    "DestinationName",
                    "DestinationQueue",
                    "DestinationTemporary",
                    "DestinationTopic",
                    *_OF_PRODUCERS,
                ],
                "InactiveDurableSubscriptionView": ["CursorFull", "CursorMemoryUsage", "CursorPercentUsage"],
                "JobSchedulerView": ["AllJobs", "DelayedMessageCount", "NextScheduleJobs", "NextScheduleTime"],
                "PersistenceAdapterView": ["Data", "Statistics", "Transactions"],
                "ProducerView": _OF_PRODUCERS,
                "QueueView": [
                    "AverageBlockedTime",
                    "BlockedSends",
                    "MessageGroups",
                    "StoreMessageSize",
                    "TotalBlockedTime",
                ],
                "TopicView": ["AverageBlockedTime", "BlockedSends", "StoreMessageSize", "TotalBlockedTime"],
            },
            "own": {"BrokerView": ["Epoch", "LockHolder", "Role", "StandbyCount"]},
        },
    ),
    ("Mbeans", "brokerDiffers"): Difference(
        title=_MBEANS,
        reason="the version is pybroker's, advisory topics would hide the others, and a limit of 0 is none",
        activemq={"advisory topics": True, "limits of store and scheduler": [True, True], "version": "5.17.2"},
    ),
    ("Certificates", "textOfADenial"): Difference(
        title=_CERTIFICATES,
        reason="the name is that of the log and of JMSXUserID",
        activemq="javax.jms.JMSSecurityException: User CN=client one, OU=test, O=x, C=US is not authorized to "
        "write to: queue://OTHERS.a <- java.lang.SecurityException",
    ),
}
