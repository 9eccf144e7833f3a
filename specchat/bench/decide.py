"""Who should draft here, and how far: what steps cost, what drafts keep, and what the cost model makes of both.

Costs are in plain steps of the pair on the measured prompts, so that v(1) + o of plain decoding is 1.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from statistics import median

from specchat.bench.cost_model import break_even, expected_tokens, mean_step_cost, speed_up
from specchat.bench.interleaved import Sample
from specchat.bench.summary import AUTO, PLAIN, family_of
from specchat.bench.verify_cost import VerifyCost
from specchat.engine.api import Stats
from specchat.engine.decoding.costs import CheckCosts
from specchat.engine.strategies import STRATEGIES

ALL = "all prompts"
DEARER, CHEAPER, RARER = 2.0, 0.5, 0.8
"""What would change a decision: times what more rows add to a check, times what drafting takes, times the chance that
a drafted token stays."""


@dataclass(frozen=True)
class Costs:
    """`checks[m - 1]` is v(m), `draft` a drafted token and `other` the rest of a step, the last two by contender."""

    plain_ms: float
    """A plain step, in milliseconds."""
    checks: tuple[float, ...]
    draft: dict[str, float]
    other: dict[str, float]


@dataclass(frozen=True)
class DraftOutcome:
    """What a contender's drafts bring on some prompts.

    `kept[i]` and `drafted[i]` are the shares of its steps that keep and draft more than i tokens. `reading`, in plain
    steps a token of the replies, is what a draft model adds to the reading of the prompts; `lost`, a token of the
    replies, what the last steps would have brought beyond their ends.
    """

    contender: str
    kept: tuple[float, ...]
    drafted: tuple[float, ...]
    reading: float = 0.0
    lost: float = 0.0

    @property
    def kept_share(self) -> float | None:
        """The share of the drafted tokens that stayed; None where nothing was drafted."""
        return sum(self.kept) / sum(self.drafted) if sum(self.drafted) else None

    @property
    def mean_draft(self) -> float:
        """Tokens of a draft, over the steps that had one; 0 where none had."""
        return sum(self.drafted) / self.drafted[0] if self.drafted else 0.0


@dataclass(frozen=True)
class DraftChoice:
    """Drafts of at most `length` tokens by `contender`, and the times as fast as plain that they promise."""

    contender: str
    length: int
    times: float


@dataclass(frozen=True)
class Decision:
    """A category: what promises most, what else would where costs or texts were others, and what was measured.

    `expected` is the chosen contender's at the length at which it ran, None for plain; `measured` has all contenders.
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
    """All decisions, that of all prompts last, with the outcomes over all prompts."""

    costs: Costs
    outcomes: list[DraftOutcome]
    decisions: list[Decision]

    def break_even(self, contender: str, length: int) -> float:
        """The share of `length` drafted tokens that must stay for the contender's draft to pay; over 1 none can."""
        c = self.costs
        return break_even(length, c.draft[contender], c.checks[length], c.other[contender])


def decide(samples: Sequence[Sample], verify_cost: Sequence[VerifyCost]) -> Decided:
    """Decisions by category. `samples` have plain decoding among them, `verify_cost` one row."""
    ours = [sample for sample in samples if sample.run.stats is not None]
    costs = costs_of(ours, verify_cost)
    categories: dict[str, list[Sample]] = defaultdict(list)
    for sample in ours:
        categories[sample.prompt.category].append(sample)
    groups = [*categories.items(), (ALL, ours)] if len(categories) > 1 else [(ALL, ours)]
    return Decided(costs, outcomes_of(ours, costs), [_decision(name, of_it, costs) for name, of_it in groups])


def costs_of(samples: Sequence[Sample], verify_cost: Sequence[VerifyCost]) -> Costs:
    """Costs over all replies: a check by `verify_cost`, scaled to plain steps, the rest by the steps' own times."""
    plain = _stats(samples, PLAIN)
    plain_ms = sum(s.ran_ms for s in plain) / sum(s.num_steps for s in plain)
    one_row = sum(s.verify_ms for s in plain) / sum(s.num_steps for s in plain) / plain_ms
    checks = CheckCosts()
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
    """What each contender that drafts in one way brings on the prompts of `samples`."""
    names, beside = dict.fromkeys(sample.contender for sample in samples), _beside_ms(samples)
    return [_outcome(name, samples, costs, beside) for name in names if family_of(name) not in (PLAIN, AUTO)]


def promised(outcome: DraftOutcome, costs: Costs, length: int) -> float:
    """Times as fast as plain with drafts of at most `length` tokens: S, but for what short replies lose."""
    name = outcome.contender
    step = mean_step_cost(outcome.drafted[:length], costs.draft[name], costs.checks, costs.other[name])
    return 1 / (outcome.reading + (1 + outcome.lost) / speed_up(expected_tokens(outcome.kept[:length]), step))


def best(outcomes: Sequence[DraftOutcome], costs: Costs) -> DraftChoice:
    """What promises most: the shortest such draft, and plain where none promises more."""
    found = DraftChoice(PLAIN, 0, 1.0)
    for outcome in outcomes:
        for length in range(1, len(outcome.drafted) + 1):
            times = promised(outcome, costs, length)
            if times > found.times:
                found = DraftChoice(outcome.contender, length, times)
    return found


