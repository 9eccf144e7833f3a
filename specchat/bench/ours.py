"""Our own strategies as contenders."""

from dataclasses import replace

from specchat.bench.contender import CLOCK, Clock, Prompt, Run
from specchat.engine.api import Finished, Generate, Limits, Sampling, Speculation, Step
from specchat.engine.session import Session
from specchat.engine.strategies import MAX_DRAFT_LENGTH, labelled

WARM_UP = 32
"""Tokens of the first reply, which does not count."""


class Ours:
    """A loaded session with one way of drafting."""

    rival = ""
    note = ""

    def __init__(self, session: Session, speculation: Speculation, sampling: Sampling, clock: Clock = CLOCK) -> None:
        self.speculation = speculation
        self.name = labelled(speculation.strategy, speculation.draft_length, speculation.acceptance)
        self.free = speculation.acceptance != "coupled" and not sampling.greedy
        """Whether its text has only the law of plain's."""
        self._session = session
        self._sampling = sampling
        self._clock = clock

    def warm_up(self, prompt: Prompt) -> None:
        self.run(prompt, WARM_UP)

    def run(self, prompt: Prompt, most: int) -> Run:
        # From empty caches and nothing learnt: no reply is spared what another one has read or written.
        request = Generate(0, prompt.messages, self._sampling, Limits(most), self.speculation, cold=True)
        tested, accepted = [0] * MAX_DRAFT_LENGTH, [0] * MAX_DRAFT_LENGTH
        started = self._clock()
        first = 0.0
        first_tokens = 0
        for event in self._session.generate(request):
            match event:
                case Step():
                    if not first_tokens:
                        first, first_tokens = self._clock() - started, event.emitted
                    for i in range(event.tested):
                        tested[i] += 1
                    for i in range(event.accepted):
                        accepted[i] += 1
                case Finished():
                    last = event
        seconds = self._clock() - started
        used = sum(count > 0 for count in tested)
        return Run(
            tokens=last.token_ids,
            seconds=seconds,
            first_seconds=first,
            first_tokens=first_tokens,
            stats=replace(last.stats, per_step_accepted=()),
            tested=tuple(tested[:used]),
            accepted=tuple(accepted[:used]),
        )

    def close(self) -> None:
        self._session.forget()
