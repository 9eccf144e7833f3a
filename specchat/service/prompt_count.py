"""How many tokens the next prompt would have, as the engine last counted."""

from collections.abc import Callable

from specchat.engine.protocol.events import Counted, Event

_MUCH = 2_000
"""Characters by which a text that is being counted differs from the one that was."""


class PromptCount:
    """`counted` is the latest answer, for the content that was counted last."""

    def __init__(self, basis: Callable[[], object] = lambda: None) -> None:
        """`basis` gives what a count depends on besides the content."""
        self.counted: Counted | None = None
        self._basis = basis
        self._content = ""
        self._counted_with: object = basis()
        self._pending: tuple[int, str, object] | None = None

    @property
    def waiting(self) -> bool:
        return self._pending is not None

    @property
    def outdated(self) -> bool:
        """True if a text is being counted for which `counted` says nothing: a large paste came in, or went."""
        return self._pending is not None and abs(len(self._pending[1]) - len(self._content)) > _MUCH

    def begin(self, request: int, content: str) -> None:
        """`content` is being counted by `request`, in the place of what was before."""
        self._pending = (request, content, self._basis())

    def end(self, request: int, event: Event) -> None:
        """Take the end of a count; another text may be counted by then."""
        if self._pending is None or request != self._pending[0]:
            return
        if isinstance(event, Counted):
            self.counted, (_, self._content, self._counted_with) = event, self._pending
        self._pending = None

    def known(self, content: str) -> bool:
        """True if the tokens of `content` are counted, as the chat is set now."""
        return self.counted is not None and (self._content, self._counted_with) == (content, self._basis())

    def too_long(self, content: str) -> bool:
        """True if `content` is known not to fit the context."""
        return self.known(content) and self.counted is not None and self.counted.tokens >= self.counted.context

    def forget(self) -> None:
        """Another chat is open."""
        self.counted, self._content, self._pending = None, "", None
