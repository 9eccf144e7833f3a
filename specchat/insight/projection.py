"""Projected speed of a recorded reply at other draft lengths.

S(g) = E(g) / (f + c D(g) + V(g) + o + r E(g)), where E is 1 and the shares of steps that keep their 1st, 2nd, ... g-th
token, D the mean number of tokens drafted, V the mean cost of the checks by their rows, f a draft and c each of its
tokens, o the rest of a step and r a token's share of the prompt that a draft model read, all of them measured
(Leviathan et al. 2023 have ratios in their place), but for what steps waited for a processor.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from specchat.chat.record import Record
from specchat.chat.turn import Reply
from specchat.dataclass import dataclass
from specchat.engine.protocol.events import Step
from specchat.engine.protocol.step_tree import branched, ranks
from specchat.engine.protocol.tally import Tally
from specchat.engine.strategies import begins_verify, delegates
from specchat.engine.strategy import MAX_DRAFT_LENGTH
from specchat.insight.costs import CheckCost, Checks, DraftCost

Basis = Literal["measured", "projected", "extrapolated"]
"""Extrapolated: longer than anything that was drafted in this reply."""

ALIKE = 0.98
"""Speeds from this share of each other on are called alike."""
ENOUGH_STEPS = 16
"""Steps from which a projection is worth telling."""
_POOL = 20
"""Trials of the deepest positions that are put together to guess how it goes on beyond them."""


@dataclass(frozen=True)
class Survival:
    """Shares of steps by the tokens of a draft: `kept[k - 1]` kept the k-th, `drafted[k - 1]` drafted at least k.

    The k-th of a tree is the k-th likeliest, so that a shorter draft is this one without its least likely tokens.
    """

    kept: tuple[float, ...]
    drafted: tuple[float, ...]
    longest: int
    """The longest draft requested; positions beyond it are extrapolated."""


@dataclass(frozen=True)
class LengthOutlook:
    """One draft length. `times` is over plain, None where plain was not measured."""

    length: int
    tokens_per_step: float
    tokens_per_second: float
    times: float | None
    basis: Basis


@dataclass(frozen=True)
class Projection:
    """Outlooks for draft lengths 0 to 15, from `steps` steps of one strategy in one reply."""

    strategy: str
    steps: int
    longest: int
    rows: tuple[int, ...]
    """Rows of the checks that were measured in the reply."""
    one_row_from_plain: bool
    """True if the cost of one row is plain decoding's, because the reply has no such check."""
    outlooks: tuple[LengthOutlook, ...]
    measured: float = 0.0
    """Tokens a second of the reply itself."""

    @property
    def best(self) -> LengthOutlook:
        return max(self.outlooks, key=lambda outlook: outlook.tokens_per_second)

    @property
    def beaten(self) -> bool:
        """True if the reply itself was faster than any one length of the strategy: others drafted in it, too."""
        return self.best.tokens_per_second < self.measured * ALIKE


def project(reply: Reply, latest: int = 0) -> Projection | None:
    """The projection for the strategy that drafts in `reply`, or drafted most; None where nothing was drafted or timed.

    Only the `latest` steps count, all with 0.
    """
    record = reply.record
    recorded = record.steps[-latest:]
    speculative = Counter(step.strategy for step in recorded if step.drafted)
    if not speculative:
        return None
    strategy = record.speculation.strategy
    if delegates(strategy) or not speculative[strategy]:
        strategy = speculative.most_common(1)[0][0]
    chosen = [(step, asked) for step, asked in zip(recorded, _asked(record)[-latest:], strict=True)
              if step.strategy == strategy]  # fmt: skip
    steps = [step for step, _ in chosen]
    ran, whole = Tally.of(steps), Tally.of(recorded)
    if not ran.ran_ms:
        return None
    begun = begins_verify(strategy)
    checks = Checks.of(recorded, begun)
    other_ms = sum(step.other_ms for step in steps) / len(steps)
    busy = reply.tally.waiting_factor
    plain = busy * plain_speed(reply)
    one_row = max(1000 / plain - other_ms, 0.0) if plain and not begun else None
    shares = survival(steps, [asked for _, asked in chosen])
    draft, tokens = DraftCost.of(steps), sum(step.emitted for step in steps)
    outlooks = outlook(shares, draft, CheckCost.of(checks, one_row), other_ms, plain, draft.reading_ms / tokens)
    one_row_from_plain = one_row is not None and 1 not in checks.sums
    return Projection(
        strategy,
        len(steps),
        shares.longest,
        checks.rows,
        one_row_from_plain,
        _as_ran(outlooks, shares, 1e3 * ran.tokens / ran.ran_ms, busy),
        1e3 * whole.tokens / whole.ran_ms / busy,
    )