def dearer_checks(costs: Costs) -> Costs:
    """Further rows of a check cost DEARER times as much, as with slow kernels for a few rows."""
    one = costs.checks[0]
    return replace(costs, checks=tuple(one + DEARER * (check - one) for check in costs.checks))


def cheaper_drafts(costs: Costs) -> Costs:
    """A drafted token costs CHEAPER times as much, as of a smaller draft model."""
    return replace(costs, draft={name: CHEAPER * cost for name, cost in costs.draft.items()})


def sooner_read(outcome: DraftOutcome) -> DraftOutcome:
    """The prompts are read in CHEAPER times as long, as by a smaller draft model."""
    return replace(outcome, reading=CHEAPER * outcome.reading)


def fewer_kept(outcome: DraftOutcome) -> DraftOutcome:
    """Each token stays RARER times as often where those before it do, as at a higher temperature."""
    return replace(outcome, kept=tuple(share * RARER**place for place, share in enumerate(outcome.kept, 1)))


def _decision(category: str, samples: Sequence[Sample], costs: Costs) -> Decision:
    outcomes = outcomes_of(samples, costs)
    chosen = best(outcomes, costs)
    ran = next((outcome for outcome in outcomes if outcome.contender == chosen.contender), None)
    return Decision(
        category=category,
        prompts=len({sample.prompt.id for sample in samples}),
        best=chosen,
        dearer_checks=best(outcomes, dearer_checks(costs)),
        cheaper_drafts=best([sooner_read(outcome) for outcome in outcomes], cheaper_drafts(costs)),
        fewer_kept=best([fewer_kept(outcome) for outcome in outcomes], costs),
        expected=promised(ran, costs, len(ran.drafted)) if ran else None,
        measured=_measured(samples),
    )


def _measured(samples: Sequence[Sample]) -> dict[str, float]:
    """Times as fast as plain by contender, over prompts, of each the median reply.

    Of all steps, with what a draft model takes to read the prompt.
    """
    steps: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        assert sample.run.stats is not None
        steps[sample.contender][sample.prompt.id].append(sample.run.stats.milliseconds)
    plain = {prompt: median(of_it) for prompt, of_it in steps.pop(PLAIN).items()}
    beside = _beside_ms(samples)
    return {
        name: sum(plain[prompt] for prompt in prompts if prompt in plain)
        / sum(median(of_it) + beside.get((name, prompt), 0.0) for prompt, of_it in prompts.items() if prompt in plain)
        for name, prompts in steps.items()
        if prompts.keys() & plain.keys()
    }


def _outcome(
    name: str, samples: Sequence[Sample], costs: Costs, beside: Mapping[tuple[str, str], float]
) -> DraftOutcome:
    """`beside` as `_beside_ms` gives it."""
    own = [sample for sample in samples if sample.contender == name]
    runs = [sample.run for sample in own]
    stats = _stats(samples, name)
    steps, tokens = sum(s.num_steps for s in stats), sum(s.completion_tokens for s in stats)
    kept = [sum(counts) for counts in zip_longest(*(run.kept for run in runs), fillvalue=0)]
    drafted = [sum(counts) for counts in zip_longest(*(run.drafted for run in runs), fillvalue=0)]
    read_ms = sum(s.run.first_draft_ms + beside.get((name, s.prompt.id), 0.0) for s in own)
    reading = read_ms / costs.plain_ms - costs.draft[name] * sum(run.first_drafted for run in runs)
    return DraftOutcome(
        name,
        tuple(count / steps for count in kept),
        tuple(count / steps for count in drafted),
        max(0.0, reading) / tokens,
        max(0, steps + sum(kept) - tokens) / tokens,
    )


def _beside_ms(samples: Sequence[Sample]) -> dict[tuple[str, str], float]:
    """What a draft model adds to the time before the first step, by contender that may use one and prompt: medians."""
    before: dict[tuple[str, str], list[float]] = defaultdict(list)
    for sample in samples:
        before[sample.contender, sample.prompt.id].append(sample.run.before_ms)
    return {
        (name, prompt): median(ms) - median(before[PLAIN, prompt])
        for (name, prompt), ms in before.items()
        if (PLAIN, prompt) in before and (family_of(name) == AUTO or STRATEGIES[family_of(name)].needs_draft)
    }


def _draft_ms(samples: Sequence[Sample], name: str) -> float:
    """Milliseconds of a drafted token, first drafts left out where there are others; 0 where nothing was drafted."""
    runs, stats = [s.run for s in samples if s.contender == name], _stats(samples, name)
    drafted, spent = sum(s.num_draft_tokens for s in stats), sum(s.draft_ms for s in stats)
    first = sum(run.first_drafted for run in runs)
    if drafted > first:
        return (spent - sum(run.first_draft_ms for run in runs)) / (drafted - first)
    return spent / drafted if drafted else 0.0


def _stats(samples: Sequence[Sample], name: str) -> list[Stats]:
    return [s.run.stats for s in samples if s.contender == name and s.run.stats is not None]
