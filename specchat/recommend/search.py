"""The search for what is fastest: strategies and lengths first, then other settings beside the best of these."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

from specchat.engine.backends import DEFAULT_BACKEND
from specchat.engine.errors import EngineError
from specchat.engine.protocol.options import Message
from specchat.recommend.variants import Variant

if TYPE_CHECKING:
    from specchat.bench.contender import Run
    from specchat.bench.ours import Ours
    from specchat.bench.race import ContenderSpeed, RaceProgress
    from specchat.config.catalog import Pair
    from specchat.engine.session import Session

Show = Callable[[str, float | None], None]
"""Gets what is done now, and the share of it all."""

MOST_PROMPTS = 64
WHOLE_BYTES = 4
"""Bytes of a weight of a draft, at most."""
STRATEGIES_SHARE = 0.6
"""Share of the time for strategies and lengths, where there are other settings to try."""
LEAST_S = 0.5
"""Seconds for one of these at least."""
SAME_TEXT_SHARE = 0.7
"""Share of that for settings that can be written, where there is time for suggestions."""
SUGGESTING_S = 60.0
"""Seconds of a search from which there is time for suggestions."""
CASES = 2
"""Strategies by which a setting is measured."""
CLEAR = 1.03
"""Factor from which a choice is clearly faster: then it is written, or another text suggested."""
GAIN, MOST_LOSS = 1.02, 0.95
"""Factor from which a setting of the same text is taken, and the least that the end of its interval may be."""


@dataclass(frozen=True)
class VariantSpeed:
    """A setting with a strategy, and its speed over the best of the present settings on the same prompts."""

    variant: Variant
    case: str
    speed: "ContenderSpeed"

    @property
    def pays(self) -> bool:
        """True if it is to be taken; one of another text only if it is clearly faster beyond its interval."""
        least, low = (GAIN, MOST_LOSS) if self.variant.same_text else (CLEAR, 1.0)
        return self.speed.times >= least and self.speed.low > low


@dataclass
class Recommendations:
    """The outcome of a search.

    Attributes:
        strategies: speeds over plain decoding, the best first.
        variants: speeds of other settings over that best one, the best first.
        left_out: settings that were not measured, with the reason.
    """

    strategies: "list[ContenderSpeed]"
    variants: list[VariantSpeed] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def best(self) -> "ContenderSpeed":
        """The fastest of those that answered most prompts."""
        return self.strategies[0]


class SearchStopped(Exception):
    """The search was stopped before its end."""


class RecommendSearch:
    """A search over a loaded pair."""

    def __init__(self, pair: "Pair", session: "Session", chats: Sequence[tuple[Message, ...]], show: Show) -> None:
        """Search on `chats`.

        Raises:
            EngineError: no prompt fits.
        """
        from random import Random

        from specchat.bench.contender import BenchPrompt
        from specchat.bench.race import TOKENS

        self._pair, self.session, self._show = pair, session, show
        made = [(str(i), chat, tuple(session.tokenizer.prompt(chat))) for i, chat in enumerate(chats)]
        self._prompts: list[BenchPrompt] = [
            BenchPrompt(n, "", chat, ids) for n, chat, ids in made if len(ids) + TOKENS <= session.info.context
        ]
        if not self._prompts:
            raise EngineError("request", f"No prompt leaves room for {TOKENS} tokens. Give other --prompts.")
        Random(7).shuffle(self._prompts)  # files are often sorted by category
        del self._prompts[MOST_PROMPTS:]

    def run(self, seconds: float, others: Sequence[Variant], stopped: Callable[[], bool]) -> Recommendations:
        """Search for about `seconds` with loading.

        Raises:
            SearchStopped: `stopped` gave True.
            Different: a text is not plain decoding's.
        """
        from specchat.bench.interleaved import STOPS
        from specchat.bench.ours import Ours
        from specchat.bench.race import ContenderRace
        from specchat.engine.protocol.options import Sampling, Speculation

        end = perf_counter() + seconds
        plain = Ours(self.session, Speculation(), Sampling())
        every = contenders(self.session, self._pair)
        stand_ins = [*{one.speculation.strategy: one for one in reversed(every)}.values()]

        def notify(at: "RaceProgress") -> None:
            if stopped():
                raise SearchStopped
            self._show(f"measuring {at.contender}", 1 - max(0.0, end - perf_counter()) / seconds)

        with STOPS.counting():
            first = seconds * STRATEGIES_SHARE if others else seconds
            found = Recommendations(ContenderRace(plain, every, self._prompts).run(first, notify, stand_ins))
            for same_text in (True, False):
                some = [one for one in others if one.same_text == same_text]
                begun = perf_counter()
                left = end - begun
                if same_text and seconds >= SUGGESTING_S:
                    left *= SAME_TEXT_SHARE
                if left < LEAST_S or (not same_text and seconds < SUGGESTING_S):
                    found.left_out |= dict.fromkeys((one.name for one in some), "the time was over")
                    continue
                groups = self._groups(some)
                for number, group in enumerate(groups, 1):
                    self._race(found, plain, every, group, begun + left * number / len(groups), notify)
        found.variants.sort(key=lambda one: -one.speed.times)
        return found

    def sampled(self, name: str, count: int) -> "list[Run]":
        """Replies to `count` prompts by a contender, or by plain decoding."""
        from specchat.bench.ours import Ours
        from specchat.bench.race import TOKENS
        from specchat.engine.protocol.options import Sampling, Speculation

        plain = Ours(self.session, Speculation(), Sampling())
        one = next((one for one in contenders(self.session, self._pair) if one.name == name), plain)
        return [one.run(prompt, TOKENS) for prompt in self._prompts[:count]]

    @property
    def step_bytes(self) -> float:
        """Bytes of weights that a plain step reads; 0 where they are unknown."""
        from specchat.engine.fetch.hub import locate
        from specchat.models.about import about_folder
        from specchat.models.speed import step_bytes

        source = self._pair.spec.target
        if self._pair.spec.backend != DEFAULT_BACKEND:
            return 0.0
        return step_bytes(source, about_folder(locate(source, lambda _: None), source.label)) or 0.0

    def _groups(self, some: Sequence[Variant]) -> list[list[Variant]]:
        """Settings that are loaded together: they take as much memory as the pair at most, or are one."""
        groups: list[list[Variant]] = []
        room = 0
        for one in some:
            if not groups or self._beside(one) > room:
                groups.append([])
                room = self.session.info.load.memory
            groups[-1].append(one)
            room -= self._beside(one)
        return groups

    def _beside(self, variant: Variant) -> int:
        """Bytes that a setting takes beside the loaded pair, at most."""
        from specchat.engine.loading.beside import shared_target

        info = self.session.info
        if shared_target(self.session, self._pair.spec, variant.spec) is None:
            return info.load.memory
        return info.draft.parameters * WHOLE_BYTES if variant.tuned is None else 2 * variant.tuned.size

    def _race(
        self,
        found: Recommendations,
        plain: "Ours",
        every: "Sequence[Ours]",
        some: Sequence[Variant],
        end: float,
        notify: "Callable[[RaceProgress], None]",
    ) -> None:
        """Measure settings against each other, beside the best of the present ones, until `end`."""
        from specchat.bench.race import ContenderRace

        best = next(one for one in every if one.name == found.best.name)
        cases: dict[str, tuple[Variant, str, Ours]] = {}
        for variant in some:
            made = self._cases(variant, found, best)
            if isinstance(made, str):
                found.left_out[variant.name] = made
            else:
                cases |= {ours.name: (variant, case, ours) for case, ours in made.items()}
        if not cases:
            return
        race = ContenderRace(plain, [best, *(ours for _, _, ours in cases.values())], self._prompts, base=best)
        race.run(max(0.0, end - perf_counter()), notify)
        found.variants += [VariantSpeed(*cases[one.name][:2], one) for one in race.beside(best.name)]

    def _cases(self, variant: Variant, found: Recommendations, best: "Ours") -> "dict[str, Ours] | str":
        """Contenders of the pair with another setting, by the strategies that it affects, or the reason against it."""
        from specchat.bench.ours import Ours
        from specchat.engine.hardware.free_memory import free_memory
        from specchat.engine.loading.beside import load_beside
        from specchat.engine.protocol.options import Sampling, Speculation

        free = free_memory()
        if free is not None and free < 2 * self._beside(variant):
            return "memory does not hold it beside the pair"
        try:
            session = load_beside(
                self.session, self._pair.spec, variant.spec, lambda loading: self._show(loading.what, loading.fraction)
            )
        except EngineError as error:
            return str(error).rstrip(".")
        by_name = {one.name: one for one in contenders(session, self._pair)}
        before = {one.name for one in contenders(self.session, self._pair)}
        order = [*sorted(by_name.keys() - before), *(one.name for one in found.strategies)]  # what is new comes first
        fit = [name for name, one in by_name.items() if variant.affects(one.speculation.strategy)]
        fit.sort(key=lambda name: order.index(name) if name in order else len(order))
        if not variant.same_text:
            fit = [best.name] if best.name in by_name else fit
        if not fit:
            return "no strategy uses it"
        cases = {}
        for name in fit[:CASES]:
            of = by_name[name].speculation
            cases[name] = Ours(session, of, Sampling(), name=f"{name}, {variant.name}", free=not variant.same_text)
        if not variant.same_text:
            cases["plain"] = Ours(session, Speculation(), Sampling(), name=f"plain, {variant.name}", free=True)
        return cases


def contenders(session: "Session", pair: "Pair") -> "list[Ours]":
    """Each available strategy at the pair's draft length and its own, those that draft by a model at others too.

    A strategy's first is at the pair's length.
    """
    from specchat.bench.ours import Ours
    from specchat.engine.protocol.options import Sampling, Speculation
    from specchat.engine.strategies import STRATEGIES, delegates
    from specchat.engine.strategy import MAX_DRAFT_LENGTH

    made: dict[str, Ours] = {}
    for status in session.info.strategies:
        if not status.available or status.name == Speculation().strategy:
            continue
        strategy = STRATEGIES[status.name]
        usual = pair.lengths.get(status.name, strategy.draft_length)
        lengths = {usual, strategy.draft_length}
        if not delegates(status.name):
            lengths |= {max(1, usual // 2), min(MAX_DRAFT_LENGTH, 2 * usual)}
        for length in sorted(lengths, key=lambda length: (length != usual, length)):
            one = Ours(session, Speculation.of(status.name, length), Sampling())
            made[one.name] = one
    return [*made.values()]
