"""Chooses a strategy and draft length by the cost model, from measured step costs and acceptance.

Costs are in plain steps of the pair on the measured prompts, so that v(1) + o of plain decoding is 1.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from statistics import median

from specchat.bench.cost_model import break_even, expected_tokens, mean_step_cost, speed_up
from specchat.bench.interleaved import Sample
from specchat.bench.paired import STEPS, PairedRatio
from specchat.bench.summary import AUTO, PLAIN, family_of
from specchat.bench.verify_cost import VerifyCost
from specchat.engine.decoding.costs import VerifyCosts
from specchat.engine.protocol.stats import Stats
from specchat.engine.strategies import STRATEGIES

ALL = "all prompts"
DEARER, CHEAPER, RARER = 2.0, 0.5, 0.8
"""Factors of the alternatives: cost of further rows, cost of drafting, probability of acceptance."""
NO_FACTORS: Mapping[str, float] = {}


@dataclass(frozen=True)
class Costs:
    """Costs of a step: `checks[m - 1]` is v(m); `draft` is a drafted token and `other` the rest, by contender."""

    plain_ms: float
    """Milliseconds of a plain step."""
    checks: tuple[float, ...]
    draft: dict[str, float]
    other: dict[str, float]


@dataclass(frozen=True)
class DraftOutcome:
    """A contender's drafts on some prompts.

    Attributes:
        kept: [i] share of steps that accept more than i tokens.
        drafted: [i] share of steps that draft more than i tokens.
        reading: the draft model's cost of reading the prompts, in plain steps per token of the replies.
        lost: accepted tokens beyond the ends of the replies, per token of the replies.
    """

    contender: str
    kept: tuple[float, ...]
    drafted: tuple[float, ...]
    reading: float = 0.0
    lost: float = 0.0

    @property
    def kept_share(self) -> float | None:
        """Share of draft tokens that were accepted; None without drafts."""
        return sum(self.kept) / sum(self.drafted) if sum(self.drafted) else None

    @property
    def mean_draft(self) -> float:
        """Mean draft length over the steps with a draft; 0 without drafts."""
        return sum(self.drafted) / self.drafted[0] if self.drafted else 0.0


@dataclass(frozen=True)
class DraftChoice:
    """Drafts of at most `length` tokens by `contender`, with their expected speedup over plain decoding."""

    contender: str
    length: int
    times: float


@dataclass(frozen=True)
class Decision:
    """The best choice of a category, as measured and in three alternatives.

    `expected` is the speedup of the chosen contender at the length at which it ran, None for plain. `measured` has the
    speedups of all contenders.
    """

    category: str
    prompts: int
    best: DraftChoice
    dearer_checks: DraftChoice
    cheaper_drafts: DraftChoice
    fewer_kept: DraftChoice
    expected: float | None
    measured: dict[str, float]


@dataclass(frozen=True)
class Decided:
    """All decisions, the one over all prompts last, with the outcomes over all prompts."""

    costs: Costs
    outcomes: list[DraftOutcome]
    decisions: list[Decision]

    def break_even(self, contender: str, length: int) -> float:
        """Share of `length` draft tokens that must be accepted for the draft to pay; above 1 it cannot."""
        c = self.costs
        return break_even(length, c.draft[contender], c.checks[length], c.other[contender])


def decide(samples: Sequence[Sample], verify_cost: Sequence[VerifyCost]) -> Decided:
    """Decide by category; `samples` must include plain decoding, and `verify_cost` one row."""
    ours = [sample for sample in samples if sample.run.stats is not None]
    costs = costs_of(ours, verify_cost)
    categories: dict[str, list[Sample]] = defaultdict(list)
    for sample in ours:
        categories[sample.prompt.category].append(sample)
    groups = [*categories.items(), (ALL, ours)] if len(categories) > 1 else [(ALL, ours)]
    return Decided(costs, outcomes_of(ours, costs), [_decision(name, of_it, costs) for name, of_it in groups])


def costs_of(samples: Sequence[Sample], verify_cost: Sequence[VerifyCost]) -> Costs:
    """Costs over all replies: verification by `verify_cost`, scaled to plain steps, the rest by the steps' times."""
    plain = _stats(samples, PLAIN)
    plain_ms = sum(s.ran_ms for s in plain) / sum(s.num_steps for s in plain)
    one_row = sum(s.verify_ms for s in plain) / sum(s.num_steps for s in plain) / plain_ms
    checks = VerifyCosts()
    for cost in verify_cost:
        checks.add(cost.rows, cost.ms.median)
    _, first, *more = checks.table()
    draft, other = {}, {}
    for name in dict.fromkeys(sample.contender for sample in samples):
        stats = _stats(samples, name)
        draft[name] = _draft_ms(samples, name) / plain_ms
        other[name] = sum(s.other_ms for s in stats) / sum(s.num_steps for s in stats) / plain_ms
    return Costs(plain_ms, tuple(one_row * ms / first for ms in (first, *more)), draft, other)


