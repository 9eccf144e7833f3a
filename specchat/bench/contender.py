"""A contender: anything that continues a prompt, one reply at a time, and says how long it took."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Protocol

from specchat.engine.api import Stats
from specchat.engine.options import Message, Sampling
from specchat.engine.pair import Quant

Clock = Callable[[], float]
"""Seconds from some fixed moment on."""
CLOCK: Clock = perf_counter


@dataclass(frozen=True)
class BenchPrompt:
    """A chat to answer; `tokens` is what the model is given."""

    id: str
    category: str
    messages: tuple[Message, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Run:
    """One reply.

    Times are from the moment it was asked for: `first_seconds` to the first delivery, of `first_tokens` tokens,
    `seconds` to the end. `stats` are the engine's own figures, None of other programs; place i of drafts was judged
    `tested[i]` times, and a draft stayed there `accepted[i]` times. `drafted[i]` steps drafted more than i tokens, and
    `kept[i]` of them kept that one, of a tree the i-th likeliest from 0. The first draft, of `first_drafted` tokens,
    took `first_draft_ms`: a model reads in it what it has not read of the prompt.
    """

    tokens: tuple[int, ...]
    seconds: float
    first_seconds: float
    first_tokens: int
    stats: Stats | None = None
    tested: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()
    drafted: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    first_drafted: int = 0
    first_draft_ms: float = 0.0

    @property
    def speed(self) -> float | None:
        """Tokens per second without the reading of the prompt: of ours over the time of all steps, in which a draft
        model reads what it had not when the target was done; of another program's replies after the first delivery.
        None where nothing is known."""
        ms = self.stats.milliseconds if self.stats is not None else 0.0
        return 1e3 * len(self.tokens) / ms if ms else self.later_speed

    @property
    def before_ms(self) -> float:
        """Milliseconds of one of our replies that are no step's: models read the prompt in them."""
        return 1e3 * self.seconds - (self.stats.milliseconds if self.stats is not None else 0.0)

    @property
    def later_speed(self) -> float | None:
        """Tokens per second after the first delivery; None where nothing came after it."""
        more, time = len(self.tokens) - self.first_tokens, self.seconds - self.first_seconds
        return more / time if more > 0 and time > 0 else None

    @property
    def whole_speed(self) -> float | None:
        """Tokens per second of the whole reply, with the prompt's time in it; None where no token came."""
        return len(self.tokens) / self.seconds if self.tokens and self.seconds > 0 else None


class Contender(Protocol):
    """One way of writing."""

    name: str
    """Unique in a run, and shown."""
    rival: str
    """Of another program: the strategy of ours that does the same (a key of `strategies.STRATEGIES`); else empty."""
    note: str
    """A note for those who judge its figures, for example the number of threads; may be empty."""

    def warm_up(self, prompt: BenchPrompt) -> None:
        """Do once what only the first reply would pay for, and settle what is to be tried out."""
        ...

    def run(self, prompt: BenchPrompt, most: int) -> Run:
        """Continue `prompt` by at most `most` tokens, with nothing of it in a cache."""
        ...

    def close(self) -> None:
        """Give memory and threads back."""
        ...


@dataclass(frozen=True)
class Material:
    """The options by which another program writes the text that ours writes."""

    target: Path
    draft: Path | None
    target_quant: Quant | None
    draft_quant: Quant | None
    on_gpu: bool
    eos: frozenset[int]
    sampling: Sampling
    context: int
    lookup_length: int
    """Draft length of our lookup."""
