"""A prompt and the replies made to it, each as its events build it up."""

import time
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Literal

from specchat.attachments.files import Attachment, with_attachments
from specchat.chat.fork import Fork, new_key
from specchat.chat.record import Mark, Record
from specchat.chat.tool_results import ToolResult
from specchat.chat.transcript_text import TranscriptText
from specchat.clean import clean, one_line
from specchat.dataclass import dataclass
from specchat.engine.protocol.events import Changed, Failed, Finished, FinishReason, PromptProgress, Started, Step
from specchat.engine.protocol.options import (
    NO_BEGINNING,
    Beginning,
    Message,
    Sampling,
    Speculation,
    ToolCall,
    Written,
)
from specchat.engine.protocol.stats import Speedup, Stats
from specchat.engine.protocol.tally import Tally

State = Literal["queued", "preparing", "waiting", "reading", "writing", "finished", "failed"]
"""Queued until there is an engine to ask, preparing until its tools are known, waiting while the engine writes in
another chat."""

_REASONS: dict[FinishReason, str] = {
    "stop": "",
    "length": "ended at the token limit",
    "context": "ended: the context is full",
    "cancelled": "stopped",
}


@dataclass(frozen=True)
class PromptRead:
    """The prompt as the engine read it, in tokens.

    Attributes:
        reused: tokens that were in the cache; while it is read, those that are.
        dropped: messages of the chat that did not fit and were left out.
        ms: milliseconds of reading, while the reply is written.
    """

    tokens: int = 0
    reused: int = 0
    dropped: int = 0
    ms: float = 0.0


@dataclass(frozen=True)
class ReplyEnd:
    """The end of a reply: the reason of one that finished, the error of one that failed, and the figures."""

    reason: FinishReason | None = None
    error: str = ""
    stats: Stats | None = None


@dataclass(frozen=True)
class SavedRecord:
    """A record in the database, which `load` reads; its marks are known before."""

    load: Callable[[], Record | None] = lambda: None
    marks: tuple[Mark, ...] = ()


@dataclass(eq=False, kw_only=True)
class TreeEntry:
    """A prompt or a reply of a chat."""

    key: str = field(default_factory=new_key)
    created: float = field(default_factory=time.time)


