"""Our own strategies as contenders."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from specchat.bench.contender import CLOCK, BenchPrompt, Clock, Run
from specchat.bench.interleaved import STOPS
from specchat.engine.protocol.events import Finished, Step
from specchat.engine.protocol.options import Limits, Sampling, Speculation
from specchat.engine.protocol.requests import Generate
from specchat.engine.protocol.step_tree import ranks
from specchat.engine.session import Session
from specchat.engine.strategies import labelled

WARM_UP_TOKENS = 32


class Ours:
    """A loaded session with one strategy."""

    rival = ""
    note = ""

    def __init__(
        self,
        session: Session,
        speculation: Speculation,
        sampling: Sampling,
        clock: Clock = CLOCK,
        name: str = "",
        free: bool = False,
        ran: Clock | None = None,
    ) -> None:
        """Measure `speculation`; `name` replaces the strategy's. A `free` one may write another text than plain.

        `ran` is a clock without waits for a processor.
        """
        self.speculation = speculation
        self.name = name or labelled(speculation.strategy, speculation.draft_length, speculation.acceptance)
        self.free = free or (speculation.acceptance != "coupled" and not sampling.greedy)
        """True if its text equals plain decoding's only in distribution."""
        self._session = session
        self._sampling = sampling
        self._clock, self._ran = clock, ran

    def warm_up(self, prompt: BenchPrompt) -> None:
        self.run(prompt, WARM_UP_TOKENS)

    def run(self, prompt: BenchPrompt, most: int) -> Run:
        return STOPS.undisturbed(partial(self._run, prompt, most))

    def _run(self, prompt: BenchPrompt, most: int) -> Run:
        # Cold: no reply profits from another one's cache or statistics.
        request = Generate(0, prompt.messages, self._sampling, Limits(most), self.speculation, cold=True)
        steps: list[Step] = []
        started, ran = self._clock(), self._ran() if self._ran else 0.0
        first = 0.0
        for event in self._session.generate(request):
            match event:
                case Step():
                    if not steps:
                        first = self._clock() - started
                    steps.append(event)
                case Finished():
                    last, seconds = event, self._clock() - started
                    ran_seconds = self._ran() - ran if self._ran else 0.0
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
            ran_seconds=ran_seconds,
        )

    def close(self) -> None:
        self._session.forget()


def _reaching(counts: Iterable[int]) -> tuple[int, ...]:
    """[i]: number of `counts` above i."""
    seen = list(counts)
    return tuple(sum(count > i for count in seen) for i in range(max(seen, default=0)))
