"""Diagnosis of a reply: does drafting pay, in words with numbers, and what would be faster."""

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Literal

from specchat import figures
from specchat.chat.lately import speedup_lately
from specchat.chat.record import speculation_label
from specchat.chat.turn import Reply
from specchat.clean import one_line
from specchat.dataclass import dataclass
from specchat.engine.protocol.comparison import MIN_STEPS, MIN_TOKENS
from specchat.engine.protocol.options import Speculation
from specchat.engine.protocol.pair_info import PairInfo
from specchat.engine.protocol.stats import Speedup
from specchat.engine.protocol.tally import Tally
from specchat.engine.strategies import SERVER, delegates, in_group
from specchat.insight.costs import CheckCost, Checks
from specchat.insight.ledger import Ledger
from specchat.insight.lookup import potential
from specchat.insight.projection import ENOUGH_STEPS, Projection, project

Evidence = Literal["measured", "projected", "estimated"]
"""Measured in this run; projected from this reply's own steps; estimated from the text alone."""

UNMEASURED = "plain was not measured, so no verdict"
_ENOUGH = 6
"""Speculative steps before a verdict is given."""
_SELDOM = 0.005
"""Share of the steps below which a family is not named."""
_ENOUGH_TOKENS = 64
"""Tokens that a strategy wrote for a prompt before its speed is held up as an example."""
_ENOUGH_WORDS = 40
_GAIN: Mapping[Evidence, float] = {"measured": 1.05, "projected": 1.2, "estimated": 1.2}
"""Least projected speed-up of an advice."""
_COPIER = next(in_group("copied"))
"""The strategy that is advised where texts repeat themselves."""


@dataclass(frozen=True)
class Advice:
    """A way to draft that looks faster: `times` plain and `gain` times what is set, by what kind of evidence."""

    speculation: Speculation
    times: float
    evidence: Evidence
    gain: float = field(default=1.0, compare=False)

    @property
    def label(self) -> str:
        return speculation_label(self.speculation)

    @property
    def deed(self) -> str:
        """`turn drafting off`, or what to draft with."""
        return "turn drafting off" if self.speculation.strategy == "plain" else self.label

    @property
    def words(self) -> str:
        """`lookup x8, about 1.4x faster than now (estimated)`."""
        evidence = "" if self.evidence == "measured" else f" ({self.evidence})"
        return f"{self.deed}, about {figures.times(self.gain)} faster than now{evidence}"


@dataclass(frozen=True)
class Diagnosis:
    """`words` report measurements; `pays` is their verdict, None while or where it is unknown."""

    words: str = ""
    pays: bool | None = None
    advice: Advice | None = None


NO_DIAGNOSIS = Diagnosis()


_LATEST = 500
"""Steps that advice is taken from: what the text is like now counts, and all of them would take too long."""


