"""What to do here, in one sentence: the last that `bench` prints."""

from collections.abc import Mapping

from specchat.bench.summary import AUTO, CONTROL, PLAIN, family_of

NEAR = 0.97
"""`auto` is as fast as another from this share of its speed on."""
ALIKE = 1.03
"""What is not so many times as fast as plain is no faster."""
SURE = 32
"""Prompts from which on another one is recommended: with 8 of the demo pair's, two runs contradicted each other."""


def verdict(measured: Mapping[str, float], prompts: int) -> str:
    """The sentence, by times plain of contenders as the tables have them, over so many prompts; empty without any."""
    others = {name: times for name, times in measured.items() if name not in (PLAIN, CONTROL)}
    auto = next((name for name in others if family_of(name) == AUTO), None)
    fixed = {PLAIN: 1.0} | {name: times for name, times in others.items() if name != auto}
    fastest, times = max(fixed.items(), key=lambda one: one[1])
    if not others:
        return ""
    if auto is None:
        if times < ALIKE:
            return "What to do here: choose plain; nothing that was measured is faster."
        return f"What to do here: of these choose {family_of(fastest)}, {times:.2f}x plain; auto was not measured."
    by_auto = f"auto wrote at {others[auto]:.2f}x plain"
    by_other = f"the fastest other, {fastest}, at {times:.2f}x" if fastest != PLAIN else "nothing else beats plain"
    if others[auto] >= NEAR * times:
        return f"What to do here: leave the strategy at auto; {by_auto}, and {by_other}."
    if prompts < SURE:
        few = f"{prompts} prompt{'s do' if prompts != 1 else ' does'} not tell which is faster: --limit takes more"
        return f"What to do here: leave the strategy at auto for now; {by_auto}, and {by_other}, but {few}."
    return f"What to do here: for prompts like these choose {family_of(fastest)}; {by_auto}, and {by_other}."
