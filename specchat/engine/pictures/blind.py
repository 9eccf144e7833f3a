"""A session whose model reads no pictures."""

from collections.abc import Generator, Iterable, Sequence
from typing import Any

from specchat.engine.errors import EngineError
from specchat.engine.protocol.options import Message, Picture
from specchat.engine.protocol.stats import Stats


class Blind:
    """Refuses messages with pictures; `Album` takes them."""

    sees = False

    def __init__(self, reason: str) -> None:
        """`reason`: why none are read, as the beginning of a sentence."""
        self._reason = reason

    def check(self, messages: Iterable[Message]) -> None:
        """Refuse pictures, before anything is computed.

        Raises:
            EngineError: "request": a message has some.
        """
        if any(message.pictures for message in messages):
            words = "Send the message without pictures, or choose a model that reads them."
            raise EngineError("request", f"{self._reason}. {words}")

    def placed(self, tokens: list[int], pictures: Sequence[Picture]) -> list[int]:
        """`tokens` of a prompt with those of `pictures` in the places that the template marks."""
        del pictures
        return tokens

    def look(self, pictures: Sequence[Picture], seen: list[Any], strategy: str = "") -> Generator[None, None, None]:
        """Look at pictures in parts, between which others may go on; their rows are there as long as what is `seen`.

        A draft model may look at them, too, if the `strategy` has it draft.
        """
        del pictures, seen, strategy
        yield from ()

    def wrote(self, stats: Stats) -> None:
        """Take the figures of a reply that has ended."""

    def hold(self, tokens: Sequence[int]) -> None:
        """Let the target's entries turn by their positions in a text that begins with `tokens`."""

    def shown(self, tokens: Iterable[int]) -> list[int]:
        """`tokens` with the template's mark in the places of pictures, as other programs count them."""
        return list(tokens)

    def torn(self, tokens: Sequence[int], at: int) -> range:
        """Entries of a picture that must be read at once, and would not be before and after entry `at`; else empty."""
        del tokens
        return range(at, at)

    def forget(self) -> None:
        """Let go of what was seen; ids stay."""

    def memory(self) -> int:
        """Bytes held."""
        return 0