class Advisor:
    """Looks at the running or last reply again and again; what is costly is computed anew as the reply grows."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._seen: tuple[str, int, int, bool] | None = None
        self._advice: Advice | None = None

    def diagnose(
        self, reply: Reply | None, info: PairInfo | None, chosen: Speculation, lengths: Mapping[str, int]
    ) -> Diagnosis:
        """`chosen` is what is set, `lengths` are the pair's own draft lengths.

        There is advice only about what is set, and only from a reply of the pair that is loaded.
        """
        if reply is None:
            return Diagnosis(_idle(info))
        used = reply.record.speculation
        words, pays = _verdict(reply)
        if info is None or reply.name != one_line(info.name, 40):
            return Diagnosis(words, pays)
        if info.plain.server:
            words = words.replace(UNMEASURED, "a race tells whether it pays")
        short = info.undrafted(used.strategy, reply.steps[-1].context_used) if reply.steps else ""
        if short and used.strategy != "auto":
            return Diagnosis(short)
        if (used.strategy, used.draft_length) != (chosen.strategy, chosen.draft_length):
            return Diagnosis(words, pays)
        return Diagnosis(words, pays, self._advice_for(reply, info, lengths))

    def _advice_for(self, reply: Reply, info: PairInfo, lengths: Mapping[str, int]) -> Advice | None:
        steps, changes = len(reply.steps), len(reply.record.changes)
        if self._seen is not None:
            key, then, changed, ended = self._seen
            if (key, changed, ended) == (reply.key, changes, reply.ended) and steps < 1.1 * then + 8:
                return self._advice
        self._seen = (reply.key, steps, changes, reply.ended)
        self._advice = _best(reply, info, lengths, self._ledger)
        return self._advice


def _idle(info: PairInfo | None) -> str:
    if info is None:
        return "no model is loaded"
    if not info.plain.tokens_per_second:
        return ""
    return f"without drafting: {figures.per_second(info.plain.tokens_per_second)} tok/s"


# What was measured


def _verdict(reply: Reply) -> tuple[str, bool | None]:
    """About the steps since the latest change of speculation."""
    tally, used = reply.stretch, reply.record.speculation
    if reply.ended and not reply.steps:
        return "not measured: no steps are recorded", None
    if used.strategy == "plain":
        return "drafting is off: one token a step", None
    if used.strategy == "auto" and not tally.speculative:
        return ("auto does not draft: plain is fastest here" if tally.steps > _ENOUGH else ""), None
    if used.strategy == SERVER and not tally.speculative:
        return ("the server does not tell of any drafts" if tally.steps > _ENOUGH else ""), None
    if not tally.speculative:
        return ("nothing to draft from yet" if tally.steps > _ENOUGH else ""), None
    known = _speedup(reply)
    if known is None and (tally.speculative < _ENOUGH or tally.compared.steps):
        return _unknown(tally) if reply.ended else "measuring whether drafting pays", None
    name, times = used.strategy, known.times if known is not None else 0.0
    findings = _chosen(tally, name) if delegates(name) else _findings(tally, times)
    if not times:
        return f"{UNMEASURED}: {findings}", None
    if times >= 1 + figures.EVEN:
        return f"drafting pays: {findings}", True
    if times > 1 - figures.EVEN:
        return f"drafting is even: {findings}", None
    return f"slower than plain: {findings}", False


def _unknown(tally: Tally) -> str:
    """The reason why an ended reply has no speed-up."""
    short = min(tally.speculative, tally.compared.steps) < MIN_STEPS or tally.compared.tokens < MIN_TOKENS
    return f"speed-up unknown: {'reply too short' if short else 'machine too busy'} to measure"


def _chosen(tally: Tally, strategy: str) -> str:
    """`auto took draft in 71 % of steps, did not draft in 17 %, took lookup in 12 %`; of `cascade`, both as "both"."""
    told: list[str] = []
    for name, steps in tally.families.most_common():
        if steps >= _SELDOM * tally.steps:
            did = "did not draft" if name == "plain" else f"took {'both' if name == strategy else name}"
            told.append(f"{did} in {figures.percent(steps, tally.steps)}{' of steps' * (not told)}")
    return f"{strategy} {', '.join(told)}"


def _findings(tally: Tally, times: float) -> str:
    """`31 % of drafts accepted; a step writes 2.3 tokens in the time of 1.8 plain ones`, at `times` plain's speed."""
    accepted = f"{figures.percent(tally.accepted, tally.drafted)} of drafts" if tally.accepted else "no draft was"
    words, length = f"{accepted} accepted", tally.acceptance_length
    if not times or not length:
        return words
    cost = figures.per_step(length / times)
    if not tally.accepted:
        return f"{words}; each step cost as much as {cost} plain tokens"
    return f"{words}; a step writes {figures.per_step(length)} tokens in the time of {cost} plain ones"


def _speedup(reply: Reply) -> Speedup | None:
    """Over plain, since the latest change of speculation."""
    return reply.stretch.compared.speedup if reply.record.changes else speedup_lately(reply)


# What might be faster


