"""The time that drafting saved since the app was started, against plain decoding as measured for each pair."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from math import sqrt
from statistics import fmean, stdev

from specchat.chat.turn import Reply
from specchat.dataclass import dataclass
from specchat.engine.protocol.comparison import MIN_STEPS, Comparison
from specchat.engine.protocol.events import Step
from specchat.engine.protocol.options import Speculation
from specchat.engine.strategies import SERVER, delegates
from specchat.insight.costs import Checks


@dataclass
class Account:
    """Sums over replies. Times in milliseconds of decoding, without reading the prompt."""

    replies: int = 0
    tokens: int = 0
    milliseconds: float = 0.0
    compared_ms: float = 0.0
    """The part of it whose speed-up over plain is known."""
    plain_ms: float = 0.0
    """The time that plain decoding would have taken in their place."""
    compared: Comparison = field(default_factory=Comparison)

    @property
    def saved_ms(self) -> float:
        """Negative where drafting cost time."""
        return self.plain_ms - self.compared_ms

    @property
    def times(self) -> float | None:
        """Times plain, None while or where too little is known to tell it."""
        return None if self.compared.speedup is None else self.plain_ms / self.compared_ms

    def add(self, steps: Sequence[Step]) -> None:
        """Steps of one reply."""
        compared, milliseconds = Comparison.of(steps), sum(step.milliseconds for step in steps)
        self.replies += 1
        self.tokens += sum(step.emitted for step in steps)
        self.milliseconds += milliseconds
        if (known := compared.estimate) is not None:
            self.compared_ms += milliseconds
            self.plain_ms += milliseconds * known.times
        self.compared.join(compared)

    def join(self, other: "Account") -> None:
        self.replies += other.replies
        self.tokens += other.tokens
        self.milliseconds += other.milliseconds
        self.compared_ms += other.compared_ms
        self.plain_ms += other.plain_ms
        self.compared.join(other.compared)


@dataclass
class Ledger:
    """Kept by pair and strategy, so that advice for one pair never comes from another.

    The steps of `auto` and `cascade` are their own: the strategies they choose get only what suits them.
    """

    replies: int = 0
    accounts: dict[tuple[str, str], Account] = field(default_factory=dict)
    checks: dict[str, Checks] = field(default_factory=dict)
    """Measured verify passes by pair."""
    _tried: dict[tuple[str, str, float], dict[Speculation, Comparison]] = field(default_factory=dict)

    def add(self, reply: Reply) -> None:
        """Enter a reply that has ended. One that wrote nothing is left out."""
        if not reply.tally.tokens:
            return
        self.replies += 1
        if reply.turn is not None and not reply.record.changes:
            tried = self._tried.setdefault((reply.turn.key, reply.name, reply.sampling.temperature), {})
            tried.setdefault(reply.speculation, Comparison()).join(reply.tally.compared)
        checks = self.checks.setdefault(reply.name, Checks())
        by_strategy: dict[str, list[Step]] = {}
        for step, used in zip(reply.steps, reply.record.in_use(), strict=True):
            # A plain step among drafts belongs to the strategy that it is the yardstick of.
            own = delegates(used.strategy) or step.strategy == "plain"
            by_strategy.setdefault(used.strategy if own else step.strategy, []).append(step)
            checks.add(step)
        for strategy, steps in by_strategy.items():
            self.accounts.setdefault((reply.name, strategy), Account()).add(steps)

    def raced(self, pair: str, plain: Sequence[Step], drafted: Sequence[Step]) -> None:
        """Enter a race between servers of a pair; only there the same model's plain speed was measured."""
        timed = [step for step in plain if step.milliseconds > 0 and step.emitted]
        if len(timed) < MIN_STEPS:
            return
        each = [step.milliseconds / step.emitted for step in timed]
        usual = fmean(each)
        error = stdev(each) / usual / sqrt(len(each))
        steps = [
            replace(step, usual_ms=step.milliseconds, plain_ms=usual * step.emitted, plain_error=error)
            for step in drafted
        ]
        self.replies += 1
        self.accounts.setdefault((pair, SERVER), Account()).add(steps)

    @property
    def total(self) -> Account:
        """Over everything, compared where strategies are; a reply that changed its strategy counts once."""
        strategies = self.by_strategy().values()
        total, known = _sum(strategies), _sum(one for one in strategies if one.times is not None)
        total.replies, total.compared = self.replies, known.compared
        total.compared_ms, total.plain_ms = known.compared_ms, known.plain_ms
        return total

    def by_strategy(self) -> dict[str, Account]:
        """Over all pairs, the most tokens first."""
        names = {strategy for _, strategy in self.accounts}
        sums = {name: _sum(a for (_, strategy), a in self.accounts.items() if strategy == name) for name in names}
        return dict(sorted(sums.items(), key=lambda item: (-item[1].tokens, item[0])))

    def speeds(self, pair: str) -> Mapping[str, float]:
        """Tokens a second by strategy, as replies of this pair were written."""
        own = {strategy: account for (name, strategy), account in self.accounts.items() if name == pair}
        return {name: 1000 * one.tokens / one.milliseconds for name, one in own.items() if one.milliseconds}

    def tried(self, reply: Reply) -> Mapping[Speculation, Comparison]:
        """Measured speeds of whole replies of this pair to the prompt of `reply`, drawn as boldly.

        A strategy's speed depends on the text, so that replies to other prompts tell nothing of this one.
        """
        key = reply.turn.key if reply.turn is not None else ""
        return self._tried.get((key, reply.name, reply.sampling.temperature), {})


def _sum(accounts: Iterable[Account]) -> Account:
    total = Account()
    for account in accounts:
        total.join(account)
    return total