@dataclass(eq=False)
class Reply(TreeEntry):
    """One answer, complete or not. All text in it is cleaned; `written` is what the model gets to see again.

    A reply from the database reads its record when it is first looked at.
    """

    id: int
    name: str
    sampling: Sampling
    speculation: Speculation
    state: State = "queued"
    start: Beginning = NO_BEGINNING
    prompt: PromptRead = PromptRead()
    end: ReplyEnd = ReplyEnd()
    turn: "Turn | None" = field(default=None, repr=False)
    """The prompt it answers."""
    turns: Fork["Turn"] = field(default_factory=Fork, repr=False)
    """Turns that follow it."""
    _record: Record | SavedRecord = field(default=SavedRecord(), repr=False)
    _text: TranscriptText = field(default_factory=TranscriptText)

    @property
    def record(self) -> Record:
        """Its steps."""
        if isinstance(self._record, SavedRecord):
            self._record = self._record.load() or Record(self.speculation)
        return self._record

    @property
    def steps(self) -> list[Step]:
        return self.record.steps

    @property
    def offsets(self) -> list[int]:
        return self.record.offsets

    @property
    def marks(self) -> Sequence[Mark]:
        return self._record.marks

    @property
    def tally(self) -> Tally:
        return self.record.tally

    @property
    def stretch(self) -> Tally:
        return self.record.stretch

    @property
    def speedup(self) -> Speedup | None:
        """Over plain decoding, of all that was written; None while or where too little is known to tell it."""
        stats = self.end.stats
        if stats is None:
            return self.tally.compared.speedup
        if stats.speedup_vs_plain is None:
            return None
        low, high = stats.speedup_interval or (stats.speedup_vs_plain, stats.speedup_vs_plain)
        return Speedup(stats.speedup_vs_plain, low, high)

    @property
    def text(self) -> str:
        return self._text.cleaned

    @property
    def reasoning(self) -> Sequence[tuple[int, int]] | None:
        """The ranges of `text` that are no answer; None of a text from elsewhere, which may hold marks of its own."""
        return self._text.reasoning

    @property
    def thinking(self) -> bool:
        """True if reasoning is being written, or was when the reply was cut off."""
        return self._text.thinking

    @property
    def raw(self) -> str:
        """All that the model wrote, but for marks."""
        return self._text.raw

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Calls it makes, as far as they are written; their names and arguments are as the model wrote them."""
        return self._text.tool_calls

    @property
    def rewritten(self) -> bool:
        """True if the engine's final text is not what its steps added up to; `text` is the final one."""
        return self._text.rewritten

    @property
    def written(self) -> Written:
        """The model's own text, for it to see again."""
        return self._text.written

    @property
    def results(self) -> dict[str, ToolResult]:
        """The results of its calls that the chat shows after it, by the calls' ids."""
        shown = self.turns.shown
        return {result.call_id: result for result in shown.results} if shown is not None else {}

    @property
    def length(self) -> int:
        """Characters of `text`."""
        return self._text.length

    @property
    def beginning(self) -> str:
        """The text before its first step, as far as that is known: what it was made to begin with."""
        if self.offsets:
            return self.text[: self.offsets[0]]
        return "" if self.ended else self.text

    @property
    def seed(self) -> int:
        return self.sampling.seed

    @property
    def requested(self) -> bool:
        """True once the engine was asked for it."""
        return self.state not in ("queued", "preparing")

    @property
    def ended(self) -> bool:
        return self.state in ("finished", "failed")

    @property
    def left_out(self) -> str:
        """The messages that its prompt lacks, as a clause; empty where it has all."""
        dropped = self.prompt.dropped
        messages = f"{dropped} earlier message{'s' * (dropped != 1)}"
        return f"{messages} did not fit the context and were left out" if dropped else ""

    @property
    def outcome(self) -> str:
        """Why it ended where that is worth saying, in words."""
        if self.state == "failed":
            return self.end.error
        return _REASONS[self.end.reason] if self.end.reason else ""

    def read(self, event: PromptProgress) -> None:
        self.state = "reading"
        self.prompt = PromptRead(event.tokens, event.read)

    def started(self, event: Started) -> None:
        self.state = "writing"
        self.prompt = PromptRead(event.prompt_tokens, event.reused, event.dropped, event.prompt_ms)
        self.speculation = event.speculation
        self._record = Record(event.speculation)
        for text, reasoning in replace(self.start, prefill=event.prefill).written.spans:
            self._text.add(text, reasoning)

    def step(self, event: Step) -> None:
        self.state = "writing"
        self.record.add(event, self.length)
        if event.turned:
            self._text.turn()
        for piece in event.pieces:
            self._text.add(piece.text, piece.reasoning)
        self._text.tool_calls += event.tool_calls

    def changed(self, event: Changed) -> None:
        self.record.change(event, self.length)
        self.speculation = event.speculation

    def finished(self, event: Finished) -> None:
        self.state, self.end = "finished", ReplyEnd(event.reason, stats=event.stats)
        goes_on = event.reason != "stop" and not self.start.prefill
        tokens = (*self.start.begun.token_ids, *event.token_ids) if goes_on else ()
        before, self._text = self._text, TranscriptText.of(replace(event.written, token_ids=tokens))
        self._text.rewritten = before.rewritten or self.text != before.cleaned

    def failed(self, event: Failed) -> None:
        self.state, self.end = "failed", ReplyEnd(error=clean(event.message))

    def restore(self, written: Written, record: SavedRecord = SavedRecord(), *, known: bool = True) -> None:
        """Take the text as it was saved, with its record.

        What is reasoning in it may not be `known`.
        """
        self._text = TranscriptText.of(written)
        if not known:
            self._text.reasoning = None
        self._record = record


@dataclass(eq=False)
class Turn(TreeEntry):
    """A prompt and the replies made to it. `parent` is the reply it follows, None at the start of the chat.

    A turn with the `results` of its parent's calls has no prompt.
    """

    prompt: str
    attachments: tuple[Attachment, ...] = ()
    parent: Reply | None = None
    results: tuple[ToolResult, ...] = ()
    replies: Fork[Reply] = field(default_factory=Fork)

    @property
    def reply(self) -> Reply | None:
        """The reply that is shown."""
        return self.replies.shown

    @property
    def asked(self) -> "Turn":
        """The turn with the prompt, where this one has results of calls made for it."""
        turn = self
        while turn.results and turn.parent is not None and turn.parent.turn is not None:
            turn = turn.parent.turn
        return turn

    @property
    def content(self) -> str:
        """The prompt as the model gets it, with what was attached."""
        return with_attachments(self.prompt, self.attachments) if self.attachments else self.prompt

    @property
    def messages(self) -> tuple[Message, ...]:
        """The turn as the model gets it."""
        return tuple(each.message for each in self.results) or (self._asked,)

    @property
    def _asked(self) -> Message:
        found = [(one.name, one.picture.picture) for one in self.attachments if one.picture is not None]
        lost = [f"(The picture {one_line(name)} is lost.)" for name, picture in found if picture is None]
        pictures = tuple(picture for _, picture in found if picture is not None)
        return Message("user", "\n\n".join([self.content, *lost]), pictures=pictures)

    @property
    def answered(self) -> bool:
        """True if there is any text or call to go on from."""
        return self.reply is not None and bool(self.reply.raw or self.reply.tool_calls)
