"""Our own strategies as contenders."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from specchat.bench.contender import CLOCK, BenchPrompt, Clock, Run
from specchat.engine.api import Finished, Generate, Step
from specchat.engine.options import Limits, Sampling, Speculation
from specchat.engine.session import Session
from specchat.engine.step_tree import ranks
from specchat.engine.strategies import labelled

WARM_UP = 32
"""Tokens of the first reply, which does not count."""


class Ours:
    """A loaded session with one way of drafting."""

    rival = ""
    note = ""

    def __init__(
        self, session: Session, speculation: Speculation, sampling: Sampling, clock: Clock = CLOCK, name: str = ""
    ) -> None:
        """`name` where it is not the strategy's."""
        self.speculation = speculation
        self.name = name or labelled(speculation.strategy, speculation.draft_length, speculation.acceptance)
        self.free = speculation.acceptance != "coupled" and not sampling.greedy
        """Whether its text has only the law of plain's."""
        self._session = session
        self._sampling = sampling
        self._clock = clock

    def warm_up(self, prompt: BenchPrompt) -> None:
        self.run(prompt, WARM_UP)

    def run(self, prompt: BenchPrompt, most: int) -> Run:
        # From empty caches and nothing learnt: no reply is spared what another one has read or written.
        request = Generate(0, prompt.messages, self._sampling, Limits(most), self.speculation, cold=True)
        steps: list[Step] = []
        started = self._clock()
        first = 0.0
        for event in self._session.generate(request):
            match event:
                case Step():
                    if not steps:
                        first = self._clock() - started
                    steps.append(event)
                case Finished():
                    last, seconds = event, self._clock() - started
        tested = _reaching(step.tested for step in steps)
        accepted, drafted = _reaching(step.accepted for step in steps), _reaching(step.drafted for step in steps)
        kept = Counter(rank for step in steps for rank in ranks(step))
        reading = next((step for step in steps if step.drafted), None)
        return Run(
            tokens=last.token_ids,
            seconds=seconds,
            first_seconds=first,
            first_tokens=steps[0].emitted if steps else 0,
            stats=replace(last.stats, per_step_accepted=()),
            tested=tested,
            accepted=accepted + (0,) * (len(tested) - len(accepted)),
            drafted=drafted,
            kept=tuple(kept[rank] for rank in range(1, len(drafted) + 1)),
            first_drafted=reading.drafted if reading else 0,
            first_draft_ms=reading.draft_ms if reading else 0.0,
        )

    def close(self) -> None:
        self._session.forget()


def _reaching(counts: Iterable[int]) -> tuple[int, ...]:
    """[i]: how many of `counts` are more than i."""
    seen = list(counts)
    return tuple(sum(count > i for count in seen) for i in range(max(seen, default=0)))