def _as_ran(outlooks: Sequence[LengthOutlook], shares: Survival, ran: float, busy: float) -> tuple[LengthOutlook, ...]:
    """The same, scaled so that the requested length is as fast as it `ran`: prompts were read meanwhile, and
    what the last step drafted beyond the end is lost. All of them are as many times slower as the machine was `busy`,
    for who waits for a processor is chance."""
    present = outlooks[shares.longest]
    scale = ran / present.tokens_per_second if present.tokens_per_second else 1.0
    scaled = (one if one.basis == "measured" else _scaled(one, scale) for one in outlooks)
    return tuple(replace(one, tokens_per_second=one.tokens_per_second / busy) for one in scaled)


def _scaled(one: LengthOutlook, scale: float) -> LengthOutlook:
    """The same so many times as fast, though no step with a draft takes less than a plain one."""
    if one.times:
        scale = min(scale, one.tokens_per_step / one.times)
    times = None if one.times is None else scale * one.times
    return replace(one, tokens_per_second=scale * one.tokens_per_second, times=times)


def plain_speed(reply: Reply) -> float:
    """Plain decoding's tokens a second that the reply is compared with, as far as they are known; 0 otherwise."""
    known = reply.speedup
    if known is None or not known.times:
        return reply.tally.plain_tokens_per_second
    speed = reply.end.stats.tokens_per_second if reply.end.stats is not None else reply.tally.tokens_per_second
    return speed / known.times


def survival(steps: Sequence[Step], asked: Sequence[int]) -> Survival:
    """Product-limit shares (Kaplan and Meier 1958): a step counts at a position only where its length reached it.

    The kept tokens of trees, among which there are gaps, are counted without a product.
    """
    longest = max(asked)
    if any(branched(step.drafts) for step in steps):
        kept = _counted([ranks(step) for step in steps], asked, longest)
    else:
        kept = _shares([step.accepted for step in steps], asked, longest)
    drafted = _shares([step.drafted for step in steps], asked, longest)
    return Survival(kept, drafted, longest)


def _counted(kept: Sequence[Sequence[int]], asked: Sequence[int], longest: int) -> tuple[float, ...]:
    """Shares of steps whose draft at each position was kept; beyond them that of the deepest positions goes on."""
    trials, shares = [], []
    for position in range(1, MAX_DRAFT_LENGTH + 1):
        if position <= longest:
            found = [position in ranked for ranked, limit in zip(kept, asked, strict=True) if limit >= position]
            trials.append((len(found), sum(found)))
            shares.append(sum(found) / len(found))
        else:
            shares.append(_beyond(trials))
    return tuple(shares)


def _shares(reached: Sequence[int], asked: Sequence[int], longest: int) -> tuple[float, ...]:
    trials, shares, share = [], [], 1.0
    for position in range(1, MAX_DRAFT_LENGTH + 1):
        tried = passed = 0
        if position <= longest:
            for got, limit in zip(reached, asked, strict=True):
                if limit >= position and got >= position - 1:
                    tried += 1
                    passed += got >= position
            trials.append((tried, passed))
        share *= passed / tried if tried else _beyond(trials)
        shares.append(share)
    return tuple(shares)


def _beyond(trials: Sequence[tuple[int, int]]) -> float:
    """The chance to pass one more position, from the deepest ones tried."""
    tried = passed = 0
    for more, through in reversed(trials):
        tried, passed = tried + more, passed + through
        if tried >= _POOL:
            break
    return passed / tried if tried else 0.0


def outlook(
    shares: Survival, draft: DraftCost, check: CheckCost, other_ms: float, plain: float, reading_ms: float = 0.0
) -> tuple[LengthOutlook, ...]:
    """All lengths; `plain` tokens a second, 0 when unknown. Reading the prompt takes `reading_ms` a token."""
    outlooks = []
    tokens, drafted, check_ms = 1.0, 0.0, check.at(1)
    for length in range(MAX_DRAFT_LENGTH + 1):
        if length:
            tokens += shares.kept[length - 1]
            drafted += shares.drafted[length - 1]
            check_ms += shares.drafted[length - 1] * (check.at(length + 1) - check.at(length))
        draft_ms = draft.fixed_ms * shares.drafted[0] + draft.token_ms * drafted if length else 0.0
        milliseconds = draft_ms + check_ms + other_ms + reading_ms * tokens
        speed = 1000 * tokens / milliseconds if milliseconds > 0 else 0.0
        basis: Basis = "projected" if length <= shares.longest else "extrapolated"
        if not length and plain:
            speed, basis = plain, "measured"
        outlooks.append(LengthOutlook(length, tokens, speed, speed / plain if plain else None, basis))
    return tuple(outlooks)


def _asked(record: Record) -> list[int]:
    """The draft length requested at each step. `auto` requests the longest that it lets a strategy draft."""
    longest: dict[str, int] = {}
    for step in record.steps:
        longest[step.strategy] = max(step.drafted, longest.get(step.strategy, 0))
    return [
        longest[step.strategy] if used.strategy == "auto" else min(used.draft_length, MAX_DRAFT_LENGTH)
        for step, used in zip(record.steps, record.in_use(), strict=True)
    ]
