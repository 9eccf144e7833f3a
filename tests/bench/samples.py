"""Replies made up for tests."""

from specchat.bench.contender import BenchPrompt, Run
from specchat.bench.interleaved import Sample
from specchat.engine.protocol.options import Message
from specchat.engine.protocol.stats import Stats

STATS = Stats(num_steps=4, num_spec_steps=2, num_draft_tokens=6, num_tested_draft_tokens=4, num_accepted_draft_tokens=3,
              mean_acceptance_length=2.5, draft_ms=8.0, verify_ms=40.0, other_ms=2.0)  # fmt: skip


def prompt(name: str = "a", category: str = "chat") -> BenchPrompt:
    return BenchPrompt(name, category, (Message("user", name),), (1, 2, 3))


def run(speed: float, tokens: tuple[int, ...] = (5, 6, 7), stats: Stats | None = None) -> Run:
    """A reply whose first token came after half a second."""
    return Run(tokens, 0.5 + (len(tokens) - 1) / speed, 0.5, 1, stats)


def sample(
    contender: str, speed: float, name: str = "a", repeat: int = 0, tokens: tuple[int, ...] = (5, 6, 7),
    stats: Stats | None = None, category: str = "chat",
) -> Sample:  # fmt: skip
    return Sample(contender, prompt(name, category), repeat, run(speed, tokens, stats))