def outcomes_of(samples: Sequence[Sample], costs: Costs) -> list[DraftOutcome]:
    """Outcome of each contender with a single strategy on the prompts of `samples`."""
    names, beside = dict.fromkeys(sample.contender for sample in samples), _beside_ms(samples)
    return [_outcome(name, samples, costs, beside) for name in names if family_of(name) not in (PLAIN, AUTO)]


def expected_speedup(outcome: DraftOutcome, costs: Costs, length: int) -> float:
    """Speedup S of drafts of at most `length` tokens, less the losses of short replies."""
    name = outcome.contender
    step = mean_step_cost(outcome.drafted[:length], costs.draft[name], costs.checks, costs.other[name])
    return 1 / (outcome.reading + (1 + outcome.lost) / speed_up(expected_tokens(outcome.kept[:length]), step))


def best(outcomes: Sequence[DraftOutcome], costs: Costs, factors: Mapping[str, float] = NO_FACTORS) -> DraftChoice:
    """The draft with the highest expected speedup, the shortest of equal ones, or plain.

    `factors` multiply the speedups by contender.
    """
    found = DraftChoice(PLAIN, 0, 1.0)
    for outcome in outcomes:
        for length in range(1, len(outcome.drafted) + 1):
            times = factors.get(outcome.contender, 1.0) * expected_speedup(outcome, costs, length)
            if times > found.times:
                found = DraftChoice(outcome.contender, length, times)
    return found


def dearer_checks(costs: Costs) -> Costs:
    """Costs with further rows DEARER times as expensive, as with slow kernels for a few rows."""
    one = costs.checks[0]
    return replace(costs, checks=tuple(one + DEARER * (check - one) for check in costs.checks))


def cheaper_drafts(costs: Costs) -> Costs:
    """Costs with draft tokens CHEAPER times as expensive, as from a smaller draft model."""
    return replace(costs, draft={name: CHEAPER * cost for name, cost in costs.draft.items()})


def sooner_read(outcome: DraftOutcome) -> DraftOutcome:
    """Outcome with prompts read in CHEAPER times as long, as by a smaller draft model."""
    return replace(outcome, reading=CHEAPER * outcome.reading)


def fewer_kept(outcome: DraftOutcome) -> DraftOutcome:
    """Outcome with each conditional acceptance RARER times as likely, as at a higher temperature."""
    return replace(outcome, kept=tuple(share * RARER**place for place, share in enumerate(outcome.kept, 1)))


def _decision(category: str, samples: Sequence[Sample], costs: Costs) -> Decision:
    outcomes = outcomes_of(samples, costs)
    measured = _measured(samples)
    expected = {one.contender: expected_speedup(one, costs, len(one.drafted)) for one in outcomes if one.drafted}
    # A contender that ran slower than expected would at another length, too.
    factors = {name: measured[name] / times for name, times in expected.items() if name in measured and times}
    chosen = best(outcomes, costs, factors)
    return Decision(
        category=category,
        prompts=len({sample.prompt.id for sample in samples}),
        best=chosen,
        dearer_checks=best(outcomes, dearer_checks(costs), factors),
        cheaper_drafts=best([sooner_read(outcome) for outcome in outcomes], cheaper_drafts(costs), factors),
        fewer_kept=best([fewer_kept(outcome) for outcome in outcomes], costs, factors),
        expected=expected.get(chosen.contender),
        measured=measured,
    )


