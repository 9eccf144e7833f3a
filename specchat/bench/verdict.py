"""The recommendation in one sentence, which `bench` prints last."""

from collections.abc import Mapping

from specchat.bench.summary import AUTO, CONTROL, PLAIN, family_of

MIN_AUTO_RATIO = 0.97
"""Share of another contender's speed from which `auto` counts as equal."""
MIN_SPEEDUP = 1.03
"""Speedup from which a strategy counts as faster than plain."""
MIN_PROMPTS = 32
"""Prompts needed to recommend against `auto`: with 8 of the demo pair's, two runs contradicted each other."""


def verdict(measured: Mapping[str, float], prompts: int) -> str:
    """Recommend from the contenders' speedups over `prompts` prompts; empty without contenders."""
    others = {name: times for name, times in measured.items() if name not in (PLAIN, CONTROL)}
    auto = next((name for name in others if family_of(name) == AUTO), None)
    fixed = {PLAIN: 1.0} | {name: times for name, times in others.items() if name != auto}
    fastest, times = max(fixed.items(), key=lambda one: one[1])
    if not others:
        return ""
    if auto is None:
        if times < MIN_SPEEDUP:
            return "What to do here: choose plain; nothing that was measured is faster."
        return f"What to do here: of these choose {family_of(fastest)}, {times:.2f}x plain; auto was not measured."
    by_auto = f"auto wrote at {others[auto]:.2f}x plain"
    by_other = f"the fastest other, {fastest}, at {times:.2f}x" if fastest != PLAIN else "nothing else beats plain"
    if others[auto] >= MIN_AUTO_RATIO * times:
        return f"What to do here: leave the strategy at auto; {by_auto}, and {by_other}."
    if prompts < MIN_PROMPTS:
        few = f"{prompts} prompt{'s do' if prompts != 1 else ' does'} not tell which is faster: --limit takes more"
        return f"What to do here: leave the strategy at auto for now; {by_auto}, and {by_other}, but {few}."
    return f"What to do here: for prompts like these choose {family_of(fastest)}; {by_auto}, and {by_other}."
