"""What is asked of a reply: the chat's messages, how tokens are chosen, where it ends, how it is drafted."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from specchat.engine.strategies import STRATEGIES

Role = Literal["system", "user", "assistant"]
Acceptance = Literal["coupled", "ratio", "block"]
ContextPolicy = Literal["refuse", "drop-oldest", "keep-ends"]
"""Ways to deal with a chat that does not fit the context. "drop-oldest" leaves out the oldest turns, "keep-ends" those
after the first; a turn is a user's message and what was answered, and system messages and the last turn always stay."""

GREEDY_BELOW = 1e-5
"""Logits divided by a temperature under this may be infinite."""
ACCEPTANCES: tuple[Acceptance, ...] = ("coupled", "ratio", "block")
CONTEXT_POLICIES: tuple[ContextPolicy, ...] = ("refuse", "drop-oldest", "keep-ends")


@dataclass(frozen=True)
class Message:
    """One turn of a chat. `reasoning` came before what an assistant's reply answers, `content`."""

    role: Role
    content: str
    reasoning: str = ""


Span = tuple[str, bool]
"""A run of text, and whether it is reasoning."""
Ranges = tuple[tuple[int, int], ...]
"""Where in a text something begins and ends, in characters."""


@dataclass(frozen=True)
class Written:
    """A reply's text without marks, of which the ranges `reasoning` are no answer.

    `thinking` says that the last range was not closed. `token_ids` are what the model wrote, where that is known.
    """

    text: str = ""
    reasoning: Ranges = ()
    thinking: bool = False
    token_ids: tuple[int, ...] = ()

    @classmethod
    def of(cls, spans: Iterable[Span], *, thinking: bool = False, token_ids: tuple[int, ...] = ()) -> "Written":
        """What spans that follow each other say; `thinking` counts where the last of them is reasoning."""
        texts: list[str] = []
        found: list[tuple[int, int]] = []
        at = 0
        for text, reasoning in spans:
            texts.append(text)
            start, at = at, at + len(text)
            if reasoning and text:
                found.append((found.pop()[0] if found and found[-1][1] == start else start, at))
        thinking = thinking and bool(found) and found[-1][1] == at
        return cls("".join(texts), tuple(found), thinking, token_ids)

    @property
    def spans(self) -> tuple[Span, ...]:
        """The text in runs, and whether each is reasoning."""
        edges = (0, *(at for each in self.reasoning for at in each), len(self.text))
        runs = [(self.text[begin:end], bool(n % 2)) for n, (begin, end) in enumerate(pairwise(edges))]
        return tuple((text, reasoning) for text, reasoning in runs if text)

    @property
    def thoughts(self) -> str:
        """The reasoning alone."""
        return "".join(text for text, reasoning in self.spans if reasoning)

    @property
    def answer(self) -> str:
        """What is no reasoning, without the empty lines around it where there was some."""
        answer = "".join(text for text, reasoning in self.spans if not reasoning)
        return answer.strip("\n") if self.reasoning else answer

    @property
    def message(self) -> Message:
        """The reply as a chat's next prompt holds it."""
        return Message("assistant", self.answer, self.thoughts.strip("\n"))


NOTHING_WRITTEN = Written()


@dataclass(frozen=True)
class Sampling:
    """How the target's next token is chosen. Processors apply in the order of the fields after `seed`.

    `repetition_penalty` divides positive and multiplies negative logits of seen tokens (CTRL, Keskar et al. 2019);
    presence and frequency penalties are subtracted from the logits of seen tokens, once and per occurrence.
    `top_k` 0, `top_p` 1 and `min_p` 0 are off.
    """

    seed: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken and none is drawn."""
        return self.temperature < GREEDY_BELOW


@dataclass(frozen=True)
class Limits:
    """Where a reply ends, and what happens when there is no room for it: `max_tokens` None means until the context is
    full. Stop strings are looked for in what is generated, not in a prefill."""

    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    context: ContextPolicy = "drop-oldest"


@dataclass(frozen=True)
class Speculation:
    """How tokens are drafted and judged; every field may change in the middle of a reply."""

    strategy: str = "plain"
    draft_length: int = 0
    acceptance: Acceptance = "coupled"

    @classmethod
    def of(cls, strategy: str, draft_length: int | None = None, acceptance: Acceptance = "coupled") -> "Speculation":
        """A speculation with the strategy's own default draft length where none is given."""
        length = STRATEGIES[strategy].draft_length if draft_length is None else draft_length
        return cls(strategy, 0 if strategy == "plain" else length, acceptance)
