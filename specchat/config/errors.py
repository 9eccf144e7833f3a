"""Mistakes in configuration files, as sentences."""

from collections.abc import Iterable
from difflib import get_close_matches

from specchat.engine.errors import EngineError


class ConfigError(EngineError):
    """A configuration file that cannot be used; the message names file, key and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__("config", message)


class UnknownPair(ConfigError):
    """No pair and no model on this machine has the name that was given."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        """`known` are the names there are."""
        self.known = tuple(known)
        super().__init__(f'There is no pair "{name}".{nearest(name, self.known)} "specchat models" lists them.')


LONGEST_WORD = 100


def nearest(word: str, known: Iterable[str]) -> str:
    """A question that offers the known word closest to `word`, with a space before it; empty when none is close."""
    by_folded = {option.casefold(): option for option in known}
    close = get_close_matches(word[:LONGEST_WORD].casefold(), by_folded, n=1)
    return f' Did you mean "{by_folded[close[0]]}"?' if close else ""
