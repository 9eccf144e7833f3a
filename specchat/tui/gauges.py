"""What the engine panel shows, computed from a reply's steps and the loaded pair."""

from dataclasses import dataclass

from specchat.chat.record import Tally
from specchat.chat.reply import Reply
from specchat.engine.api import PairInfo
from specchat.tui import figures

RECENT = 64
"""Steps kept for the sparkline."""

_ENOUGH = 6
"""Speculative steps before a verdict is given."""


@dataclass(frozen=True)
class Gauges:
    """Figures of one reply so far. None where there is nothing to show yet; times in milliseconds, memory in bytes."""

    accepted_per_step: float | None = None
    acceptance_length: float | None = None
    acceptance_rate: float | None = None
    recent: tuple[int, ...] = ()
    histogram: tuple[int, ...] = ()
    longest: int = 0
    """The longest draft that can be accepted, for the scale of the bars."""
    tokens_per_second: float | None = None
    speedup: float | None = None
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    other_ms: float = 0.0
    first_token_ms: float | None = None
    context_used: int = 0
    context: int = 0
    memory: int = 0
    verdict: str = ""
    pays: bool | None = None


def gauges(reply: Reply | None, info: PairInfo | None) -> Gauges:
    """The figures of `reply`, or of an idle engine when there is none.

    While it runs they count from the latest change of speculation, so that the change can be judged.
    """
    context = info.context if info else 0
    used_memory = info.memory if info else 0
    if reply is None:
        return Gauges(context=context, memory=used_memory, verdict=_idle(info))
    stats = reply.stats
    tally = reply.stretch if stats is None else reply.tally
    speed = stats.tokens_per_second if stats else _rate(tally.tokens, tally.milliseconds)
    speedup = stats.speedup_vs_plain if stats else None
    if speedup is None and speed and reply.plain_tokens_per_second:
        speedup = speed / reply.plain_tokens_per_second
    spec = tally.speculative
    verdict, pays = _verdict(reply, tally, info, speedup)
    return Gauges(
        accepted_per_step=tally.accepted / spec if spec else None,
        acceptance_length=tally.spec_tokens / spec if spec else None,
        acceptance_rate=tally.accepted / tally.tested if tally.tested else None,
        recent=tuple(step.accepted for step in reply.steps[-RECENT:]),
        histogram=tuple(tally.histogram),
        longest=max(len(tally.histogram) - 1, reply.speculation.draft_length),
        tokens_per_second=speed or None,
        speedup=speedup,
        draft_ms=tally.draft_ms,
        verify_ms=tally.verify_ms,
        other_ms=tally.other_ms,
        first_token_ms=stats.ttft_ms if stats and tally.tokens else None,
        context_used=reply.tally.context_used or reply.prompt_tokens,
        context=context,
        memory=used_memory,
        verdict=verdict,
        pays=pays,
    )


def _rate(tokens: int, milliseconds: float) -> float | None:
    return 1000 * tokens / milliseconds if milliseconds > 0 else None


def _idle(info: PairInfo | None) -> str:
    if info is None:
        return "no model is loaded"
    if not info.plain_tokens_per_second:
        return ""
    return f"plain decoding here: {figures.per_second(info.plain_tokens_per_second)} tok/s"


def _verdict(reply: Reply, tally: Tally, info: PairInfo | None, speedup: float | None) -> tuple[str, bool | None]:
    """Whether drafting pays, in one sentence, and as a yes or no once that can be told."""
    if not tally.speculative:
        if reply.speculation.strategy == "plain":
            return "nothing is drafted: one token a step", None
        return ("no drafts found to try yet" if tally.steps > _ENOUGH else ""), None
    if tally.speculative < _ENOUGH or speedup is None:
        return "measuring whether drafting pays", None
    kept = figures.percent(tally.accepted, tally.tested)
    cost = _draft_cost(tally, reply.plain_tokens_per_second, info)
    price = f" at {cost:.2f} of a step each" if cost is not None else ""
    if speedup >= 1.02:
        return f"drafting pays: keeps {kept} of drafts{price}", True
    if speedup > 0.98:
        return f"drafting is even: keeps {kept} of drafts{price}", None
    short = reply.speculation.draft_length <= 2 or tally.accepted < 0.3 * tally.tested
    hint = "another strategy" if short else "a shorter draft"
    return f"drafting loses here: keeps {kept} of drafts{price}; try {hint}", False


def _draft_cost(tally: Tally, plain: float, info: PairInfo | None) -> float | None:
    """One drafted token's time over the time of a plain step, of which there are `plain` a second."""
    if plain and tally.drafted:
        return tally.draft_ms / tally.drafted * plain / 1000
    return info.draft_cost if info else None


def footer(reply: Reply) -> str:
    """`142 tok/s · 1.9x plain · 214 tokens · AL 3.4 · 0.12 s · seed 42`, whatever of it is known."""
    stats = reply.stats
    if stats is None:
        return f"seed {reply.seed}" if reply.tally.tokens else ""
    speedup = stats.speedup_vs_plain
    parts = [
        f"{figures.per_second(stats.tokens_per_second)} tok/s",
        f"{figures.times(speedup)} plain" if speedup is not None else "",
        f"{figures.count(stats.completion_tokens)} token{'s' * (stats.completion_tokens != 1)}",
        f"AL {stats.mean_acceptance_length:.1f}" if stats.num_spec_steps else "",
        figures.seconds(stats.ttft_ms),
        f"seed {reply.seed}",
    ]
    return " · ".join(part for part in parts if part)
