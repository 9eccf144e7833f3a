"""Summary of replies: medians and quartiles over prompts of ratios within a prompt, and a recommendation."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from statistics import median, quantiles
from typing import Any

from specchat.bench.contender import Run
from specchat.bench.interleaved import Sample
from specchat.bench.paired import LATER, STEPS, WHOLE, PairedRatio, Speeds
from specchat.engine.protocol.tally import mean_acceptance_length

PLAIN, AUTO = "plain", "auto"
"""The baseline, and the strategy that chooses among the others."""
CONTROL = "plain again"
"""Plain decoding a second time: its difference from the first is noise."""


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of `n` values."""

    median: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread | None":
        """Summarise `values`; None if there are none."""
        if not values:
            return None
        low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
        return cls(median(values), low, high, len(values))


@dataclass(frozen=True)
class ContenderSummary:
    """One contender on some prompts.

    A prompt's figure is the median over its repeats; a spread is over prompts. Ratios compare tokens per second within
    the rounds of a prompt. Names with `whole` use the whole time of a reply; names with `least` give the worst prompt.
    Milliseconds are per step.

    Attributes:
        speedup_vs_plain: ratio to our plain decoding.
        auto_over: ratio of `auto` to this contender, one of ours.
        ours_over: ratio of our same strategy to this other program, both after the first delivery.
        vs_plain: ratios to our plain decoding by prompt.
        by_place: [i] acceptance rate of draft position i, where verified.
    """

    contender: str
    prompts: int
    identical: int
    """Prompts whose text equals plain decoding's in every repeat."""
    tokens_per_second: Spread | None
    speedup_vs_plain: Spread | None
    whole_speedup_vs_plain: Spread | None
    least_vs_plain: PairedRatio | None
    least_whole_vs_plain: PairedRatio | None
    vs_plain: dict[str, PairedRatio]
    whole_vs_plain: dict[str, PairedRatio]
    auto_over: Spread | None
    whole_auto_over: Spread | None
    ours_over: Spread | None
    whole_ours_over: Spread | None
    ttft_ms: Spread | None
    mean_acceptance_length: float | None
    draft_acceptance_rate: float | None
    tested_acceptance_rate: float | None
    by_place: tuple[float, ...]
    draft_ms: Spread | None
    verify_ms: Spread | None
    other_ms: Spread | None

    def as_json(self) -> dict[str, Any]:
        """All figures; the least ones as numbers, since `vs_plain` has their intervals."""
        of_prompts = {"vs_plain": self.vs_plain, "whole_vs_plain": self.whole_vs_plain}
        least = {"least_vs_plain": self.least_vs_plain, "least_whole_vs_plain": self.least_whole_vs_plain}
        return (
            asdict(self)
            | {key: {prompt: ratio.as_json() for prompt, ratio in by.items()} for key, by in of_prompts.items()}
            | {key: None if ratio is None else ratio.times for key, ratio in least.items()}
        )


def family_of(contender: str) -> str:
    """The strategy of one of our contenders, without its draft length."""
    return contender.partition(" ")[0]


def summarise(samples: Iterable[Sample], rivals: dict[str, str]) -> list[ContenderSummary]:
    """Summarise each contender, ours first; `rivals` maps another program to our contender that does the same."""
    replies: dict[str, dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        replies[sample.contender][sample.prompt.id].append(sample)
    order = sorted(replies, key=lambda name: (name != PLAIN, name in rivals, list(replies).index(name)))
    return [_line(name, replies, rivals.get(name, "")) for name in order]


def by_category(samples: Sequence[Sample], rivals: dict[str, str]) -> dict[str, list[ContenderSummary]]:
    """`summarise` for each category of prompts."""
    categories: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        categories[sample.prompt.category].append(sample)
    return {category: summarise(of_it, rivals) for category, of_it in categories.items()}


def _line(name: str, replies: dict[str, dict[str, list[Sample]]], rival: str) -> ContenderSummary:
    mine, auto = replies[name], next((other for other in replies if family_of(other) == AUTO), "")
    everything = [s.run for of_prompt in mine.values() for s in of_prompt]
    stats = [run.stats for run in everything if run.stats is not None]
    steps = sum(s.num_steps for s in stats) if any(s.num_spec_steps for s in stats) else 0
    drafted, tested = sum(s.num_draft_tokens for s in stats), sum(s.num_tested_draft_tokens for s in stats)
    accepted = sum(s.num_accepted_draft_tokens for s in stats)

    def ratios(above: str, below: str, speeds: Speeds) -> dict[str, PairedRatio]:
        if above == below or above not in replies or below not in replies:
            return {}
        both = {p: (replies[above][p], replies[below][p]) for p in replies[above] if p in replies[below]}
        found = {p: PairedRatio.of(*of_prompt, speeds) for p, of_prompt in both.items()}
        return {p: ratio for p, ratio in found.items() if ratio is not None}

    def ratio(above: str, below: str, speeds: Speeds) -> Spread | None:
        return Spread.of([one.times for one in ratios(above, below, speeds).values()])

    def each(figure: Callable[[Sample], float | None]) -> Spread | None:
        values = [_median(map(figure, of_prompt)) for of_prompt in mine.values()]
        return Spread.of([v for v in values if v is not None])

    vs_plain, whole_vs_plain = ratios(name, PLAIN, STEPS), ratios(name, PLAIN, WHOLE)
    return ContenderSummary(
        contender=name,
        prompts=len(mine),
        identical=sum(_same(of_prompt, replies[PLAIN].get(p, [])) for p, of_prompt in mine.items()),
        tokens_per_second=each(lambda s: s.run.speed),
        speedup_vs_plain=Spread.of([one.times for one in vs_plain.values()]),
        whole_speedup_vs_plain=Spread.of([one.times for one in whole_vs_plain.values()]),
        least_vs_plain=min(vs_plain.values(), key=attrgetter("times"), default=None),
        least_whole_vs_plain=min(whole_vs_plain.values(), key=attrgetter("times"), default=None),
        vs_plain=vs_plain,
        whole_vs_plain=whole_vs_plain,
        auto_over=None if rival else ratio(auto, name, STEPS),
        whole_auto_over=None if rival else ratio(auto, name, WHOLE),
        ours_over=ratio(rival, name, LATER),
        whole_ours_over=ratio(rival, name, WHOLE),
        ttft_ms=each(lambda s: 1e3 * s.run.first_seconds),
        mean_acceptance_length=mean_acceptance_length(accepted, steps),
        draft_acceptance_rate=accepted / drafted if drafted else None,
        tested_acceptance_rate=accepted / tested if tested else None,
        by_place=_by_place(everything),
        draft_ms=each(lambda s: _a_step(s, "draft_ms")),
        verify_ms=each(lambda s: _a_step(s, "verify_ms")),
        other_ms=each(lambda s: _a_step(s, "other_ms")),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return median(known) if known else None


def _a_step(sample: Sample, figure: str) -> float | None:
    stats = sample.run.stats
    return getattr(stats, figure) / stats.num_steps if stats is not None and stats.num_steps else None


def _same(samples: Sequence[Sample], plain: Sequence[Sample]) -> bool:
    return bool(plain) and all(s.run.tokens == p.run.tokens for s in samples for p in plain)


def _by_place(runs: Iterable[Run]) -> tuple[float, ...]:
    tested: dict[int, int] = defaultdict(int)
    accepted: dict[int, int] = defaultdict(int)
    for run in runs:
        for i, count in enumerate(run.tested):
            tested[i] += count
            accepted[i] += run.accepted[i]
    return tuple(accepted[i] / tested[i] for i in sorted(tested))


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
