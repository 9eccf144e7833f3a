"""What is asked of a reply: the chat's messages, how tokens are chosen, where it ends, how it is drafted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    """One turn of a chat."""

    role: Role
    content: str


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
