"""Numbers with their nouns in texts for people: `1 message`, `1,200 messages`."""


def counted(number: int, noun: str) -> str:
    """Return a number and its noun."""
    return f"{number:,} {inflected(number, noun)}"


def inflected(number: int, noun: str) -> str:
    """Return a noun in the singular for the number 1, otherwise in the plural."""
    if number == 1:
        return noun
    return f"{noun}es" if noun.endswith("ch") else f"{noun}s"
