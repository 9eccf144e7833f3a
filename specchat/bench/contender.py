"""A contender: continues prompts one reply at a time, and times them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Protocol

from specchat.engine.protocol.options import Message, Sampling
from specchat.engine.protocol.pair import Quant
from specchat.engine.protocol.stats import Stats

Clock = Callable[[], float]
"""Seconds since some fixed moment."""
CLOCK: Clock = perf_counter


@dataclass(frozen=True)
class BenchPrompt:
    """A chat to answer; `tokens` are the model's input."""

    id: str
    category: str
    messages: tuple[Message, ...]
    tokens: tuple[int, ...]


class Different(Exception):
    """A reply was not plain decoding's; the name of the contender."""


@dataclass(frozen=True)
class Run:
    """One reply.

    Attributes:
        seconds: from the request to the end.
        ran_seconds: the same without waits for a processor that other programs used; 0 where unknown.
        first_seconds: from the request to the first delivery, of `first_tokens` tokens.
        stats: the engine's own figures; None for other programs.
        tested: [i] how often position i of a draft was verified.
        accepted: [i] how often it was accepted.
        drafted: [i] steps that drafted more than i tokens.
        kept: [i] steps that accepted token i; of a tree, the i-th likeliest.
        first_drafted: tokens of the first draft.
        first_draft_ms: its time, in which a draft model reads the rest of the prompt.
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
    ran_seconds: float = 0.0

    @property
    def speed(self) -> float | None:
        """Tokens per second without the prompt; None if unknown.

        Our steps are timed, the draft model's share of the prompt included. Other programs are timed from the first
        delivery on.
        """
        ms = self.stats.milliseconds if self.stats is not None else 0.0
        return 1e3 * len(self.tokens) / ms if ms else self.later_speed

    @property
    def before_ms(self) -> float:
        """Milliseconds of our reply outside its steps, in which models read the prompt; without waits if known."""
        if self.stats is None:
            return 1e3 * self.seconds
        if self.ran_seconds:
            return 1e3 * self.ran_seconds - self.stats.ran_ms
        return 1e3 * self.seconds - self.stats.milliseconds

    @property
    def later_speed(self) -> float | None:
        """Tokens per second after the first delivery; None if nothing followed."""
        more, time = len(self.tokens) - self.first_tokens, self.seconds - self.first_seconds
        return more / time if more > 0 and time > 0 else None

    @property
    def whole_speed(self) -> float | None:
        """Tokens per second of the whole reply, prompt included; None without tokens."""
        return len(self.tokens) / self.seconds if self.tokens and self.seconds > 0 else None

    @property
    def ran_speed(self) -> float | None:
        """`speed` without waits for a processor; None of another program."""
        ms = self.stats.ran_ms if self.stats is not None else 0.0
        return 1e3 * len(self.tokens) / ms if ms else None

    @property
    def whole_ran_speed(self) -> float | None:
        """`whole_speed` without waits for a processor; None of another program."""
        return len(self.tokens) / self.ran_seconds if self.tokens and self.ran_seconds > 0 else None


class Contender(Protocol):
    """A program or strategy that is measured."""

    name: str
    """Unique in a run, and shown."""
    rival: str
    """Our strategy (a key of `strategies.STRATEGIES`) that does the same as another program; empty for ours."""
    note: str
    """A remark on its figures, such as the number of threads; may be empty."""

    def warm_up(self, prompt: BenchPrompt) -> None:
        """Do the work that only a first reply pays for, and choose settings by trying them."""
        ...

    def run(self, prompt: BenchPrompt, most: int) -> Run:
        """Continue `prompt` by at most `most` tokens, from empty caches."""
        ...

    def close(self) -> None:
        """Release memory and threads."""
        ...


@dataclass(frozen=True)
class Material:
    """Options with which another program writes the same text as ours."""

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
