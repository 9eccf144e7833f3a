"""The text of a reply as its pieces come: cleaned for the screen, and as the model wrote it."""

from dataclasses import replace

from specchat.clean import clean
from specchat.engine.protocol.options import Span, ToolCall, Written, all_reasoning


class TranscriptText:
    """Text with its reasoning and calls."""

    def __init__(self) -> None:
        self.length = 0
        """Characters of the cleaned text."""
        self.reasoning: list[tuple[int, int]] | None = []
        """Ranges of the cleaned text that are no answer; None if unknown."""
        self.thinking = False
        self.tool_calls: tuple[ToolCall, ...] = ()
        self.rewritten = False
        """True if earlier pieces were taken otherwise than they came."""
        self._parts: list[str] = []
        self._spans: list[Span] = []
        self._token_ids: tuple[int, ...] = ()

    @classmethod
    def of(cls, written: Written) -> "TranscriptText":
        made = cls()
        for text, reasoning in written.spans:
            made.add(text, reasoning)
        made.thinking, made._token_ids = written.thinking and made.thinking, written.token_ids
        made.tool_calls = written.tool_calls
        return made

    @property
    def cleaned(self) -> str:
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    @property
    def raw(self) -> str:
        """All that the model wrote, but for marks."""
        return "".join(text for text, _ in self._spans)

    @property
    def written(self) -> Written:
        """The model's own text and calls."""
        written = Written(self.raw)
        if self.reasoning is not None:
            written = Written.of(self._spans, thinking=self.thinking, token_ids=self._token_ids)
        return replace(written, tool_calls=self.tool_calls)

    def add(self, raw: str, reasoning: bool) -> None:
        if not raw:
            return
        self._spans.append((raw, reasoning))
        text = clean(raw)
        self._parts.append(text)
        start, self.length = self.length, self.length + len(text)
        self.thinking = reasoning
        if reasoning and text and self.reasoning is not None:
            if self.reasoning and self.reasoning[-1][1] == start:
                start = self.reasoning.pop()[0]
            self.reasoning.append((start, self.length))

    def turn(self) -> None:
        """Take all text so far for reasoning."""
        self.rewritten = True
        self._spans = all_reasoning(self._spans)
        self.reasoning = [(0, self.length)] if self.length else []
