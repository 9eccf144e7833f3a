"""A reply's figures in words, for people."""

from specchat.engine.stats import Stats


def figures(stats: Stats, seed: int) -> list[str]:
    parts = [
        f"{stats.tokens_per_second:.0f} tok/s",
        f"{stats.speedup_vs_plain:.1f}x plain" if stats.speedup_vs_plain is not None else "",
        "copied from an earlier reply" if stats.num_repeated_tokens else "",
        f"{stats.completion_tokens} tokens",
        f"AL {stats.mean_acceptance_length:.1f}" if stats.num_spec_steps else "",
        f"{stats.num_choices_again} close choices made again" if stats.num_choices_again else "",
        f"first token {stats.ttft_ms / 1e3:.2f} s",
        f"seed {seed}",
    ]
    return list(filter(None, parts))