def _best(reply: Reply, info: PairInfo, lengths: Mapping[str, int], ledger: Ledger) -> Advice | None:
    """The fastest way that there is evidence for, where it clearly beats the present one and plain decoding."""
    known, tally, used = _speedup(reply), reply.stretch, reply.record.speculation
    drafting = used.strategy != "plain"
    if known is None or not known.times or not tally.ran_ms or (drafting and tally.speculative < _ENOUGH):
        return None
    plain = tally.tokens_per_second / known.times
    now = known.times if drafting else 1.0
    usable = {status.name for status in info.strategies if status.available} - {used.strategy}
    candidates = [*_other_length(reply, now), *_others(reply, usable - {"plain"}, ledger, known)]
    measured = {speculation.strategy for speculation in ledger.tried(reply)}
    if _COPIER in usable - measured and not delegates(used.strategy):
        candidates += _lookup(reply, lengths, ledger, plain)
    better = [one for one in candidates if one.times >= _GAIN[one.evidence] * max(now, 1.0)]
    if not better and drafting and _GAIN["measured"] * now <= 1.0 and known.high < 1.0:
        better = [Advice(Speculation("plain", 0, used.acceptance), 1.0, "measured")]
    best = max(better, key=lambda one: one.times, default=None)
    return replace(best, gain=best.times / now) if best is not None else None


def _other_length(reply: Reply, now: float) -> Iterable[Advice]:
    """The best length of the strategy in use, by the gain that its projection shows over the projected present."""
    used, found = reply.record.speculation, project(reply, _LATEST)
    if found is None or found.strategy != used.strategy or reply.stretch.speculative < ENOUGH_STEPS:
        return
    best = within_reach(found)
    present = found.outlooks[min(used.draft_length, len(found.outlooks) - 1)]
    if best != used.draft_length and present.tokens_per_second:
        gain = found.outlooks[best].tokens_per_second / present.tokens_per_second
        yield Advice(Speculation(used.strategy, best, used.acceptance), now * gain, "projected")


def within_reach(projection: Projection) -> int:
    """The fastest length of at most twice what was tried: further out a projection is a guess."""
    tried = projection.outlooks[1 : 2 * projection.longest + 1]
    return max(tried, key=lambda outlook: outlook.tokens_per_second).length


def _others(reply: Reply, usable: set[str], ledger: Ledger, known: Speedup) -> Iterable[Advice]:
    """Strategies that wrote other replies to the same prompt, surely faster than the present one, of speed `known`."""
    for speculation, compared in ledger.tried(reply).items():
        measured, alike = compared.speedup, speculation.acceptance == reply.record.speculation.acceptance
        if measured is None or compared.tokens < _ENOUGH_TOKENS or not alike:
            continue
        if speculation.strategy in usable and measured.low > known.high:
            yield Advice(speculation, measured.times, "measured")


def _lookup(reply: Reply, lengths: Mapping[str, int], ledger: Ledger, plain: float) -> Iterable[Advice]:
    """The speed of copying for this text, at the cost of checks as measured here or earlier with this pair."""
    speculation = Speculation.of(_COPIER, lengths.get(_COPIER), reply.record.speculation.acceptance)
    checks = Checks.of(reply.steps[-_LATEST:])
    if max(checks.rows, default=1) == 1:
        checks = ledger.checks.get(reply.name, checks)
    if max(checks.rows, default=1) == 1:
        return
    found = potential(reply.turn.content if reply.turn else "", reply.text, speculation.draft_length)
    if found.words < _ENOUGH_WORDS:
        return
    other_ms = reply.tally.other_ms / reply.tally.steps
    plain_ms = 1000 / plain / reply.tally.waiting_factor
    cost = CheckCost.of(checks, max(plain_ms - other_ms, 0.0))
    spent = sum(cost.at(drafted + 1) + other_ms for drafted in found.drafts)
    yield Advice(speculation, found.words * plain_ms / spent, "estimated")
