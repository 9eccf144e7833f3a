"""The figures of a reply in a line, for people."""

from specchat import figures
from specchat.chat.turn import Reply
from specchat.engine.protocol.stats import Stats


def footer(reply: Reply) -> str:
    """`Qwen3-1.7B · draft · 142 tok/s · 1.9x`, as far as it is known."""
    stats = reply.end.stats
    if stats is None or not stats.completion_tokens:
        return f"{reply.name} · seed {reply.seed}" if reply.tally.tokens else reply.name if reply.ended else ""
    return " · ".join(filter(None, (_maker(reply), *_speed(stats))))


def _maker(reply: Reply) -> str:
    """The models that wrote a reply, and how they did."""
    return f"{reply.name} · {reply.speculation.strategy}"


def _speed(stats: Stats, of: str = "") -> list[str]:
    """Speed, speed-up over `of`, and its cause where that is not the strategy."""
    parts = [f"{figures.per_second(stats.tokens_per_second)} tok/s"] if stats.tokens_per_second else []
    if stats.speedup_vs_plain is not None:
        parts.append(figures.times(stats.speedup_vs_plain) + of)
    if stats.num_repeated_tokens:
        parts.append("copied from an earlier reply")
    return parts


def whole_footer(reply: Reply) -> str:
    """All that is known of a reply, as `reply_words` has it, and its pair."""
    stats = reply.end.stats
    if stats is None or not stats.completion_tokens:
        return footer(reply)
    return " · ".join(filter(None, (*reply_words(stats, reply.seed), _maker(reply))))


def reply_words(stats: Stats, seed: int) -> list[str]:
    """`142 tok/s`, `1.9x plain`, `214 tokens`, `seed 42`, `3.4 a step`, `0.12 s to first`, as far as it is known."""
    parts = [
        *_speed(stats, " plain"),
        figures.of(stats.completion_tokens, "token"),
        f"seed {seed}",
        f"{stats.mean_acceptance_length:.1f} a step" if stats.num_spec_steps else "",
        f"{stats.num_choices_again} close choices made again" if stats.num_choices_again else "",
        f"{figures.duration(stats.ttft_ms)} to first",
    ]
    return list(filter(None, parts))


def reading(reply: Reply) -> str:
    """How far the prompt of a reply is read; empty once it is."""
    prompt = reply.prompt
    far = f", {figures.count(prompt.reused)} of {figures.of(prompt.tokens, 'token')}" if prompt.tokens else ""
    return f"reading the prompt{far}" if reply.state == "reading" else ""
