"""The names of destinations as the commands for operators take them."""

from pybroker.broker.domain.destination import Destination, parse
from pybroker.broker.domain.errors import ConfigError, InvalidDestination


def destination_of(text: str, setting: str) -> Destination:
    """Return the destination of `ORDERS`, `queue://ORDERS`, `topic://PRICES`, or STOMP's `/queue/ORDERS`.

    Raises:
        ConfigError: it is none; names the argument.
    """
    for kind in ("queue", "topic"):
        if text.startswith(f"/{kind}/"):
            text = f"{kind}://{text.removeprefix(f'/{kind}/')}"
    try:
        return parse(text)
    except InvalidDestination as error:
        raise ConfigError(str(error), setting=setting) from error


def queue_name(text: str) -> str:
    """Return the name of a queue.

    Raises:
        ConfigError: it is a topic, or none.
    """
    found = destination_of(text, "QUEUE")
    if not found.is_queue:
        raise ConfigError(f"{text} is a topic, which holds no messages", setting="QUEUE")
    return found.name
