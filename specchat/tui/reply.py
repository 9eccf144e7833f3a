"""A reply as its events build it up."""

from dataclasses import dataclass, field
from typing import Literal

from specchat.clean import clean
from specchat.engine.api import Changed, Failed, Finished, FinishReason, Sampling, Speculation, Started, Stats, Step

State = Literal["queued", "reading", "writing", "finished", "failed"]

_REASONS: dict[FinishReason, str] = {
    "stop": "",
    "length": "ended at the token limit",
    "context": "ended: the context is full",
    "cancelled": "stopped",
}


@dataclass(frozen=True)
class Mark:
    """A change of speculation, `offset` characters into the reply, before verify step number `step`."""

    offset: int
    step: int
    tokens: int
    text: str


def speculation_label(speculation: Speculation) -> str:
    """`draft x5`, `plain`, `lookup x8 ratio`."""
    if speculation.strategy == "plain":
        return "plain"
    ratio = "" if speculation.acceptance == "coupled" else f" {speculation.acceptance}"
    return f"{speculation.strategy} x{speculation.draft_length}{ratio}"


@dataclass
class Tally:
    """Sums over a reply's verify steps, kept current at constant cost a step. Times in milliseconds."""

    steps: int = 0
    speculative: int = 0
    tokens: int = 0
    drafted: int = 0
    tested: int = 0
    accepted: int = 0
    spec_tokens: int = 0
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    other_ms: float = 0.0
    context_used: int = 0
    histogram: list[int] = field(default_factory=list)

    def add(self, step: Step) -> None:
        self.steps += 1
        self.tokens += step.emitted
        self.draft_ms += step.draft_ms
        self.verify_ms += step.verify_ms
        self.other_ms += step.other_ms
        self.context_used = step.context_used
        if step.drafted:
            self.speculative += 1
            self.drafted += step.drafted
            self.tested += step.tested
            self.accepted += step.accepted
            self.spec_tokens += step.emitted
            missing = step.accepted + 1 - len(self.histogram)
            self.histogram += [0] * missing
            self.histogram[step.accepted] += 1

    @property
    def milliseconds(self) -> float:
        return self.draft_ms + self.verify_ms + self.other_ms


@dataclass
class Reply:
    """One answer, complete or not. All text in it is cleaned; `raw` is what the model gets to see again."""

    id: int
    name: str
    sampling: Sampling
    speculation: Speculation
    state: State = "queued"
    prompt_tokens: int = 0
    reused: int = 0
    steps: list[Step] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    """Where in `text` each step begins."""
    marks: list[Mark] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    stretch: Tally = field(default_factory=Tally)
    """The sums since the latest change of speculation."""
    reason: FinishReason | None = None
    error: str = ""
    stats: Stats | None = None
    plain_tokens_per_second: float = 0.0
    """Measured for the pair when the reply was made; 0 when unknown."""
    rewritten: bool = False
    """The engine's final text is not what its steps added up to; `text` is the final one."""
    _parts: list[str] = field(default_factory=list)
    _raw: list[str] = field(default_factory=list)
    _length: int = 0

    @property
    def text(self) -> str:
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    @property
    def raw(self) -> str:
        return "".join(self._raw)

    @property
    def length(self) -> int:
        """Characters of `text`."""
        return self._length

    @property
    def seed(self) -> int:
        return self.sampling.seed

    @property
    def ended(self) -> bool:
        return self.state in ("finished", "failed")

    @property
    def outcome(self) -> str:
        """Why it ended where that is worth saying, in words."""
        if self.state == "failed":
            return self.error
        return _REASONS[self.reason] if self.reason else ""

    def started(self, event: Started) -> None:
        self.state = "writing"
        self.prompt_tokens, self.reused = event.prompt_tokens, event.reused
        self.speculation = event.speculation

    def step(self, event: Step) -> None:
        self.state = "writing"
        self.offsets.append(self._length)
        self.steps.append(event)
        self.tally.add(event)
        self.stretch.add(event)
        for piece in event.pieces:
            self._raw.append(piece.text)
            text = clean(piece.text)
            self._parts.append(text)
            self._length += len(text)

    def changed(self, event: Changed) -> None:
        label = f"{speculation_label(self.speculation)} → {speculation_label(event.speculation)}"
        self.speculation, self.stretch = event.speculation, Tally()
        self.marks.append(Mark(self._length, len(self.steps), event.tokens, f"{label} at token {event.tokens}"))

    def finished(self, event: Finished) -> None:
        self.state, self.reason, self.stats = "finished", event.reason, event.stats
        final = clean(event.text)
        if final != self.text:
            self.rewritten = True
            self._parts, self._length = [final], len(final)
        self._raw = [event.text]

    def failed(self, event: Failed) -> None:
        self.state, self.error = "failed", clean(event.message)
