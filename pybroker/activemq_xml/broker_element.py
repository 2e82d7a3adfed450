"""Reads the element `broker`: its attributes, and each of its sections by the module for it.

Source: activemq-xml.md, section 3.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from pybroker.activemq_xml import (
    broker_services,
    connectors,
    destination_elements,
    destination_policy,
    networks,
    persistence,
    plugins,
    security_plugins,
    spring_beans,
    system_usage,
    tls_stores,
    virtual_destinations,
)
from pybroker.activemq_xml.elements import BEANS, CORE, XmlElement
from pybroker.activemq_xml.persistence import DEFAULT_NAME, broker_name, data_directory
from pybroker.activemq_xml.reading import (
    FALSE,
    TRUE,
    Handler,
    Reading,
    Rules,
    ignored,
    ignored_element,
    read_attributes,
    read_properties,
    refused,
    setting,
    silent,
    silent_element,
    warned,
)
from pybroker.activemq_xml.references import given_beans
from pybroker.activemq_xml.spring import property_texts, simple_class
from pybroker.activemq_xml.values import duration, flag, is_member_name, whole

_REPEATS: Final = "1000"
_INTERNAL: Final = "how ActiveMQ runs inside"
_NO_JMX: Final = "there is no JMX: management is REST, metrics and Jolokia"
_BY_REFERENCE: Final = "a reference to a bean of its own class is not followed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """The operator's options for the interpretation of a configuration.

    Attributes:
        are_all_connectors_required: a connector that pybroker does not serve is refused, and not a warning.
        is_network_left_out: connectors to other brokers are warnings, and not refused.
        members: the addresses, `HOST:PORT`, at which the members of this pair serve OpenWire, as far as they are known.
    """

    are_all_connectors_required: bool = False
    is_network_left_out: bool = False
    members: frozenset[str] = frozenset()


def _populate_user_id(reading: Reading, element: XmlElement, name: str) -> None:
    if flag(element.attributes[name]):
        reading.set("populate_jmsx_user_id", True, element, name)


def _purge_period(reading: Reading, element: XmlElement, name: str) -> None:
    milliseconds = whole(element.attributes[name])
    reading.set("destination_purge_interval", duration(str(max(milliseconds, 0))), element, name)


def _offline_timeout(reading: Reading, element: XmlElement, name: str) -> None:
    if whole(element.attributes[name]) > 0:  # never, in ActiveMQ, otherwise
        setting("offline_durable_subscriber_timeout", duration)(reading, element, name)


def _mirrored(reading: Reading, element: XmlElement, name: str) -> None:
    if flag(element.attributes[name]):
        reading.set("mirrored_queues", {"prefix": "VirtualTopic.Mirror."}, element, name)


def _virtual_topics(reading: Reading, element: XmlElement, name: str) -> None:
    if not flag(element.attributes[name]):
        reading.set("virtual_topics", [], element, name)


def _delete_messages(reading: Reading, element: XmlElement, name: str) -> None:
    if not flag(element.attributes[name]):
        reading.findings.same(element, name)
    elif reading.is_in_memory:
        reading.findings.ignore(element, "a store in memory is empty at each start", name)
    else:
        reading.findings.refuse(element, "pybroker never removes a store: remove the attribute, or the directory", name)


ATTRIBUTES: Final[Rules] = {
    # Read by `read`:
    **dict.fromkeys(("brokerName", "persistent", "dataDirectory", "schedulerSupport", "schedulerDirectory"), silent),
    **dict.fromkeys(("jobSchedulerStore", "persistenceAdapter"), silent),
    "populateJMSXUserID": _populate_user_id,
    "useAuthenticatedPrincipalForJMSXUserID": ignored("it is always the user who has logged in"),
    "populateUserNameInMBeans": ignored("operators always see the user's name"),
    "schedulePeriodForDestinationPurge": _purge_period,
    "offlineDurableSubscriberTimeout": _offline_timeout,
    "offlineDurableSubscriberTaskSchedule": setting("offline_durable_subscriber_task_schedule", duration),
    "useMirroredQueues": _mirrored,
    "useVirtualTopics": _virtual_topics,
    "deleteAllMessagesOnStartup": _delete_messages,
    "useJmx": ignored(_NO_JMX),
    "advisorySupport": warned("advisories are on: clients that watch them need them", unless=TRUE),
    "keepDurableSubsActive": warned("durable subscriptions keep their messages ready at all times", unless=TRUE),
    "allowTempAutoCreationOnSend": warned("a temporary destination is made by the client that owns it", unless=FALSE),
    "rejectDurableConsumers": warned("durable subscriptions are allowed: forbid them with rules", unless=FALSE),
    "useTempMirroredQueues": warned("temporary queues are not mirrored", unless=FALSE),
    "maxSchedulerRepeatAllowed": warned("repeats of scheduled messages have no such limit", unless=(_REPEATS,)),
    "useVirtualDestSubs": setting("use_virtual_dest_subs", flag),
    "useVirtualDestSubsOnCreation": setting("use_virtual_dest_subs_on_creation", flag),
    "networkConnectorStartAsync": ignored("the start never waits for another broker"),
    "anonymousProducerAdvisorySupport": warned(
        "pybroker publishes no advisory for a producer without a destination", unless=FALSE
    ),
    "waitForSlave": warned("left over from pure master/slave, and without effect since ActiveMQ 5.8", unless=FALSE),
    "waitForSlaveTimeout": warned("left over from pure master/slave, and without effect since ActiveMQ 5.8"),
    "passiveSlave": warned("left over from pure master/slave, and without effect since ActiveMQ 5.8", unless=FALSE),
    "shutdownOnMasterFailure": warned("left over from pure master/slave", unless=FALSE),
    "shutdownOnSlaveFailure": warned("left over from pure master/slave", unless=FALSE),
    "messageAuthorizationPolicy": refused("a policy of its own class is not run: messages would not be protected"),
    "regionBroker": refused("a broker of its own class is not run"),
    "persistenceFactory": refused("a store of its own class is not opened"),
    "timeBeforePurgeTempDestinations": ignored("temporary destinations end with their connection"),
    "maxPurgedDestinationsPerSweep": ignored("a sweep gives way to messages by itself"),
    "enableMessageExpirationOnActiveDurableSubs": ignored(
        "expired messages of durable subscriptions are always removed"
    ),
    **dict.fromkeys(
        (
            *(
                "destinationPolicy",
                "systemUsage",
                "sslContext",
                "brokerContext",
            ),
            *("consumerSystemUsage", "producerSystemUsage", "ioExceptionHandler", "tempDataStore"),
            *("dataDirectoryFile", "schedulerDirectoryFile", "destinationFactory", "vmConnectorURI"),
        ),
        warned(_BY_REFERENCE),
    ),
    **dict.fromkeys(
        (
            *("adjustUsageLimits", "adminView", "brokerId", "brokerObjectName", "cacheTempDestinations"),
            *("consumerSystemUsagePortion", "dedicatedTaskRunner", "diskUsageCheckRegrowThreshold", "enableStatistics"),
            *("managementContext", "mbeanInvocationTimeout", "monitorConnectionSplits"),
            *("persistenceTaskRunnerFactory", "persistenceThreadPriority", "producerSystemUsagePortion"),
            *("restartAllowed", "rollbackOnlyOnAsyncException", "schedulePeriodForDiskUsageCheck"),
            *("splitSystemUsageForProducersConsumers", "start", "startAsync", "startException", "storeOpenWireVersion"),
            *("systemExitOnShutdown", "systemExitOnShutdownExitCode", "taskRunnerFactory", "taskRunnerPriority"),
            *("tmpDataDirectory", "useLocalHostBrokerName", "useLoggingForShutdownErrors", "useShutdownHook"),
        ),
        ignored(_INTERNAL),
    ),
}


def _read_management(reading: Reading, element: XmlElement) -> None:
    made = [flag(each.attributes.get("createConnector", "true")) for each in element.children]
    if any(made):
        reading.findings.warn(element, f"{_NO_JMX}: set management")
    else:
        reading.findings.ignore(element, _NO_JMX)
    for each in (held for bean in element.children for held in bean.children):
        if each.namespace == BEANS and each.name == "property":
            reading.findings.ignore(each, _NO_JMX)


def _read_hooks(reading: Reading, element: XmlElement) -> None:
    own = [each for each in element.children if not each.attributes.get("class", "").endswith(".SpringContextHook")]
    if own:
        reading.findings.warn(element, "a hook of its own class is not run")
    else:
        reading.findings.ignore(element, "there is no Spring to shut down")


def _read_plugins(reading: Reading, element: XmlElement) -> None:
    plugins.read(reading, element, data_directory=data_directory(reading))


def _handlers(demands: Demands) -> Mapping[str, Handler]:
    """Return the readers of the sections."""
    return {
        **dict.fromkeys(("jobSchedulerStore", "persistenceAdapter", "persistenceFactory"), silent_element),
        "networkConnectors": partial(networks.read, is_left_out=demands.is_network_left_out, members=demands.members),
        **dict.fromkeys(
            ("networkConnectorURIs", "jmsBridgeConnectors", "proxyConnectors"),
            partial(networks.read_uris, is_left_out=demands.is_network_left_out),
        ),
        "systemUsage": system_usage.read,
        "transportConnectors": partial(connectors.read, are_all_required=demands.are_all_connectors_required),
        "sslContext": tls_stores.read,
        "managementContext": _read_management,
        "shutdownHooks": _read_hooks,
        "destinationPolicy": destination_policy.read,
        "destinationInterceptors": virtual_destinations.read,
        "destinations": destination_elements.read,
        "plugins": _read_plugins,
        **broker_services.HANDLERS,
        **dict.fromkeys(
            ("taskRunnerFactory", "persistenceTaskRunnerFactory", "brokerObjectName", "adminView", "startException"),
            ignored_element(_INTERNAL),
        ),
    }


def read(reading: Reading, demands: Demands) -> None:
    """Read the broker of a file into settings."""
    broker = reading.file.broker
    reading.is_in_memory = persistence.is_in_memory(reading)
    persistence.read(reading)
    read_attributes(reading, broker, ATTRIBUTES)
    read_properties(reading, broker, _handlers(demands))
    security_plugins.complete(reading)
    tls_stores.complete(reading)
    if not any(each.name == "transportConnectors" and each.namespace == CORE for each in broker.children):
        reading.findings.refuse(broker, "it has no transportConnectors: clients could not connect")
    destination_policy.complete(reading)
    _read_name(reading, broker)
    _read_scheduler(reading, broker)
    persistence.fit_limit(reading)
    reading.set("topic_pending_limit", -1, broker)
    spring_beans.read(reading)


def _read_name(reading: Reading, broker: XmlElement) -> None:
    """Read the broker's name: that of the member if each has another one, as with `${HOSTNAME}`, else of the pair.

    The only member of a store in memory has it too, and so does one that holds a lease in its name. Those that lock a
    row of a database may have one name for both members.
    """
    name = broker_name(reading)
    if name == DEFAULT_NAME:
        return
    differs = reading.file.may_differ(broker, "brokerName")
    if not differs:
        reading.set("broker_name", name, broker, "brokerName")
    is_shared = reading.is_in_directory or reading.settings.get("lock") == "postgres-row"
    if (differs or not is_shared) and is_member_name(name) and "name" not in reading.settings:
        reading.set("name", name, broker, "brokerName")


def _scheduler_directory(reading: Reading) -> str:
    """Return the directory that a file gives scheduled messages, by an attribute or by a store; empty if by none."""
    for each in given_beans(reading, reading.file.broker, "jobSchedulerStore"):
        directory = "".join(property_texts(each, "directory"))
        if simple_class(each) == "JobSchedulerStoreImpl" and directory:
            return directory
        reading.findings.refuse(each, "scheduled messages are read from a JobSchedulerStoreImpl with a directory alone")
    return reading.file.broker.attributes.get("schedulerDirectory", "")


def _read_scheduler(reading: Reading, broker: XmlElement) -> None:
    """Read where scheduled messages are.

    ActiveMQ has them in a directory of each broker's name, so that the members of a pair whose names differ do not see
    each other's; pybroker's are beside the journal then.
    """
    if not flag(broker.attributes.get("schedulerSupport", "false")):
        reading.set("scheduler", False, broker, "schedulerSupport")
        return
    reading.set("scheduler", True, broker, "schedulerSupport")
    given = _scheduler_directory(reading)
    directory = reading.file.directories.path(given) if given else data_directory(reading) / "scheduler"
    attribute = "schedulerDirectory" if "schedulerDirectory" in broker.attributes else "schedulerSupport"
    store = reading.settings.get("store")
    if store is None or reading.is_in_memory:
        return
    if not reading.is_in_directory:
        reading.findings.warn(
            broker,
            f"ActiveMQ keeps scheduled messages in {directory}, and pybroker in the database: those there are not read",
            attribute,
        )
        return
    if str(directory) == f"{store}/scheduler":
        return
    if not given and reading.file.may_differ(broker, "brokerName"):
        reading.findings.warn(
            broker,
            f"ActiveMQ keeps scheduled messages in {directory}, another directory on each member, and pybroker in "
            f"{store}/scheduler: move those that are to be kept",
            "schedulerSupport",
        )
    else:
        reading.set("scheduler_store", str(directory), broker, attribute)
