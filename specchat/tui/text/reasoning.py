"""Find the reasoning that a model writes before its answer, in text that may still grow."""

from dataclasses import dataclass
from typing import Literal

from specchat.tui.text.blocks import FENCE

TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
)
_CLOSING = {closing: opening for opening, closing in TAGS}


@dataclass(frozen=True)
class Thought:
    """Reasoning in `text[start:end]`, without its tags in `text[inner_start:inner_end]`."""

    start: int
    inner_start: int
    inner_end: int
    end: int


class Reasoning:
    """Takes a growing text; what it finds depends on the text alone, not on how it came.

    Reasoning stands at the start of a reply, or after other reasoning. Where the prompt already opened it, a closing
    tag alone on a line ends it: then what was taken for the answer before is reasoning after all, and `answer` moves.
    """

    def __init__(self) -> None:
        self.thoughts: list[Thought] = []
        """Those that were closed, in order."""
        self.thinking: Thought | None = None
        """The one being written; in a reply that ended, one that was cut off."""
        self.answer = 0
        """Where the answer begins: the reasoning before it is known."""
        self._state: Literal["start", "inside", "answer"] = "start"
        self._closing = ""
        self._scanned = 0
        self._fence = ""

    @property
    def held(self) -> bool:
        """Whether the text from `answer` on cannot be shown as an answer (yet)."""
        return self._state != "answer"

    def feed(self, text: str, *, ended: bool = False) -> None:
        """Take in all of the text so far."""
        while True:
            before = self._state, self.answer
            if self._state == "start":
                self._start(text, ended)
            elif self._state == "inside":
                self._inside(text)
            elif not self.thoughts:
                self._lone_closing(text, ended)
            if (self._state, self.answer) == before:
                return

    def _start(self, text: str, ended: bool) -> None:
        begin = self.answer
        while begin < len(text) and text[begin].isspace():
            begin += 1
        for opening, closing in TAGS:
            if text.startswith(opening, begin):
                self._state, self._closing = "inside", closing
                inner = begin + len(opening)
                self.thinking, self._scanned = Thought(begin, inner, inner, inner), inner
                return
        rest = text[begin : begin + 32]
        if ended or (rest and not any(opening.startswith(rest) for opening, _ in TAGS)):
            self._state, self._scanned = "answer", self.answer

    def _inside(self, text: str) -> None:
        thought, closing = self.thinking, self._closing
        assert thought is not None
        at = text.find(closing, self._scanned)
        if at >= 0:
            self._close(Thought(thought.start, thought.inner_start, at, at + len(closing)))
            return
        partial = next((n for n in range(len(closing) - 1, 0, -1) if text.endswith(closing[:n])), 0)
        end = max(len(text) - partial, thought.inner_start)
        self._scanned = end
        self.thinking = Thought(thought.start, thought.inner_start, end, len(text))

    def _lone_closing(self, text: str, ended: bool) -> None:
        while self._scanned < len(text):
            end = text.find("\n", self._scanned)
            if end < 0 and not ended:
                return
            end = len(text) if end < 0 else end
            line = text[self._scanned : end]
            if self._fence:
                if line.strip() and set(line.strip()) == {self._fence[0]} and len(line.strip()) >= len(self._fence):
                    self._fence = ""
            elif fence := FENCE.match(line):
                self._fence = fence[2]
            elif line.strip() in _CLOSING:
                closed = self._scanned + line.index(line.strip()) + len(line.strip())
                self._close(Thought(self.answer, self.answer, self._scanned, closed))
                return
            self._scanned = min(end + 1, len(text))

    def _close(self, thought: Thought) -> None:
        self.thoughts.append(thought)
        self.thinking, self.answer, self._state = None, thought.end, "start"


def without_reasoning(text: str) -> str:
    """The answer alone, of a finished reply; empty where there is only reasoning."""
    found = Reasoning()
    found.feed(text, ended=True)
    return "" if found.thinking else text[found.answer :].lstrip("\n") if found.thoughts else text
