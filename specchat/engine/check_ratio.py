"""`ratio` and `block` acceptance, checked: replies drawn with them against the target's own law, worked out exactly."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from specchat.engine.api import Finished, Generate
from specchat.engine.decoding.sampler import History, Sampler
from specchat.engine.options import Acceptance, Limits, Message, Sampling, Speculation
from specchat.engine.session import Session
from specchat.engine.strategies import delegates

CHAT = (Message("user", "Tell me a story about a fox and a lamp."),)
BEGUN = "A fox and a lamp. A fox and"
"""What the replies begin with: it repeats itself, so that lookup drafts too."""
SAMPLING = Sampling(temperature=2.0, top_k=4)
"""Hot, so that target and draft differ; four tokens, so that the law of two is small."""
TOKENS = 2
"""How many of a reply are looked at: one that is drafted and judged, one that follows."""
JUDGED: tuple[Acceptance, ...] = ("ratio", "block")
"""What follows the target's law and not its text."""
DRAFTED = 3
"""Tokens of a draft: enough for a tree to branch."""
MOST_REPLIES, FEWEST_REPLIES = 1000, 200
QUICK_REPLIES = 300
BUDGET_S = 10.0
"""A slow target writes fewer replies for a strategy."""
SURE = 4.75
"""Standard errors of a false alarm in a million checks."""
FREQUENT = 5.0
"""Outcomes expected less often than this are counted together (Cochran)."""

Law = dict[tuple[int, ...], float]


@dataclass(frozen=True)
class RatioResult:
    """Pearson's chi-square of a strategy's replies against the law; above `bound` they do not follow it."""

    acceptance: Acceptance
    strategy: str
    replies: int
    chi_square: float
    bound: float

    @property
    def holds(self) -> bool:
        return self.chi_square <= self.bound


def run(session: Session, shown: Callable[[Acceptance, str, int], bool], full: bool = True) -> Iterator[RatioResult]:
    """Check every available strategy, judged either way; the first alone unless it is `full`.

    `shown` is told the acceptance, the strategy's name and the replies so far, and says whether to go on.
    """
    law = exact_law(session)
    steps = BUDGET_S * session.info.plain_speed(SAMPLING)
    replies = round(min(MOST_REPLIES, max(FEWEST_REPLIES, steps / (DRAFTED + 1))))
    drafting = [s.name for s in session.info.strategies if s.available and s.name != "plain"]
    if not full:
        drafting, replies = [name for name in drafting if not delegates(name)][:1], min(replies, QUICK_REPLIES)
    for number, (acceptance, strategy) in enumerate(product(JUDGED, drafting)):
        found: Counter[tuple[int, ...]] = Counter()
        for seed in range(replies):
            if not shown(acceptance, strategy, seed):
                return
            # Seeds of its own: what was drawn before with the same noise is remembered.
            speculation = Speculation(strategy, DRAFTED, acceptance)
            found[_drawn(session, speculation, number * replies + seed)] += 1
        yield RatioResult(acceptance, strategy, replies, *chi_square(found, law))


def exact_law(session: Session) -> Law:
    """The probability of each run of first tokens: `TOKENS` of them, or fewer up to an end of text."""
    prompt = session.tokenizer.prompt(CHAT, BEGUN)
    sampler = Sampler(SAMPLING)
    law: Law = {(): 1.0}
    for _ in range(TOKENS):
        longer: Law = {}
        for tokens, reached in law.items():
            if tokens and tokens[-1] in session.eos:
                longer[tokens] = reached
                continue
            logits = session.target.next_logits([*prompt, *tokens])
            p = sampler.probabilities(sampler.scores(logits, History(prompt)))
            longer |= {(*tokens, i): reached * float(p[i]) for i in p.nonzero()[:, 0].tolist()}
        law = longer
    return law


def chi_square(found: Counter[tuple[int, ...]], law: Law) -> tuple[float, float]:
    """Pearson's statistic and the bound that chance keeps below. An outcome that the law has not is infinitely far."""
    replies = sum(found.values())
    cells = [(found[tokens], replies * p) for tokens, p in law.items() if replies * p >= FREQUENT]
    rest = replies - sum(seen for seen, _ in cells), replies - sum(expected for _, expected in cells)
    if found.keys() - law.keys():
        return math.inf, 0.0
    if rest[1] >= FREQUENT:
        cells.append((round(rest[0]), rest[1]))
    free = max(1, len(cells) - 1)
    # The quantile of Wilson and Hilferty (1931).
    bound = free * (1 - 2 / (9 * free) + SURE * math.sqrt(2 / (9 * free))) ** 3
    return sum((seen - expected) ** 2 / expected for seen, expected in cells), bound


def _drawn(session: Session, speculation: Speculation, seed: int) -> tuple[int, ...]:
    request = Generate(0, CHAT, replace(SAMPLING, seed=seed), Limits(DRAFTED + 1), speculation, BEGUN)
    *_, last = session.generate(request)
    assert isinstance(last, Finished)
    return last.token_ids[:TOKENS]
