"""Checks `ratio` and `block` acceptance: sampled replies against the target's exact distribution."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.protocol.events import Finished
from specchat.engine.protocol.options import Acceptance, Limits, Message, Sampling, Speculation
from specchat.engine.protocol.requests import Generate
from specchat.engine.session import Session
from specchat.engine.strategies import delegates

CHAT = (Message("user", "Tell me a story about a fox and a lamp."),)
REPLY_START = "A fox and a lamp. A fox and"
"""Start of the replies, repetitive so that lookup drafts too."""
SAMPLING = Sampling(temperature=2.0, top_k=4)
"""A high temperature, so that target and draft differ; four tokens, so that the distribution of two is small."""
COMPARED_TOKENS = 2
"""First tokens of a reply that are compared: a verified draft token and the next one."""
TESTED: tuple[Acceptance, ...] = ("ratio", "block")
"""Acceptance tests that preserve the target's distribution but not its text."""
DRAFT_TOKENS = 3
"""Enough for a tree to branch."""
MOST_REPLIES, FEWEST_REPLIES = 1000, 200
QUICK_REPLIES = 300
BUDGET_S = 10.0
"""Seconds per strategy, after which a slow target writes no further reply."""
Z_LIMIT = 4.75
"""Standard errors of one false alarm in a million checks."""
MIN_EXPECTED = 5.0
"""Rarer outcomes are counted together (Cochran)."""

Distribution = dict[tuple[int, ...], float]


@dataclass(frozen=True)
class RatioResult:
    """Pearson's chi-square of a strategy's replies; above `bound` they do not follow the distribution."""

    acceptance: Acceptance
    strategy: str
    replies: int
    chi_square: float
    bound: float

    @property
    def holds(self) -> bool:
        return self.chi_square <= self.bound


def run(session: Session, shown: Callable[[Acceptance, str, int], bool], full: bool = True) -> Iterator[RatioResult]:
    """Check every available strategy with each acceptance test, or only the first strategy unless `full`.

    `shown` receives the acceptance test, the strategy and the number of replies, and returns False to stop.
    """
    distribution = exact_distribution(session)
    steps = BUDGET_S * session.info.plain_speed(SAMPLING)
    replies = round(min(MOST_REPLIES, max(FEWEST_REPLIES, steps / (DRAFT_TOKENS + 1))))
    drafting = [s.name for s in session.info.strategies if s.available and s.name != "plain"]
    if not full:
        drafting, replies = [name for name in drafting if not delegates(name)][:1], min(replies, QUICK_REPLIES)
    for number, (acceptance, strategy) in enumerate(product(TESTED, drafting)):
        found: Counter[tuple[int, ...]] = Counter()
        for seed in range(replies):
            if not shown(acceptance, strategy, seed):
                return
            # Each has its own seeds, because replies with the same noise are cached.
            speculation = Speculation(strategy, DRAFT_TOKENS, acceptance)
            found[_drawn(session, speculation, number * replies + seed)] += 1
        yield RatioResult(acceptance, strategy, replies, *chi_square(found, distribution))


def exact_distribution(session: Session) -> Distribution:
    """Probability of each run of first tokens: COMPARED_TOKENS of them, or fewer up to an end of text."""
    prompt = session.tokenizer.prompt(CHAT, REPLY_START)
    sampler = Sampler(SAMPLING)
    distribution: Distribution = {(): 1.0}
    for _ in range(COMPARED_TOKENS):
        longer: Distribution = {}
        for tokens, reached in distribution.items():
            if tokens and tokens[-1] in session.eos:
                longer[tokens] = reached
                continue
            logits = session.target.next_logits([*prompt, *tokens])
            p = sampler.probabilities(sampler.scores(logits, History(prompt)))
            longer |= {(*tokens, i): reached * float(p[i]) for i in p.nonzero()[:, 0].tolist()}
        distribution = longer
    return distribution


def chi_square(found: Counter[tuple[int, ...]], distribution: Distribution) -> tuple[float, float]:
    """Pearson's statistic and its bound; infinite for an outcome outside the distribution."""
    replies = sum(found.values())
    cells = [(found[tokens], replies * p) for tokens, p in distribution.items() if replies * p >= MIN_EXPECTED]
    rest = replies - sum(seen for seen, _ in cells), replies - sum(expected for _, expected in cells)
    if found.keys() - distribution.keys():
        return math.inf, 0.0
    if rest[1] >= MIN_EXPECTED:
        cells.append((round(rest[0]), rest[1]))
    free = max(1, len(cells) - 1)
    # The quantile of Wilson and Hilferty (1931).
    bound = free * (1 - 2 / (9 * free) + Z_LIMIT * math.sqrt(2 / (9 * free))) ** 3
    return sum((seen - expected) ** 2 / expected for seen, expected in cells), bound


def _drawn(session: Session, speculation: Speculation, seed: int) -> tuple[int, ...]:
    request = Generate(0, CHAT, replace(SAMPLING, seed=seed), Limits(DRAFT_TOKENS + 1), speculation, REPLY_START)
    *_, last = session.generate(request)
    assert isinstance(last, Finished)
    return last.token_ids[:COMPARED_TOKENS]
