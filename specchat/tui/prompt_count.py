"""How many tokens the next prompt would have, as the engine last counted."""

from specchat.engine.events import Counted, Event, Failed

_MUCH = 2_000
"""Characters by which a text that is being counted differs from the one that was."""


class PromptCount:
    """`counted` is of the content that was asked about last and answered."""

    def __init__(self) -> None:
        self.counted: Counted | None = None
        self._content = ""
        self._asked: tuple[int, str] | None = None

    @property
    def waiting(self) -> bool:
        return self._asked is not None

    @property
    def outdated(self) -> bool:
        """Whether a text is being counted for which `counted` says nothing: a large paste came in, or went."""
        return self._asked is not None and abs(len(self._asked[1]) - len(self._content)) > _MUCH

    def asked(self, request: int, content: str) -> None:
        self._asked = (request, content)

    def take(self, event: Event) -> bool:
        """Take an answer to what was asked last; False for every other event."""
        if self._asked is None or not isinstance(event, Counted | Failed) or event.id != self._asked[0]:
            return False
        if isinstance(event, Counted):
            self.counted, self._content = event, self._asked[1]
        self._asked = None
        return True

    def known(self, content: str) -> bool:
        """Whether the tokens of `content` are counted."""
        return self.counted is not None and self._content == content

    def too_long(self, content: str) -> bool:
        """Whether `content` is known not to fit the context."""
        return self.known(content) and self.counted is not None and self.counted.tokens >= self.counted.context

    def lost(self) -> None:
        """The engine is gone, and with it what was asked."""
        self._asked = None

    def forget(self) -> None:
        """Another chat is shown."""
        self.counted, self._content, self._asked = None, "", None