def _measured(samples: Sequence[Sample]) -> dict[str, float]:
    """Speedup by contender over all prompts, from its ratios to plain decoding in the same rounds of each.

    The time is that of all steps, with the draft model's reading of the prompt, without waits for a processor.
    """
    replies: dict[str, dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        replies[sample.contender][sample.prompt.id].append(sample)
    plain, beside, found = replies.pop(PLAIN), _beside_ms(samples), {}
    plain_ms = {prompt: median(_ran_ms(sample) for sample in of_it) for prompt, of_it in plain.items()}
    for name, prompts in replies.items():
        ratios = {prompt: PairedRatio.of(of_it, plain.get(prompt, []), STEPS) for prompt, of_it in prompts.items()}
        times = {prompt: ratio.times for prompt, ratio in ratios.items() if ratio is not None}
        if times:
            whole = sum(plain_ms[prompt] for prompt in times)
            spent = (plain_ms[prompt] / of_it + beside.get((name, prompt), 0.0) for prompt, of_it in times.items())
            found[name] = whole / sum(spent)
    return found


def _ran_ms(sample: Sample) -> float:
    """Milliseconds of a reply's steps, without waits for a processor."""
    return sample.run.stats.ran_ms if sample.run.stats is not None else 0.0


def _outcome(
    name: str, samples: Sequence[Sample], costs: Costs, beside: Mapping[tuple[str, str], float]
) -> DraftOutcome:
    """Outcome of one contender; `beside` is from `_beside_ms`."""
    of_contender = [sample for sample in samples if sample.contender == name]
    runs = [sample.run for sample in of_contender]
    stats = _stats(samples, name)
    steps, tokens = sum(s.num_steps for s in stats), sum(s.completion_tokens for s in stats)
    kept = [sum(counts) for counts in zip_longest(*(run.kept for run in runs), fillvalue=0)]
    drafted = [sum(counts) for counts in zip_longest(*(run.drafted for run in runs), fillvalue=0)]
    read_ms = sum(s.run.first_draft_ms + beside.get((name, s.prompt.id), 0.0) for s in of_contender)
    reading = read_ms / costs.plain_ms - costs.draft[name] * sum(run.first_drafted for run in runs)
    return DraftOutcome(
        name,
        tuple(count / steps for count in kept),
        tuple(count / steps for count in drafted),
        max(0.0, reading) / tokens,
        max(0, steps + sum(kept) - tokens) / tokens,
    )


def _beside_ms(samples: Sequence[Sample]) -> dict[tuple[str, str], float]:
    """Median milliseconds that a draft model adds before the first step, by contender and prompt."""
    before: dict[tuple[str, str], list[float]] = defaultdict(list)
    for sample in samples:
        before[sample.contender, sample.prompt.id].append(sample.run.before_ms)
    return {
        (name, prompt): median(ms) - median(before[PLAIN, prompt])
        for (name, prompt), ms in before.items()
        if (PLAIN, prompt) in before and (family_of(name) == AUTO or STRATEGIES[family_of(name)].needs_draft)
    }


def _draft_ms(samples: Sequence[Sample], name: str) -> float:
    """Milliseconds of a draft token, without first drafts if there are others; 0 without drafts."""
    runs, stats = [s.run for s in samples if s.contender == name], _stats(samples, name)
    drafted, spent = sum(s.num_draft_tokens for s in stats), sum(s.draft_ms for s in stats)
    first = sum(run.first_drafted for run in runs)
    if drafted > first:
        return (spent - sum(run.first_draft_ms for run in runs)) / (drafted - first)
    return spent / drafted if drafted else 0.0


def _stats(samples: Sequence[Sample], name: str) -> list[Stats]:
    return [s.run.stats for s in samples if s.contender == name and s.run.stats is not None]
